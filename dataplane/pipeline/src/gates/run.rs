//! Gates stage of a batch: runs instances, makes copies, and takes back packets that instances release.

use millrace_forward::NO_ADJACENCY;
use millrace_packet::Pool;
use millrace_plugin::{Released, Waiting};
use millrace_plugin_abi::Position;
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::forward::fib::Fib;
use crate::gates::fates::fate_at_end;
use crate::gates::{Copies, Gates, Outlet};
use crate::observe::Observation;
use crate::observe::capture::{Both, CaptureSink, GateTap};
use crate::observe::trace::{GateWriter, Probe, TraceStep};
use crate::pending::Pending;
use crate::ports::PortTable;
use crate::work::{Fate, Work};

/// State of the gates stage: the instances, and the tables and memory that their results need.
pub(crate) struct GateRun<'a> {
    pub gates: &'a mut Gates,
    pub pool: &'a Pool,
    pub fib: &'a Fib,
    pub ports: &'a mut PortTable,
    pub observation: &'a mut Observation,
    pub pending: &'a mut Pending,
    /// Scratch memory, reused for each batch.
    pub copies: &'a mut Copies,
}

impl GateRun<'_> {
    /// Runs the instances at a position over the groups of the batch. `stage`: index of the
    /// first binding to run, among the bindings of a path at the position.
    pub fn run<P: Probe>(
        &mut self,
        (position, stage): (Position, u16),
        work: &mut Work,
        probe: P,
        now: Instant,
    ) {
        let (gates, pool) = (&mut *self.gates, self.pool);
        let Observation { captures, trace, .. } = &mut *self.observation;
        let mut outlet = Outlet::new(self.fib, self.ports, pool, &mut self.pending.resumed);
        let writer = probe.mark().zip(trace.as_deref_mut());
        let writer = writer.map(|(mark, tracer)| GateWriter::new(tracer, mark, work.packets.at(0), now));
        let taps_gates = captures.iter().any(CaptureSink::is_at_gates);
        match (writer, taps_gates) {
            (None, false) => gates.run_watched((position, stage), work, &mut outlet, now, &mut ()),
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

    /// Makes the copies that filters request, and passes them to the instances at `copy` gates.
    #[inline]
    pub fn make_copies<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        let before = self.observation.totals.created.copies;
        let (gates, pool, copies) = (&mut *self.gates, self.pool, &mut *self.copies);
        let captures = &mut self.observation.captures;
        let mut outlet = Outlet::new(self.fib, self.ports, pool, &mut self.pending.resumed);
        let copies = match captures.iter().any(CaptureSink::is_at_gates) {
            false => copies.run(gates, work, &mut outlet, now, &mut ()),
            true => {
                let mut tap = GateTap { captures, pool, now };
                copies.run(gates, work, &mut outlet, now, &mut tap)
            }
        };
        self.observation.totals.created.copies += outlet.copies + copies.made;
        self.observation.totals.consumed += copies.made - copies.kept;
        self.observation.totals.created.copies +=
            self.gates.replicate(work, self.pool, &mut self.pending.resumed);
        let copies = (self.observation.totals.created.copies - before) as u32;
        if let Some(mark) = probe.mark()
            && copies > 0
        {
            self.observation.write(mark, TraceStep::Copied(copies), now);
        }
    }

    /// Adds to a batch a packet that an instance has released. The batch must have room.
    pub fn add_released(&mut self, work: &mut Work, released: Released) {
        let Released { waiting, direction, end, .. } = released;
        let Waiting { mut packet, key, destination, place, state, connection, .. } = waiting;
        for path in [place.path, packet.counts_for] {
            self.gates.plugins_mut().paths.touch(path);
        }
        if let Some(direction) = direction {
            let mut outlet = Outlet::new(self.fib, self.ports, self.pool, &mut self.pending.resumed);
            self.gates.direct(&mut packet, direction, place.position, &mut outlet);
            self.observation.totals.created.copies += outlet.copies;
        }
        let index = work.packets.len();
        if work.packets.push(packet).is_err() {
            return;
        }
        work.keys[index] = key;
        // An earlier batch may have left one.
        work.flows[index] = None;
        work.paths[index] = place.path;
        work.adjacencies[index] = NO_ADJACENCY;
        work.states.flows[index] = self.gates.plugins().flow_states().resolve(state);
        work.states.set_connection(index, connection.get());
        work.destinations[index] = MacAddr(destination);
        work.fates[index] = end.map_or(Fate::Forward, fate_at_end);
    }
}
