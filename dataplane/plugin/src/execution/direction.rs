//! Output ports that an instance chooses for a packet.

use millrace_units::PortId;

/// Output port or ports of a packet that an instance forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Output port.
    Port(PortId),
    /// Bit set of output ports below 64; at least one bit is set.
    Ports(u64),
}
