//! Commands to captures and traces, and questions about packets.

use millrace_packet::{Exceptions, Family, FlowKey};
use millrace_wire::Protocol;

use super::ReplyTo;
use crate::driver_flows::Invalidation;
use crate::observe::capture::CaptureSink;
use crate::observe::drop_log::{DropQuery, DroppedPacket};
use crate::observe::explain::Explanation;
use crate::observe::trace::TraceSink;

/// Packet for a lookup: control asks how the worker would forward it.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Flow key.
    pub key: FlowKey,
    /// TCP flags; `None` for other protocols, or if unknown.
    pub tcp_flags: Option<u8>,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Plugin tag.
    pub tag: u8,
    /// Exceptions of the packet.
    pub exceptions: Exceptions,
    /// Length in bytes, from the network header on.
    pub length: u16,
}

impl Question {
    /// Returns whether the IPv6 extension headers can't be read up to the transport header. In that case,
    /// `protocol` is the header at which reading ended.
    pub fn hides_transport(&self) -> bool {
        let is_extension = matches!(
            Protocol(self.key.protocol),
            Protocol::HOP_BY_HOP
                | Protocol::ROUTING
                | Protocol::FRAGMENT
                | Protocol::AH
                | Protocol::DESTINATION_OPTIONS
        );
        self.key.family() == Family::V6 && is_extension && self.exceptions.contains(Exceptions::CUT)
    }
}

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
