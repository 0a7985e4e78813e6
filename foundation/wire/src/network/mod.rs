//! Network layer: IPv4, IPv6 and its extension headers.

pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
