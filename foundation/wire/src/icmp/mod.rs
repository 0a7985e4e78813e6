//! ICMP for IPv6, and neighbour discovery.

pub mod icmpv6;
pub mod ndp;

/// Length in octets of the common header of all ICMP and ICMPv6 messages.
pub const HEADER_LEN: usize = 8;
