//! Runs of the instances at gates over a batch.

use millrace_plugin_abi::Position;
use millrace_units::Instant;

use crate::gates::Outlet;
use crate::observe::Observation;
use crate::observe::capture::{Both, CaptureSink, GateTap};
use crate::observe::trace::{GateWriter, Probe, TraceStep};
use crate::router::Router;
use crate::router::scratch::Scratch;
use crate::work::Work;

impl Router {
    /// Runs the instances at a position over the batch that was grouped last, from stage number `stage` on.
    pub(crate) fn run_gates<P: Probe>(
        &mut self,
        (position, stage): (Position, u16),
        work: &mut Work,
        probe: P,
        now: Instant,
    ) {
        let Self { gates, pool, observation: Observation { captures, trace, .. }, .. } = self;
        let mut outlet = Outlet::new(&self.forwarding.fib, &self.ports, pool, &mut self.pending.resumed);
        let writer = probe.mark().zip(trace.as_deref_mut());
        let writer = writer.map(|(mark, tracer)| GateWriter::new(tracer, mark, work.packets.at(0), now));
        let taps_gates = captures.iter().any(CaptureSink::is_at_gates);
        match (writer, taps_gates) {
            (None, false) => gates.run(position, stage, work, &mut outlet, now),
            (None, true) => {
                let mut tap = GateTap { captures, pool, now };
                gates.run_watched((position, stage), work, &mut outlet, now, &mut tap);
            }
            (Some(mut writer), false) => {
                gates.run_watched((position, stage), work, &mut outlet, now, &mut writer);
            }
            (Some(writer), true) => {
                let mut both = Both(GateTap { captures, pool, now }, writer);
                gates.run_watched((position, stage), work, &mut outlet, now, &mut both);
            }
        }
        self.observation.totals.created.copies += outlet.copies;
    }

    /// Makes the copies that filters request, and gives copies at `copy` gates to the instances there.
    #[inline]
    pub(crate) fn make_copies<P: Probe>(&mut self, work: &Work, probe: P, now: Instant) {
        let before = self.observation.totals.created.copies;
        let Self { gates, pool, scratch: Scratch { copies, .. }, observation, .. } = self;
        let captures = &mut observation.captures;
        let mut outlet = Outlet::new(&self.forwarding.fib, &self.ports, pool, &mut self.pending.resumed);
        let copies = match captures.iter().any(CaptureSink::is_at_gates) {
            false => gates.run_copies(work, copies, &mut outlet, now, &mut ()),
            true => {
                let mut tap = GateTap { captures, pool, now };
                gates.run_copies(work, copies, &mut outlet, now, &mut tap)
            }
        };
        self.observation.totals.created.copies += outlet.copies + copies.made;
        self.observation.totals.consumed += copies.made - copies.kept;
        self.observation.totals.created.copies +=
            self.gates.replicate(work, &self.pool, &mut self.pending.resumed);
        let copies = (self.observation.totals.created.copies - before) as u32;
        if let Some(mark) = probe.mark()
            && copies > 0
        {
            self.observation.write(mark, TraceStep::Copied(copies), now);
        }
    }
}
