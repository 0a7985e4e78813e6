//! What the maps of the flow cache hold, byte by byte, as bpf/flow_cache.h says.

use std::mem::{offset_of, size_of};

use aya::Pod;

/// Ports, by their numbers in the router, that can have their flows in the cache.
pub(crate) const PORTS: usize = 256;
/// Token buckets that programs can take from.
pub(crate) const POLICERS: usize = 1024;
/// Forms of plugins that programs can ask.
pub(crate) const FORMS: usize = 256;
/// Workers that can fill it.
pub(crate) const WORKERS: usize = 64;
/// Receive queues of a port that packets can come in by.
pub const RX_QUEUES: usize = 64;
/// The length of a key: that of `FlowKey` of the room `packet`.
pub const KEY_BYTES: usize = 40;

/// Words of a `struct bucket`, which is a cache line.
pub(crate) const WORDS: usize = 16;
/// What can become of packets, at most.
pub(crate) const TREATMENTS: usize = 65_536;

/// `struct cached_flow`.
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

/// `struct aside`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    pub last_up: u64,
    pub floor: u64,
    pub dropped: u64,
    pub dropped_bytes: u64,
}

/// `struct treatment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Treatment {
    pub out: u16,
    pub mtu: u16,
    pub link: [u8; 12],
    pub worker: u16,
    pub drops: u16,
    pub policer: u16,
    pub form: u16,
    pub reserved: [u8; 8],
}

/// `struct policer`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policer {
    pub paid: u64,
    pub byte: u64,
    pub depth: u64,
    pub reserved: [u64; 5],
}

/// `struct way`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub up: u64,
    pub done: u64,
    pub overloaded: u64,
    pub reserved: [u8; 40],
}

/// `struct queue_way`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueWay {
    pub up: u64,
    pub read: [u64; 2],
    pub reserved: [u8; 40],
}

/// `struct sent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub packets: u64,
    pub bytes: u64,
}

/// `struct place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub port: u16,
    pub cached: u16,
    pub table: Table,
}

/// Where flows lie: the second part of `struct place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Table {
    /// One less than the buckets there are, a power of two.
    pub mask: u32,
    /// The bits of a word that hold a number.
    pub numbers: u32,
    /// What the hash is keyed by.
    pub secrets: [u32; KEY_BYTES / 4],
}

#[expect(unsafe_code, reason = "a promise about types, in one place")]
mod plain {
    use super::{Place, Pod, Sent};

    // SAFETY: two integers of the same size, without padding; any bytes are a value.
    unsafe impl Pod for Sent {}
    // SAFETY: two integers that fill a word, and words, without padding; any bytes are a value.
    unsafe impl Pod for Place {}
}

const _: () = {
    assert!(size_of::<Entry>() == 64 && size_of::<Way>() == 64 && size_of::<Policer>() == 64);
    assert!(size_of::<QueueWay>() == 64);
    assert!(size_of::<Aside>() == 32 && size_of::<Treatment>() == 32 && size_of::<Place>() == 52);
    assert!(offset_of!(Entry, version) == 40 && offset_of!(Entry, packets) == 56);
    assert!(offset_of!(Entry, treatment) == 60 && offset_of!(Entry, settled) == 62);
    assert!(offset_of!(Treatment, worker) == 16 && offset_of!(Treatment, form) == 22);
};
