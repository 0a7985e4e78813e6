//! Cases of IPv6 and ICMPv6.

mod header_chains;
mod v6;
