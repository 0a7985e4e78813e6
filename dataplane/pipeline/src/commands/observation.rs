//! Commands to captures and traces, and questions about packets.

use millrace_units::Instant;

use super::{ReplyTo, answer};
use crate::lookup::{Lookup, Question, look_up};
use crate::observe::capture::CaptureSink;
use crate::observe::drop_log::{DropQuery, DroppedPacket};
use crate::observe::trace::{TraceSink, Tracer};
use crate::offloaded_flows::Invalidation;
use crate::router::Router;

/// Command to captures and traces, or question about packets.
pub enum ObservationCommand {
    /// Starts a capture.
    StartCapture(Box<CaptureSink>),
    /// Ends the capture with the given number.
    StopCapture(u32),
    /// Starts a trace, and ends the running one.
    StartTrace(Box<TraceSink>),
    /// Ends the trace with the given number.
    StopTrace(u32),
    /// Asks for the last dropped packets that match a query.
    LastDrops(DropQuery, ReplyTo<Vec<DroppedPacket>>),
    /// Asks for the worker's treatment of a described packet.
    Lookup(Question, ReplyTo<Lookup>),
}

impl ObservationCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Packets of observed flows must reach the worker. Other flows are offloaded again with their
            // next packet.
            Self::StartCapture(_) | Self::StartTrace(_) => Invalidation::Entries,
            Self::StopCapture(_) | Self::StopTrace(_) => Invalidation::Nothing,
            Self::LastDrops(..) | Self::Lookup(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::StopCapture(_) | Self::StopTrace(_) => true,
            Self::StartCapture(_) | Self::StartTrace(_) => false,
            Self::LastDrops(..) | Self::Lookup(..) => false,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::StartCapture(sink) => router.observation.captures.push(*sink),
            Self::StopCapture(id) => router.observation.captures.retain(|capture| capture.id != id),
            Self::StartTrace(sink) => start_trace(router, *sink, now),
            Self::StopTrace(id) => router.observation.stop_trace(id),
            Self::LastDrops(query, reply) => answer(&reply, router.observation.last_drops(&query)),
            Self::Lookup(question, reply) => answer(&reply, look_up(router, &question, now)),
        }
    }
}

fn start_trace(router: &mut Router, sink: TraceSink, now: Instant) {
    let worker = router.handover.as_ref().map_or(0, |handover| handover.me());
    router.observation.trace = Some(Box::new(Tracer::new(sink, worker, router.observation.next_mark, now)));
}
