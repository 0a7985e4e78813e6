//! Where instances send packets.

use millrace_units::PortId;

/// Where an instance sends a packet that goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// By this port.
    Port(PortId),
    /// By each port below 64 whose bit is set; there is one at least.
    Ports(u64),
}
