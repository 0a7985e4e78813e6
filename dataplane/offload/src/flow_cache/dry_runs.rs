//! Dry runs in the kernel of the programs with a flow cache, one frame at a time.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, XskMap};
use millrace_packet::{OffloadAction, OffloadEgress, OffloadedFlow};
use millrace_units::PortId;
use millrace_wire::MacAddr;

use super::{FlowCache, FlowCacheWriter, FlowSlot, Place};
use crate::ProgramCounters;
use crate::bpf::object::{self, write_config};
use crate::bpf::syscall;
use crate::bpf::syscall::xdp_socket;
use crate::counters::read_counters;

/// MAC address of the port.
pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Number of the port.
pub(crate) const PORT: u16 = 3;
/// Number of the output port.
pub(crate) const OUT: u16 = 7;
/// Index of the output device.
pub(crate) const LOOPBACK: u32 = 1;
/// Verdict that sends a frame to a device (`XDP_REDIRECT`).
pub(crate) const REDIRECT: u32 = 4;
/// Output port and link header of forwarded frames.
pub(crate) const WAY: OffloadEgress = OffloadEgress {
    out: PortId(OUT),
    mtu: 1500,
    destination: MacAddr([2, 9, 9, 9, 9, 9]),
    source: MacAddr([2, 8, 8, 8, 8, 8]),
};
/// Flow cache entry that sends packets as [`WAY`] says.
pub(crate) const FLOW: OffloadedFlow =
    OffloadedFlow { action: OffloadAction::Send(WAY), policer: None, variant: None };

/// Port programs with a flow cache, for dry runs. They have a socket, because the programs forward only while
/// a socket is registered.
pub(crate) struct Bench {
    pub(crate) cache: FlowCache,
    pub(crate) writer: FlowCacheWriter,
    object: Ebpf,
    pub(crate) programs: [OwnedFd; 2],
    _socket: OwnedFd,
}

impl Bench {
    /// Creates a bench with one worker.
    pub(crate) fn new(capacity: u32) -> Self {
        Self::of_workers(capacity, 1)
    }

    /// Creates a bench with `workers` workers; `writer` is the first worker's.
    pub(crate) fn of_workers(capacity: u32, workers: usize) -> Self {
        let mut cache = FlowCache::new(capacity, workers).unwrap();
        cache.set_device(OUT, Some(LOOPBACK), true).unwrap();
        let mut writer = cache.writer(0).unwrap();
        writer.publish(1);
        let mut object = object::level0_in(&cache.directory().path(), cache.sizes()).unwrap();
        let programs =
            ["millrace_xdp", "millrace_xdp_sg"].map(|name| object::load(&mut object, name).unwrap());
        write_config(&mut object, |config| *config = [2, 0, 0, 0, 0, 1, 1, 0]).unwrap();
        let socket = xdp_socket();
        for map in ["sockets", "witness"] {
            let mut sockets = XskMap::try_from(object.map_mut(map).unwrap()).unwrap();
            sockets.set(0, socket.as_raw_fd(), 0).unwrap();
        }
        let mut place = Array::<_, Place>::try_from(object.map_mut("place").unwrap()).unwrap();
        place.set(0, FlowCache::place(cache.table(), PORT, true), 0).unwrap();
        Self { cache, writer, object, programs, _socket: socket }
    }

    /// Puts an entry into use, and records all upcalls of the port so far as completed.
    pub(crate) fn take_up(&mut self, slot: FlowSlot) {
        self.writer.set_done(PORT, self.writer.up(PORT));
        self.writer.begin(slot, PORT, 1);
    }

    /// Returns the counters of the port's programs.
    pub(crate) fn counters(&self) -> ProgramCounters {
        read_counters(&self.object).unwrap()
    }

    /// Runs a program on a frame. Returns the output frame, if the flow cache forwards the frame.
    pub(crate) fn run(&self, program: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let before = self.counters();
        let (verdict, out) = syscall::run_dry_through(self.programs[program].as_fd(), frame).unwrap();
        let after = self.counters();
        assert_eq!(after.seen - before.seen, 1);
        let here = after.cache.forwarded - before.cache.forwarded;
        assert_eq!(after.cache.undeliverable, before.cache.undeliverable);
        assert!(here == 0 || verdict == REDIRECT, "verdict {verdict}");
        (here == 1).then_some(out)
    }
}
