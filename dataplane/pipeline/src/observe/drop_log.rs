//! Drop log: the last dropped packets of each drop reason.
//!
//! The log records the headers of dropped packets. In each iteration, a worker records the first
//! [`DROPS_KEPT`] packets of a reason, and only counts the rest. So a flood of drops costs one check per
//! packet.

use millrace_packet::{DropReason, Packet};
use millrace_plugin::{BindingId, WorkerPlugins};
use millrace_units::{Instant, PortId};

use crate::gate_tables::WorkerTable;
use crate::observe::Observation;
use crate::observe::trace::Head;
use crate::parse::ROUTER;

/// Number of packets kept for each reason.
pub const DROPS_KEPT: usize = 8;
/// Maximum number of bindings recorded with a packet.
const BINDINGS: usize = 4;

/// Query for dropped packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DropQuery {
    /// Reason of the drops; `None` for all reasons.
    pub reason: Option<DropReason>,
    /// Number of the last known packet: only packets with higher numbers are returned.
    pub after: u64,
}

/// Dropped packet.
#[derive(Clone, Copy, Debug)]
pub struct DroppedPacket {
    /// Number of the packet in this worker's log.
    pub number: u64,
    /// Start of the worker's iteration, by its clock.
    pub at: Instant,
    /// Drop reason.
    pub reason: DropReason,
    /// Ingress port; [`PortId::NONE`] for packets made by the router.
    pub port: PortId,
    /// Egress port; [`PortId::NONE`] if it was not chosen yet.
    pub out_port: PortId,
    /// Length in bytes.
    pub length: u32,
    /// Offset of the network header in bytes; 0 for packets without a link header.
    pub network: u16,
    /// Flow hash.
    pub hash: u32,
    /// Bindings that may have dropped the packet; a single one if the router knows which binding did.
    bindings: [Option<BindingId>; BINDINGS],
    /// First bytes of the packet.
    pub head: Head,
}

impl DroppedPacket {
    /// Returns the bindings that may have dropped the packet; a single one if the router knows which binding
    /// did.
    pub fn bindings(&self) -> impl Iterator<Item = BindingId> {
        self.bindings.into_iter().flatten()
    }
}

/// Last dropped packets of one drop reason.
#[derive(Debug)]
struct Last {
    /// Start of the last iteration with a recorded drop.
    iteration: Instant,
    /// Number of drops that this iteration may still record.
    left: u8,
    /// Index in `packets` that the next drop overwrites.
    next: u8,
    packets: Vec<DroppedPacket>,
}

/// Last dropped packets, by drop reason.
#[derive(Debug)]
pub(crate) struct DropLog {
    now: Instant,
    number: u64,
    reasons: Vec<Last>,
}

impl Default for DropLog {
    fn default() -> Self {
        let last = |_: &DropReason| Last {
            iteration: Instant::ZERO,
            left: DROPS_KEPT as u8,
            next: 0,
            packets: Vec::with_capacity(DROPS_KEPT),
        };
        Self { now: Instant::ZERO, number: 0, reasons: DropReason::ALL.iter().map(last).collect() }
    }
}

impl DropLog {
    /// Starts an iteration of the worker.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// Returns the start of the iteration.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Records a dropped packet, unless this iteration has recorded [`DROPS_KEPT`] drops of its reason
    /// already.
    #[inline]
    pub fn note(&mut self, packet: &Packet, reason: DropReason, plugins: &WorkerPlugins<WorkerTable>) {
        let Some(last) = self.reasons.get_mut(reason.index()) else { return };
        if last.iteration != self.now {
            (last.iteration, last.left) = (self.now, DROPS_KEPT as u8);
        }
        if last.left > 0 {
            last.left -= 1;
            self.write(packet, reason, plugins);
        }
    }

    #[cold]
    fn write(&mut self, packet: &Packet, reason: DropReason, plugins: &WorkerPlugins<WorkerTable>) {
        self.number += 1;
        let mut bindings = [None; BINDINGS];
        let droppers = plugins.may_drop(packet.counts_for, reason);
        bindings.iter_mut().zip(droppers).for_each(|(place, binding)| *place = Some(binding));
        let dropped = DroppedPacket {
            number: self.number,
            at: self.now,
            reason,
            port: if packet.port == ROUTER { PortId::NONE } else { packet.port },
            out_port: packet.out_port,
            length: packet.len() as u32,
            network: packet.network_offset() as u16,
            hash: packet.hash,
            bindings,
            head: Head::of(packet),
        };
        let Some(last) = self.reasons.get_mut(reason.index()) else { return };
        match last.packets.get_mut(usize::from(last.next)) {
            Some(place) => *place = dropped,
            // Doesn't allocate: the capacity was reserved at the start.
            None => last.packets.push(dropped),
        }
        last.next = (last.next + 1) % DROPS_KEPT as u8;
    }
}

impl Observation {
    /// Returns the dropped packets that match a query, in the order of their drops.
    pub(crate) fn last_drops(&self, query: &DropQuery) -> Vec<DroppedPacket> {
        let reasons = DropReason::ALL.iter().zip(&self.drop_log.reasons);
        let asked = reasons.filter(|(reason, _)| query.reason.is_none_or(|wanted| wanted == **reason));
        let packets = asked.flat_map(|(_, last)| &last.packets).filter(|packet| packet.number > query.after);
        let mut packets: Vec<DroppedPacket> = packets.copied().collect();
        packets.sort_unstable_by_key(|packet| packet.number);
        packets
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_packet::Pool;

    use super::*;

    #[test]
    fn last_packets_of_each_reason_are_kept_and_the_first_of_an_iteration() {
        let pool = Pool::new(4).unwrap();
        let (mut log, plugins) = (DropLog::default(), WorkerPlugins::new());
        let drop = |log: &mut DropLog, first: u8, reason| {
            let mut packet = pool.packet_from(&[first; 60]).unwrap();
            packet.port = PortId(2);
            log.note(&packet, reason, &plugins);
        };
        for iteration in 0..3 {
            log.begin(Instant::ZERO + Duration::from_micros(iteration));
            (0..20).for_each(|number| drop(&mut log, iteration as u8 * 20 + number, DropReason::Filter));
            drop(&mut log, iteration as u8, DropReason::NoRoute);
        }
        let first = |reason: DropReason| {
            let packets = &log.reasons[reason.index()].packets;
            packets.iter().map(|packet| packet.head.bytes()[0]).collect::<Vec<_>>()
        };
        assert_eq!(first(DropReason::Filter), [40, 41, 42, 43, 44, 45, 46, 47]);
        assert_eq!(first(DropReason::NoRoute), [0, 1, 2]);
        assert_eq!(log.number, 27);
    }
}
