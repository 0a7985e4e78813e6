//! Forward stage of a batch, on the fast path for packets with an adjacency.

use millrace_forward::NO_ADJACENCY;
use millrace_units::Instant;

use crate::fast_path::express::leave_known;
use crate::forward::Forwarder;
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
            self.forwarder().decide_all(work);
        }
        if let Some(mark) = mark {
            self.write_routed(mark, work, now);
        }
    }

    /// Returns the tables that the forward stage reads.
    #[inline(always)]
    pub(crate) fn forwarder(&mut self) -> Forwarder<'_> {
        Forwarder {
            fib: &self.forwarding.fib,
            filter_routes: self.gates.routes(),
            neighbours: &mut self.forwarding.neighbours,
            ports: &self.ports,
        }
    }
}
