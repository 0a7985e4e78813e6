//! ICMP for IPv4 and IPv6, and neighbour discovery.

pub mod icmpv4;
pub mod icmpv6;
pub mod ndp;
