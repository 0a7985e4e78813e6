//! Neighbour states: changes from control, reports to control, and notifications between workers.

use millrace_forward::{NeighbourKey, NeighbourState, Origin, Solicited};
use millrace_units::{Instant, PortId};

use crate::forward::changes::{NeighbourChange, NeighbourKnowledge, UsedNeighbours};
use crate::observe::event::{EVENT_LIMIT, Event};
use crate::router::Router;

/// Maximum number of used neighbours reported between two batches.
const USED_AT_ONCE: usize = 256;

impl Router {
    /// Applies changes of neighbours from control.
    pub(crate) fn set_neighbours(&mut self, changes: &[NeighbourChange], now: Instant) {
        for change in changes {
            let key = NeighbourKey { port: change.port, address: change.address };
            match change.state {
                NeighbourKnowledge::Known(mac) => self.learn(key, NeighbourState::Reachable(mac), now),
                NeighbourKnowledge::Failed => {
                    self.learn(key, NeighbourState::Failed, now);
                    // Without a state, the next packet makes the kernel resolve the neighbour again.
                    self.forget_neighbour(key);
                }
                NeighbourKnowledge::Forgotten => self.forget_neighbour(key),
                NeighbourKnowledge::Static(mac) => {
                    self.punt.own.resolver.set_static(key, mac, &mut self.punt.own.actions);
                }
                NeighbourKnowledge::Wanted => self.find_out(key, now),
                NeighbourKnowledge::Used => self.used_elsewhere(key, now),
            }
        }
        self.follow_up(now);
    }

    /// Removes the state of a neighbour.
    pub(crate) fn forget_neighbour(&mut self, key: NeighbourKey) {
        if let Some(NeighbourState::Reachable(_)) = self.forwarding.neighbours.remove(key) {
            self.neighbour_moved(key);
        }
    }

    /// Returns a bounded number of neighbours that were used since the last call, and that the kernel or
    /// another worker resolves. Reports the other used neighbours to the own stack of this worker, which
    /// confirms them itself.
    pub(crate) fn take_used_neighbours(&mut self, now: Instant) -> UsedNeighbours {
        let neighbours = &mut self.forwarding.neighbours;
        let note = |key: NeighbourKey| _ = neighbours.lookup(key.port, key.address);
        let more_behind = self.forwarding.adjacencies.take_used(USED_AT_ONCE, note);
        let mut used = Vec::new();
        let (ports, own, handover) = (&self.ports, &mut self.punt.own, &self.handover);
        let here = |device| handover.as_ref().is_none_or(|handover| handover.owns(device));
        let more = self.forwarding.neighbours.drain_used(USED_AT_ONCE, |key| match ports.get(key.port) {
            Some(entry) if entry.is_kernel() || !here(entry.settings.device) => {
                used.push((key.port, key.address));
            }
            Some(_) => own.resolver.used(key, now, &mut own.actions),
            None => {}
        });
        UsedNeighbours { used, more: more || more_behind }
    }

    /// Reports the state of a neighbour to control, which notifies the other workers. Only for ports without
    /// a kernel whose device this worker owns.
    pub(crate) fn tell_others(&mut self, key: NeighbourKey, state: NeighbourKnowledge) {
        let here = |port: PortId| self.ports.get(port).is_none_or(|entry| self.has(entry.settings.device));
        if here(key.port) && self.observation.events.len() < EVENT_LIMIT {
            let change = NeighbourChange { port: key.port, address: key.address, state };
            self.observation.events.push_back(Event::Neighbour(change));
        }
    }

    /// Resolves a neighbour for which another worker holds packets.
    pub(crate) fn find_out(&mut self, key: NeighbourKey, now: Instant) {
        let origin = Origin { port: PortId::NONE, source: None };
        match self.punt.own.resolver.solicit(key, origin, now, &mut self.punt.own.actions) {
            Solicited::Known(mac) => self.tell_others(key, NeighbourKnowledge::Known(mac)),
            Solicited::Failed => self.tell_others(key, NeighbourKnowledge::Failed),
            // The other worker is notified after the resolution, or its packets time out.
            Solicited::Pending | Solicited::Limited => {}
        }
    }

    /// Notes that another worker has sent packets to a neighbour.
    pub(crate) fn used_elsewhere(&mut self, key: NeighbourKey, now: Instant) {
        match self.forwarding.neighbours.get(key) {
            Some(NeighbourState::Reachable(_)) => {
                self.punt.own.resolver.used(key, now, &mut self.punt.own.actions)
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

    fn key(number: u32) -> NeighbourKey {
        NeighbourKey { port: PortId(1), address: Ipv4Addr::from(number).into() }
    }

    fn router() -> (Pool, Router) {
        let (pool, fib) = (Pool::new(512).unwrap(), SharedFib::new().unwrap());
        (pool.clone(), Router::new(pool, fib.reader(), 1).unwrap())
    }

    #[test]
    fn neighbours_in_use_are_told_in_pieces_until_there_are_no_more() {
        let (_, mut router) = router();
        for number in 0..1000 {
            router.learn(key(number), NeighbourState::Reachable(MacAddr([2; 6])), Instant::ZERO);
            router.forwarding.neighbours.lookup(PortId(1), key(number).address);
        }
        let mut pieces = 1;
        // The port of these neighbours does not exist, so none is reported; they count towards the limit
        // nevertheless.
        while router.take_used_neighbours(Instant::ZERO).more {
            pieces += 1;
        }
        assert_eq!(pieces, 1000_usize.div_ceil(USED_AT_ONCE));
        assert!(!router.take_used_neighbours(Instant::ZERO).more);
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
            assert!(router.next_timer(late).is_some_and(|due| due <= late), "another turn follows at once");
            router.run_timers(late);
            left.push(router.forwarding.hold.len());
        }
        assert_eq!(left, [136, 72, 8, 0]);
        assert_eq!(router.observation.totals.dropped, 200);
    }
}
