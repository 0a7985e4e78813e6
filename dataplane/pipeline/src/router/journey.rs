//! Journey of a batch through the stages.

use millrace_forward::NO_ADJACENCY;
use millrace_plugin_abi::Position;
use millrace_units::Instant;

use crate::fast_path::bare::leave_bare;
use crate::forward::known::leave_known;
use crate::ingress::steer::{steer, steer_pinned};
use crate::observe::trace::{Pick, Probe};
use crate::ports::DeviceId;
use crate::router::Router;
use crate::router::trace_steps::{write_classified, write_routed};
use crate::work::{Fate, Work};

impl Router {
    /// Takes a batch received by `device` through all stages, and leaves `work` empty.
    pub fn process(&mut self, device: DeviceId, work: &mut Work, now: Instant) {
        self.arrive(device, work, now);
        proceed(self, work, now);
    }

    /// Runs the receive and parse stages for a batch received by `device`.
    #[inline(always)]
    pub(super) fn arrive(&mut self, device: DeviceId, work: &mut Work, now: Instant) {
        // The counter wraps. A clear sets it below zero if this worker has taken over more packets from other
        // workers than it holds and has handed over.
        self.observation.totals.received =
            self.observation.totals.received.wrapping_add(work.packets.len() as u64);
        self.arrivals.0.note(&work.packets);
        self.arrivals.1 = Some(device);
        work.begin();
        self.ingress().receive(device, work, now);
        if self.observation.is_tapped() {
            self.observation.tap_arrivals(work, &self.pool, now);
        }
    }

    /// Runs the stages from classify on, then takes all packets that they make or release through the stages.
    pub(crate) fn journey(&mut self, work: &mut Work, now: Instant) {
        self.stages(work, now);
        self.follow_up(now);
        self.classification().keep_flows(now, false);
    }

    /// Runs the stages from classify on.
    #[inline(always)]
    pub(crate) fn stages(&mut self, work: &mut Work, now: Instant) {
        let leaves = self.settle(work, (), now);
        if !(leaves && self.queueing().leave(work)) {
            self.disposal().dispose(work, (), now);
        }
    }

    /// Runs the stages from classify up to dispose, but not dispose itself. They decide the fates of the
    /// packets. Returns whether all packets (except those [aside](Work::aside)) are finished frames that
    /// [`Leaving`](crate::work::Leaving) has counted.
    #[inline(always)]
    pub(crate) fn settle<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) -> bool {
        let open = probe.mark().filter(|_| work.fates[0].is_open());
        let before = open.map(|mark| (mark, self.classifier.counts));
        self.gates.groups.begin();
        let is_bare = !self.classifier.remembers()
            && !self.observation.is_tapped()
            && !self.gates.is_bound()
            && !self.gates.has_barriers()
            && leave_bare(&mut self.forwarding, &self.ports, work);
        let is_express = is_bare || self.classify_or_express(work, probe, now);
        if let Some((mark, before)) = before {
            write_classified(self, mark, work, before, now);
        }
        if !is_express {
            work.note_keys();
            self.settle_from(work, (Position::Early, 0), probe, now);
            return false;
        }
        if !self.gates.groups.is_empty() {
            return self.settle_bound(work, probe, now);
        }
        if let Some(mark) = probe.mark().filter(|_| work.fates[0] == Fate::Queue) {
            write_routed(self, mark, work, now);
        }
        self.offer(work, now);
        true
    }

    /// Classifies a batch. Packets of known flows take the fast path if possible. Returns whether all packets
    /// did.
    #[inline(always)]
    fn classify_or_express<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) -> bool {
        let is_general = self.observation.is_tapped() || self.gates.has_barriers();
        if is_general || !self.classifier.remembers() {
            self.classification().classify(work, now);
            return false;
        }
        let all = match probe.mark() {
            None => self.fast_path().express(work, now),
            // For one packet, a single lookup costs less than a batch lookup.
            Some(_) => self.fast_path().express_alone(work, now),
        };
        if !all {
            self.classification().classify_left(work, now);
        }
        all
    }

    /// Takes packets of known flows through their instances at gates of positions `early` and `late`. Returns
    /// whether all packets are finished frames.
    fn settle_bound<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) -> bool {
        if self.gates.looks_at_packets() {
            work.note_keys();
        }
        self.gate_run().run((Position::Early, 0), work, probe, now);
        self.gate_run().run((Position::Late, 0), work, probe, now);
        self.forward_known(work, probe, now);
        self.offer(work, now);
        let all = work.leaving.packets() + work.aside as u64 == work.packets.len() as u64;
        if !all {
            work.note_keys();
        }
        all
    }

    /// Runs the gates and the forward stage, without dispose, and decides the fates of the packets. Starts at
    /// a position with the binding whose number at this position of the path is `stage`.
    pub(crate) fn settle_from<P: Probe>(
        &mut self,
        work: &mut Work,
        (position, stage): (Position, u16),
        probe: P,
        now: Instant,
    ) {
        let is_whole = (position, stage) == (Position::Early, 0);
        if is_whole && self.gates.plugins().bindings.hands_over() && self.handover.is_some() {
            steer_pinned(&self.gates.plugins().paths, work);
        }
        self.gates.group(work);
        let from = |here: Position| if here == position { stage } else { 0 };
        for here in [Position::Early, Position::Route, Position::Late] {
            if here >= position {
                self.gate_run().run((here, from(here)), work, probe, now);
            }
        }
        if position <= Position::Late {
            self.gate_run().make_copies(work, probe, now);
            self.forward(work, probe, now);
            if is_whole {
                // Packets that have waited don't pass here: `work` holds no flow records for them.
                self.fast_path().note_adjacencies(work);
            }
        }
        self.gate_run().run((Position::Queue, from(Position::Queue)), work, probe, now);
        if is_whole {
            // A packet may wait at a gate of position `queue`, so its flow is offered no earlier.
            self.offer(work, now);
        }
        if position == Position::Queue {
            self.forwarder().decide_late(work);
        }
    }

    /// Offers the flows of a batch to the flow cache, if there is an offload.
    #[inline(always)]
    fn offer(&mut self, work: &mut Work, now: Instant) {
        if let Some(mut offload) = self.offload_stage() {
            offload.offer(work, now);
        }
    }

    /// Decides the fates of open packets. Packets with an adjacency become finished frames; other packets get
    /// a route, an egress port and a MAC address.
    pub(crate) fn forward<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        if self.observation.is_tapped() || self.gates.has_barriers() {
            // While a capture runs, all packets take the general path, which captures observe. Finished frames would
            // pass the barriers at `queue` gates.
            work.adjacencies.all_mut().fill(NO_ADJACENCY);
        }
        work.leaving.begin();
        self.forward_known(work, probe, now);
    }

    /// Does the same as [`forward`](Self::forward), for a batch that no capture observes.
    /// [`Leaving`](crate::work::Leaving) may have counted some of its frames already.
    #[inline]
    pub(crate) fn forward_known<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        let is_observed = |fate| matches!(fate, Fate::Forward | Fate::Queue);
        let mark = probe.mark().filter(|_| is_observed(work.fates[0]));
        if !leave_known(&mut self.forwarding.adjacencies, work) {
            work.note_keys();
            self.forwarder().decide_all(work);
        }
        if let Some(mark) = mark {
            write_routed(self, mark, work, now);
        }
    }
}

/// Takes a batch that has passed the parse stage through the others.
#[inline(always)]
pub(super) fn proceed(router: &mut Router, work: &mut Work, now: Instant) {
    if let Some(tracer) = &mut router.observation.trace
        && !tracer.passes(work.packets.len())
    {
        return router.journey_watched(work, Pick::Chosen, now);
    }
    if let Some(handover) = &router.handover {
        steer(&router.classifier.flows, handover, &router.ports, work);
    }
    router.journey(work, now);
}
