//! Egress ports that an instance chooses for a packet.

use millrace_units::PortId;

/// Egress port or ports that an instance chooses for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// One egress port.
    Port(PortId),
    /// Bit set of egress ports: bit N stands for port N, below 64. At least one bit is set.
    Ports(u64),
}
