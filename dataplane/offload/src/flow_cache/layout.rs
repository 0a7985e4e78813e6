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
/// The length of a key: that of `FlowKey` of the room `packet`.
pub const KEY_BYTES: usize = 40;

/// `struct cached_flow`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub generation: u64,
    pub packets: u64,
    pub bytes: u64,
    pub last_up: u64,
    pub floor: u64,
    pub out: u16,
    pub mtu: u16,
    pub worker: u16,
    pub link: [u8; 12],
    pub drops: u16,
    pub policer: u16,
    pub form: u16,
    pub dropped: u64,
    pub dropped_bytes: u64,
    pub also_reserved: [u64; 6],
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
    pub overloaded: u32,
    pub reserved: [u8; 44],
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
}

#[expect(unsafe_code, reason = "a promise about types, in one place")]
mod plain {
    use super::{Place, Pod, Sent};

    // SAFETY: two integers of the same size, without padding; any bytes are a value.
    unsafe impl Pod for Sent {}
    // SAFETY: as above.
    unsafe impl Pod for Place {}
}

const _: () = {
    assert!(size_of::<Entry>() == 128 && size_of::<Way>() == 64 && size_of::<Policer>() == 64);
    assert!(
        offset_of!(Entry, last_up) == 24 && offset_of!(Entry, out) == 40 && offset_of!(Entry, link) == 46
    );
    assert!(
        offset_of!(Entry, drops) == 58 && offset_of!(Entry, form) == 62 && offset_of!(Entry, dropped) == 64
    );
};
