//! Exception bits of a packet, which filters can match.

/// TTL or hop limit of 0 or 1: the router can't forward the packet.
pub const TTL: u8 = 1;
/// IPv4 options or an IPv6 hop-by-hop header.
pub const OPTIONS: u8 = 2;
/// Later fragment: the packet has no ports.
pub const FRAGMENT: u8 = 4;
/// Transport header cut, or behind too many extension headers: the ports can't be read.
pub const CUT: u8 = 8;
