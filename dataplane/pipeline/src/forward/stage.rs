//! Forward stage over a batch.

use millrace_forward::NO_ADJACENCY;
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::fast_path::express::leave_known;
use crate::forward::Forwarder;
use crate::forward::tables::ForwardingTables;
use crate::observe::trace::Probe;
use crate::router::Router;
use crate::work::{Fate, Work};

impl Router {
    /// Decides the fates of open packets: packets with an adjacency become finished frames, others get a
    /// route, an egress port and a link address.
    pub(crate) fn forward<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        if self.observation.is_tapped() {
            // Captures see packets on the general path only.
            work.adjacencies.all_mut().fill(NO_ADJACENCY);
        }
        work.leaving.begin();
        self.forward_known(work, probe, now);
    }

    /// As [`forward`](Self::forward), for a batch that no capture sees. [`Leaving`](crate::work::Leaving) may
    /// have counted some of its frames already.
    #[inline]
    pub(crate) fn forward_known<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        let is_observed = |fate| matches!(fate, Fate::Forward | Fate::Queue);
        let mark = probe.mark().filter(|_| is_observed(work.fates[0]));
        if !leave_known(&mut self.forwarding.adjacencies, work) {
            work.note_keys();
            self.decide(work);
        }
        if let Some(mark) = mark {
            self.write_routed(mark, work, now);
        }
    }

    /// Decides the fates of open packets: their routes, egress ports and link addresses.
    fn decide(&mut self, work: &mut Work) {
        let mut forwarder = Forwarder {
            fib: &self.forwarding.fib,
            filter_routes: self.gates.routes(),
            neighbours: &mut self.forwarding.neighbours,
            ports: &self.ports,
        };
        let Work { packets, keys, fates, destinations, .. } = work;
        let each = packets.iter_mut().zip(fates.all_mut()).enumerate();
        for (index, (packet, fate)) in each.filter(|(_, (_, fate))| fate.is_open()) {
            let decision = forwarder.decide(packet, &keys[index]);
            *fate = decision.fate;
            destinations[index] = decision.destination;
        }
    }

    /// Decides the fates of packets that an instance kept at a gate of `queue` while their neighbour was
    /// unknown.
    pub(crate) fn decide_late(&mut self, work: &mut Work) {
        let Self { gates, ports, forwarding: ForwardingTables { fib, neighbours, .. }, .. } = self;
        let mut forwarder = Forwarder { fib, filter_routes: gates.routes(), neighbours, ports };
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            let is_decided = packet.is_framed || work.destinations[index] != MacAddr::ZERO;
            if is_decided || !work.fates[index].is_open() {
                continue;
            }
            let decision = forwarder.decide(packet, &work.keys[index]);
            (work.fates[index], work.destinations[index]) = (decision.fate, decision.destination);
        }
    }
}
