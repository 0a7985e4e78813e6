//! Entry of a list of connections.

use std::net::IpAddr;

use millrace_units::Instant;
use millrace_wire::Protocol;

use crate::key::{ConnectionKey, Orientation};

/// Connection in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    pub(crate) key: ConnectionKey,
    pub(crate) originator: Orientation,
    /// Name of the phase.
    pub phase: &'static str,
    /// Whether the other side has answered.
    pub is_answered: bool,
    /// Whether new connections can't recycle this one.
    pub is_assured: bool,
    /// Time at which the connection ends if no packet comes, with a resolution of 250 ms.
    pub until: Instant,
}

impl Listed {
    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        self.key.protocol()
    }

    /// Returns address and port of the originator and of the other side. For ICMP queries, the ports are the
    /// identifier and the type of the request.
    pub fn endpoints(&self) -> [(IpAddr, u16); 2] {
        self.key.endpoints(self.originator)
    }
}
