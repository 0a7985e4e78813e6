//! The exception bits of a packet, those that filters match.

/// Its TTL or hop limit is 0 or 1: it can't be forwarded.
pub const TTL: u8 = 1;
/// It has IPv4 options or an IPv6 hop-by-hop header.
pub const OPTIONS: u8 = 2;
/// It is a fragment behind the first, so it has no ports.
pub const FRAGMENT: u8 = 4;
/// Its transport header is cut or lies too deep, so its ports can't be read.
pub const CUT: u8 = 8;
