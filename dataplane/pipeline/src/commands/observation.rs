//! Commands to captures and traces, and questions about packets.

use super::ReplyTo;
use crate::driver_flows::Invalidation;
use crate::explain::Explanation;
use crate::explain::Question;
use crate::observe::capture::CaptureSink;
use crate::observe::drop_log::{DropQuery, DroppedPacket};
use crate::observe::trace::TraceSink;

/// Command to captures and traces, or question about packets.
pub enum ObservationCommand {
    /// Starts a capture.
    StartCapture(Box<CaptureSink>),
    /// Ends the capture of this number.
    StopCapture(u32),
    /// Starts a trace, and ends the running one.
    StartTrace(Box<TraceSink>),
    /// Ends the trace of this number.
    StopTrace(u32),
    /// Asks for the last dropped packets.
    LastDrops(DropQuery, ReplyTo<Vec<DroppedPacket>>),
    /// Asks how the worker would forward a packet.
    Explain(Question, ReplyTo<Explanation>),
}

impl ObservationCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Observed flows stay at the worker; the others are offloaded again with their next packet.
            Self::StartCapture(_) | Self::StartTrace(_) => Invalidation::Entries,
            Self::StopCapture(_) | Self::StopTrace(_) => Invalidation::Nothing,
            Self::LastDrops(..) | Self::Explain(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::StopCapture(_) | Self::StopTrace(_) => true,
            Self::StartCapture(_) | Self::StartTrace(_) => false,
            Self::LastDrops(..) | Self::Explain(..) => false,
        }
    }
}
