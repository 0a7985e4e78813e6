//! Neighbours: what control says of them, what it is told, and what workers tell each other.

use std::net::IpAddr;

use millrace_forward::{NeighbourKey, NeighbourState, Solicited};
use millrace_units::{Instant, PortId};

use crate::command::{Event, NeighbourChange, NeighbourKnowledge};
use crate::dispose::EVENT_LIMIT;
use crate::router::Router;

impl Router {
    /// Takes up what control says of neighbours.
    pub(crate) fn set_neighbours(&mut self, changes: &[NeighbourChange], now: Instant) {
        for change in changes {
            let key = NeighbourKey { port: change.port, address: change.address };
            match change.state {
                NeighbourKnowledge::Known(mac) => self.learn(key, NeighbourState::Reachable(mac), now),
                NeighbourKnowledge::Failed => {
                    self.learn(key, NeighbourState::Failed, now);
                    // The next packet asks the kernel anew.
                    self.forget_neighbour(key);
                }
                NeighbourKnowledge::Forgotten => self.forget_neighbour(key),
                NeighbourKnowledge::Static(mac) => {
                    self.own.resolver.set_static(key, mac, &mut self.own.actions);
                }
                NeighbourKnowledge::Wanted => self.find_out(key, now),
                NeighbourKnowledge::Used => self.used_elsewhere(key, now),
            }
        }
        self.follow_up(now);
    }

    /// Nothing is known of a neighbour any more.
    pub(crate) fn forget_neighbour(&mut self, key: NeighbourKey) {
        if let Some(NeighbourState::Reachable(_)) = self.neighbours.remove(key) {
            self.neighbour_moved(key);
        }
    }

    /// The neighbours in use that others than this worker's own stack look after; that asks for its own again.
    pub(crate) fn take_used_neighbours(&mut self, now: Instant) -> Vec<(PortId, IpAddr)> {
        let neighbours = &mut self.neighbours;
        self.adjacencies.take_used(|key| _ = neighbours.lookup(key.port, key.address));
        let mut used = Vec::new();
        let (ports, own, handover) = (&self.ports, &mut self.own, &self.handover);
        let here = |device| handover.as_ref().is_none_or(|handover| handover.owns(device));
        self.neighbours.drain_used(|key| match ports.get(key.port) {
            Some(entry) if entry.is_kernel() || !here(entry.settings.device) => {
                used.push((key.port, key.address));
            }
            Some(_) => own.resolver.used(key, now, &mut own.actions),
            None => {}
        });
        used
    }

    /// Tells control, and by way of it other workers, of a neighbour of a port without a kernel whose device is here.
    pub(crate) fn tell_others(&mut self, key: NeighbourKey, state: NeighbourKnowledge) {
        let here = |port: PortId| self.ports.get(port).is_none_or(|entry| self.has(entry.settings.device));
        if here(key.port) && self.events.len() < EVENT_LIMIT {
            let change = NeighbourChange { port: key.port, address: key.address, state };
            self.events.push_back(Event::Neighbour(change));
        }
    }

    /// Finds out about a neighbour that packets at another worker wait for.
    pub(crate) fn find_out(&mut self, key: NeighbourKey, now: Instant) {
        match self.own.resolver.solicit(key, now, &mut self.own.actions) {
            Solicited::Known(mac) => self.tell_others(key, NeighbourKnowledge::Known(mac)),
            Solicited::Failed => self.tell_others(key, NeighbourKnowledge::Failed),
            // Who waits is told when more is known, or waits in vain.
            Solicited::Pending | Solicited::Limited => {}
        }
    }

    /// Notes that another worker has sent packets to a neighbour.
    pub(crate) fn used_elsewhere(&mut self, key: NeighbourKey, now: Instant) {
        match self.neighbours.get(key) {
            Some(NeighbourState::Reachable(_)) => self.own.resolver.used(key, now, &mut self.own.actions),
            _ => self.tell_others(key, NeighbourKnowledge::Forgotten),
        }
    }
}
