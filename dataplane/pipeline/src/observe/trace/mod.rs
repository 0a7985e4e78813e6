//! Traces: the journeys of selected packets, recorded stage by stage.
//!
//! While a trace runs, a worker selects packets of received batches ([`TraceSink`]) and gives them trace
//! numbers. Each selected packet passes the stages alone, observed by a [`Probe`], so that the measured
//! cycles of a stage belong to one packet. The worker writes fixed-size [`TraceEvent`]s into a ring, and a
//! reader in control combines them into journeys. Packets of the same flow keep their order. While the ring
//! is full, the worker selects no packets, and counts them as lost: a trace never waits. Without a trace, the
//! cost is one check per batch.

mod event;
mod probe;
mod room;
mod route;
mod selection;
mod steps;
mod tracer;

pub use event::{
    FlowFound, Head, RouteEnd, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceStep, Waits,
};
pub(crate) use probe::{Mark, Probe};
pub(crate) use room::{Room, Traced, Turn};
pub(crate) use selection::Pick;
pub(crate) use steps::GateWriter;
pub(crate) use tracer::Tracer;
pub use tracer::{MOST_TRACED, TraceOrder, TraceSink, TraceSource, trace};
