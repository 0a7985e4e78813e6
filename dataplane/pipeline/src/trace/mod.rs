//! Traces: the journeys of chosen packets, written down stage by stage.
//!
//! While a trace goes on, a worker chooses packets of the batches that come in ([`TraceSink`]), marks them, and takes each
//! through the stages alone ([`journey`]), so that the cycles of a stage are its own. It writes fixed-size [`TraceEvent`]s into
//! a ring; a reader in control makes journeys of them. Packets of the same flow keep their order. When the ring is full,
//! packets are not chosen, and counted as lost: a trace never waits. Without a trace nothing of this is looked at but
//! whether there is one, once per batch.

mod event;
mod journey;
mod pieces;
mod room;
mod tracer;

pub use event::{FlowFound, Head, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceStep, Waits};
pub(crate) use pieces::Pick;
pub(crate) use tracer::Tracer;
pub use tracer::{MOST_TRACED, TraceOrder, TraceSink, TraceSource, trace};
