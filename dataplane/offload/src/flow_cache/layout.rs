//! Layout of the flow cache's maps, as bpf/flow_cache_maps.h defines it.

use std::mem::{offset_of, size_of};

use aya::Pod;

/// Number of ports that the cache supports. The port numbers are below this number.
pub(crate) const PORTS: usize = 256;
/// Number of token buckets that programs and workers share.
pub(crate) const POLICERS: usize = 1024;
/// Maximum number of loaded eBPF variants of plugins.
pub const VARIANTS: usize = 256;
/// Maximum number of workers that fill the cache.
pub(crate) const WORKERS: usize = 64;
/// Maximum number of receive queues of a port.
pub const RX_QUEUES: usize = 64;
/// Length of a key in bytes, equal to that of `FlowKey` of the crate `packet`.
pub const KEY_BYTES: usize = 40;

/// Number of words of a `struct bucket`, which takes one cache line.
pub(crate) const WORDS: usize = 16;
/// Maximum number of distinct treatments.
pub(crate) const TREATMENTS: usize = 65_536;

/// Flow cache entry, `struct cached_flow`: key, version, counters and treatment of a flow.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub key: [u64; KEY_BYTES / 8],
    pub version: u64,
    pub bytes: u64,
    pub packets: u32,
    pub treatment: u16,
    pub settled: u8,
    pub reserved: u8,
}

/// Rarely used fields of a flow cache entry, `struct aside`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    pub last_up: u64,
    pub floor: u64,
    pub dropped: u64,
    pub dropped_bytes: u64,
}

/// Treatment shared by the packets of many flows, `struct treatment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Treatment {
    pub out: u16,
    pub mtu: u16,
    pub link: [u8; 12],
    pub worker: u16,
    pub drops: u16,
    pub policer: u16,
    pub variant: u16,
    pub reserved: [u8; 8],
}

/// Token bucket, `struct policer` of bpf/policer.h.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policer {
    pub paid: u64,
    pub byte: u64,
    pub depth: u64,
    pub reserved: [u64; 5],
}

/// Number of a port's upcalls so far, and number of its completed upcalls, `struct way`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub up: u64,
    pub done: u64,
    pub overloaded: u64,
    pub reserved: [u8; 40],
}

/// Number of upcalls by one receive queue of a port, `struct queue_way`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueWay {
    pub up: u64,
    pub read: [u64; 2],
    pub reserved: [u8; 40],
}

/// Packets and bytes that the flow cache sent out of a port, `struct sent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub packets: u64,
    pub bytes: u64,
}

/// Configuration of a port's program: port number and flow table parameters, `struct place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub port: u16,
    pub cached: u16,
    pub table: Table,
}

/// Parameters of the flow table: the second part of `struct place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Table {
    /// Number of buckets, a power of two, minus one.
    pub mask: u32,
    /// Mask of the bits of a word that hold an entry number.
    pub numbers: u32,
    /// Secrets of the keyed hash.
    pub secrets: [u32; KEY_BYTES / 4],
}

#[expect(unsafe_code, reason = "a promise about types, in one place")]
mod plain {
    use super::{Place, Pod, Sent};

    // SAFETY: two integers of the same size, without padding; any bytes are a valid value.
    unsafe impl Pod for Sent {}
    // SAFETY: two integers that fill a word, and words, without padding; any bytes are a valid value.
    unsafe impl Pod for Place {}
}

const _: () = {
    assert!(size_of::<Entry>() == 64 && size_of::<Way>() == 64 && size_of::<Policer>() == 64);
    assert!(size_of::<QueueWay>() == 64);
    assert!(size_of::<Aside>() == 32 && size_of::<Treatment>() == 32 && size_of::<Place>() == 52);
    assert!(offset_of!(Entry, version) == 40 && offset_of!(Entry, packets) == 56);
    assert!(offset_of!(Entry, treatment) == 60 && offset_of!(Entry, settled) == 62);
    assert!(offset_of!(Treatment, worker) == 16 && offset_of!(Treatment, variant) == 22);
};
