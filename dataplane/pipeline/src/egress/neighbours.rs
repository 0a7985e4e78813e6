//! Neighbour resolution: the states of neighbours, the packets held for them, and the reports to control and
//! other workers.

use millrace_classify::ChangeLog;
use millrace_forward::{Action, IcmpError, NeighbourKey, NeighbourState, Origin, Solicited};
use millrace_packet::{DropReason, Packet};
use millrace_units::{Instant, PortId};

use crate::egress::dispose::Disposal;
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge, UsedNeighbours};
use crate::forward::tables::ForwardingTables;
use crate::observe::event::Event;
use crate::offloaded_flows::OffloadedFlows;

/// Maximum number of used neighbours reported between two batches.
const USED_AT_ONCE: usize = 256;

/// State that a change of a neighbour affects.
pub(crate) struct NeighbourResolution<'a> {
    /// Dispose stage, which ends or refuses held packets.
    pub disposal: Disposal<'a>,
    /// Generations of the flow records.
    pub changes: &'a mut ChangeLog,
    /// Offloaded flows; `None` without offload.
    pub offload: Option<&'a mut OffloadedFlows>,
}

impl NeighbourResolution<'_> {
    /// Applies changes of neighbours from control.
    pub fn set_all(&mut self, changes: &[NeighbourChange], now: Instant) {
        for change in changes {
            let key = NeighbourKey { port: change.port, address: change.address };
            match change.state {
                NeighbourKnowledge::Known(mac) => self.learn(key, NeighbourState::Reachable(mac), now),
                NeighbourKnowledge::Failed => {
                    self.learn(key, NeighbourState::Failed, now);
                    // Once the state is removed, the next packet makes the kernel resolve the neighbour
                    // again.
                    self.forget(key);
                }
                NeighbourKnowledge::Forgotten => self.forget(key),
                NeighbourKnowledge::Static(mac) => {
                    let own = &mut self.disposal.punt.own;
                    own.resolver.set_static(key, mac, &mut own.actions);
                }
                NeighbourKnowledge::Wanted => self.find_out(key, now),
                NeighbourKnowledge::Used => self.used_elsewhere(key, now),
            }
        }
    }

    /// Records the state of a neighbour, and releases the packets held for it.
    pub fn learn(&mut self, key: NeighbourKey, state: NeighbourState, now: Instant) {
        let known = self.disposal.forwarding.neighbours.get(key);
        if matches!(known, Some(NeighbourState::Reachable(_))) && known != Some(state) {
            self.moved(key);
        }
        // A full table doesn't accept the new neighbour; packets held for it then time out.
        if let Ok(Some(evicted)) = self.disposal.forwarding.neighbours.upsert(key, state) {
            self.give_up(evicted, DropReason::NeighbourQueueFull);
        }
        let released: Vec<Packet> = self.disposal.forwarding.hold.release(key).collect();
        match state {
            NeighbourState::Reachable(_) => self.disposal.pending.waited.extend(released),
            NeighbourState::Incomplete | NeighbourState::Failed => {
                for packet in released {
                    let (error, reason) = (IcmpError::HostUnreachable, DropReason::NeighbourFailed);
                    self.disposal.refuse(packet, error, reason, now);
                }
            }
        }
    }

    /// Removes the state of a neighbour.
    fn forget(&mut self, key: NeighbourKey) {
        if let Some(NeighbourState::Reachable(_)) = self.disposal.forwarding.neighbours.remove(key) {
            self.moved(key);
        }
    }

    /// Invalidates adjacencies and flow cache entries after a neighbour's MAC address has changed.
    fn moved(&mut self, key: NeighbourKey) {
        self.disposal.forwarding.forget_adjacencies(self.changes);
        if let Some(offload) = &mut self.offload {
            offload.neighbour_moved(key);
        }
    }

    /// Drops the packets held for a neighbour.
    fn give_up(&mut self, key: NeighbourKey, reason: DropReason) {
        let released: Vec<Packet> = self.disposal.forwarding.hold.release(key).collect();
        released.into_iter().for_each(|packet| self.disposal.drop_packet(packet, reason));
    }

    /// Carries out the actions of the neighbour resolver.
    pub fn act(&mut self, now: Instant) {
        let mut actions = std::mem::take(&mut self.disposal.punt.own.actions);
        for action in actions.drain(..) {
            match action {
                Action::SendRequest { key, to } => {
                    self.disposal.punt_stage().with_own(now, |own, context| own.request(key, to, context))
                }
                Action::Resolved { key, mac } => {
                    self.tell_others(key, NeighbourKnowledge::Known(mac));
                    self.learn(key, NeighbourState::Reachable(mac), now);
                }
                Action::Failed { key } => {
                    self.tell_others(key, NeighbourKnowledge::Failed);
                    self.learn(key, NeighbourState::Failed, now);
                }
                Action::Forgotten { key } => {
                    self.tell_others(key, NeighbourKnowledge::Forgotten);
                    self.forget(key);
                    self.give_up(key, DropReason::NeighbourFailed);
                }
                Action::Conflict { key, mac, defend } => {
                    if defend {
                        self.disposal.punt_stage().with_own(now, |own, context| own.announce(key, context));
                    }
                    let conflict = Event::AddressConflict(key.port, key.address, mac);
                    self.disposal.queueing.observation.report_event(conflict);
                }
            }
        }
        if self.disposal.punt.own.actions.is_empty() {
            self.disposal.punt.own.actions = actions;
        }
    }

    /// Returns a bounded number of neighbours that this worker has used since the last call, and that the
    /// kernel or another worker resolves. The neighbours that this worker resolves itself are not returned:
    /// the call reports them to this worker's own stack, which confirms their addresses.
    pub fn take_used(&mut self, now: Instant) -> UsedNeighbours {
        let Disposal { queueing, forwarding, punt, .. } = &mut self.disposal;
        let ForwardingTables { neighbours, adjacencies, .. } = &mut **forwarding;
        let note = |key: NeighbourKey| _ = neighbours.lookup(key.port, key.address);
        let more_behind = adjacencies.take_used(USED_AT_ONCE, note);
        let mut used = Vec::new();
        let own = &mut punt.own;
        let more = neighbours.drain_used(USED_AT_ONCE, |key| match queueing.ports.get(key.port) {
            Some(entry) if entry.is_kernel() || !queueing.owns(entry.settings.device) => {
                used.push((key.port, key.address));
            }
            Some(_) => own.resolver.used(key, now, &mut own.actions),
            None => {}
        });
        UsedNeighbours { used, more: more || more_behind }
    }

    /// Reports the state of a neighbour to control, which notifies the other workers. Does nothing if another
    /// worker owns the port's device.
    fn tell_others(&mut self, key: NeighbourKey, state: NeighbourKnowledge) {
        let queueing = &mut self.disposal.queueing;
        let device = queueing.ports.get(key.port).map(|entry| entry.settings.device);
        if device.is_none_or(|device| queueing.owns(device)) {
            let change = NeighbourChange { port: key.port, address: key.address, state };
            queueing.observation.report_event(Event::Neighbour(change));
        }
    }

    /// Resolves a neighbour for which another worker holds packets.
    fn find_out(&mut self, key: NeighbourKey, now: Instant) {
        let origin = Origin { port: PortId::NONE, source: None };
        let own = &mut self.disposal.punt.own;
        match own.resolver.solicit(key, origin, now, &mut own.actions) {
            Solicited::Known(mac) => self.tell_others(key, NeighbourKnowledge::Known(mac)),
            Solicited::Failed => self.tell_others(key, NeighbourKnowledge::Failed),
            // This worker notifies the other worker after the resolution. Without an answer, that worker's
            // packets time out.
            Solicited::Pending | Solicited::Limited => {}
        }
    }

    /// Notes that another worker has sent packets to a neighbour.
    fn used_elsewhere(&mut self, key: NeighbourKey, now: Instant) {
        match self.disposal.forwarding.neighbours.get(key) {
            Some(NeighbourState::Reachable(_)) => {
                let own = &mut self.disposal.punt.own;
                own.resolver.used(key, now, &mut own.actions)
            }
            _ => self.tell_others(key, NeighbourKnowledge::Forgotten),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use millrace_forward::SharedFib;
    use millrace_packet::Pool;
    use millrace_wire::MacAddr;

    use super::*;
    use crate::router::Router;

    fn key(number: u32) -> NeighbourKey {
        NeighbourKey { port: PortId(1), address: Ipv4Addr::from(number).into() }
    }

    fn router() -> (Pool, Router) {
        let (pool, fib) = (Pool::new(512).unwrap(), SharedFib::new().unwrap());
        (pool.clone(), Router::new(pool, fib.reader(), 1).unwrap())
    }

    #[test]
    fn neighbours_in_use_are_reported_in_pieces_until_the_end() {
        let (_, mut router) = router();
        for number in 0..1000 {
            router.neighbour_resolution().learn(
                key(number),
                NeighbourState::Reachable(MacAddr([2; 6])),
                Instant::ZERO,
            );
            router.forwarding.neighbours.lookup(PortId(1), key(number).address);
        }
        let mut pieces = 1;
        // The port of these neighbours does not exist, so none is reported. They count towards the limit of a
        // piece all the same.
        while router.neighbour_resolution().take_used(Instant::ZERO).more {
            pieces += 1;
        }
        assert_eq!(pieces, 1000_usize.div_ceil(USED_AT_ONCE));
        assert!(!router.neighbour_resolution().take_used(Instant::ZERO).more);
    }

    #[test]
    fn packets_that_have_waited_too_long_are_refused_in_pieces() {
        let (pool, mut router) = router();
        for number in 0..200 {
            let packet = pool.packet_from(&[0; 60]).unwrap();
            router.forwarding.hold.hold(key(number), packet, Instant::ZERO);
        }
        let late = Instant::ZERO + Duration::from_secs(10);
        let mut left = Vec::new();
        while !router.forwarding.hold.is_empty() {
            assert!(
                router.next_timer(late).is_some_and(|due| due <= late),
                "another iteration follows at once"
            );
            router.run_timers(late);
            left.push(router.forwarding.hold.len());
        }
        assert_eq!(left, [136, 72, 8, 0]);
        assert_eq!(router.observation.totals.dropped, 200);
    }
}
