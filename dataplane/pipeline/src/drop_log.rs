//! The last packets that were dropped, for each reason.
//!
//! Who drops a packet notes its headers here. Of one turn of the worker the first [`DROPS_KEPT`] of a reason are noted, and the
//! rest is only counted: a flood of drops costs no more than a glance each.

use millrace_packet::{DropReason, Packet};
use millrace_plugin::{BindingId, WorkerPlugins};
use millrace_units::{Instant, PortId};

use crate::gate_tables::WorkerTable;
use crate::parse::ROUTER;
use crate::router::Router;
use crate::trace::Head;

/// Packets that are kept for each reason.
pub const DROPS_KEPT: usize = 8;
/// Bindings that are kept with a packet.
const BINDINGS: usize = 4;

/// Which packets are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DropQuery {
    /// Those of one reason; of all, if `None`.
    pub reason: Option<DropReason>,
    /// Those with higher numbers than this.
    pub after: u64,
}

/// A packet that was dropped.
#[derive(Clone, Copy, Debug)]
pub struct DroppedPacket {
    /// Its number among those that this worker noted.
    pub number: u64,
    /// When the worker's turn began, by its clock.
    pub at: Instant,
    /// Why it was dropped.
    pub reason: DropReason,
    /// The port that it came in by; [`PortId::NONE`] for the router's own.
    pub port: PortId,
    /// The port that it was to leave by, if that was decided.
    pub out_port: PortId,
    /// Its length.
    pub length: u32,
    /// Where its network header starts; 0 for packets without a link header.
    pub network: u16,
    /// Its flow's hash.
    pub hash: u32,
    /// The bindings that may have dropped it: one if it is known.
    bindings: [Option<BindingId>; BINDINGS],
    /// Its first bytes.
    pub head: Head,
}

impl DroppedPacket {
    /// The bindings that may have dropped it: one if it is known.
    pub fn bindings(&self) -> impl Iterator<Item = BindingId> {
        self.bindings.into_iter().flatten()
    }
}

/// The last packets of a reason.
#[derive(Debug)]
struct Last {
    /// The turn in which packets were noted last, and how many may still be in it.
    turn: Instant,
    left: u8,
    /// The place of the next one.
    next: u8,
    packets: Vec<DroppedPacket>,
}

/// The last packets of all reasons.
#[derive(Debug)]
pub(crate) struct DropLog {
    now: Instant,
    number: u64,
    reasons: Vec<Last>,
}

impl Default for DropLog {
    fn default() -> Self {
        let last = |_: &DropReason| Last {
            turn: Instant::ZERO,
            left: DROPS_KEPT as u8,
            next: 0,
            packets: Vec::with_capacity(DROPS_KEPT),
        };
        Self { now: Instant::ZERO, number: 0, reasons: DropReason::ALL.iter().map(last).collect() }
    }
}

impl DropLog {
    /// A turn of the worker begins.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// When the turn began.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Notes a packet that is dropped.
    #[inline]
    pub fn note(&mut self, packet: &Packet, reason: DropReason, plugins: &WorkerPlugins<WorkerTable>) {
        let Some(last) = self.reasons.get_mut(reason.index()) else { return };
        if last.turn != self.now {
            (last.turn, last.left) = (self.now, DROPS_KEPT as u8);
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
            // Its memory is there.
            None => last.packets.push(dropped),
        }
        last.next = (last.next + 1) % DROPS_KEPT as u8;
    }
}

impl Router {
    /// The packets that are asked for, in the order in which they were dropped.
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
    fn the_last_packets_of_each_reason_are_kept_of_a_turn_the_first() {
        let pool = Pool::new(4).unwrap();
        let (mut log, plugins) = (DropLog::default(), WorkerPlugins::new());
        let drop = |log: &mut DropLog, first: u8, reason| {
            let mut packet = pool.packet_from(&[first; 60]).unwrap();
            packet.port = PortId(2);
            log.note(&packet, reason, &plugins);
        };
        for turn in 0..3 {
            log.begin(Instant::ZERO + Duration::from_micros(turn));
            (0..20).for_each(|number| drop(&mut log, turn as u8 * 20 + number, DropReason::Filter));
            drop(&mut log, turn as u8, DropReason::NoRoute);
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
