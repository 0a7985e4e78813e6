//! ICMP errors: conditions under which they may be sent, and their contents. RFC 792; RFC 1812, 4.3; RFC
//! 4443.

mod message;
mod permission;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};

use millrace_packet::{Packet, Pool};

pub use permission::may_send_error;

/// ICMP error, with one name for both address families where the meaning is the same. Each variant lists
/// type/code for IPv4, then for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// TTL or hop limit expired: ICMPv4 11/0, ICMPv6 3/0.
    TtlExpired,
    /// Not all fragments arrived in time: ICMPv4 11/1, ICMPv6 3/1.
    ReassemblyTimeExceeded,
    /// No route: ICMPv4 3/0, ICMPv6 1/0.
    NetUnreachable,
    /// The neighbour does not answer: ICMPv4 3/1, ICMPv6 1/3.
    HostUnreachable,
    /// The router does not speak the protocol: ICMPv4 3/2, ICMPv6 4/1.
    ProtocolUnreachable,
    /// No listener at the port: ICMPv4 3/3, ICMPv6 1/4.
    PortUnreachable,
    /// Packet above the MTU that must not be fragmented: ICMPv4 3/4, ICMPv6 2/0.
    TooBig {
        /// Length in bytes of the longest packet that fits, network header included; never 0.
        mtu: u32,
    },
    /// Prohibited by a filter or a route: ICMPv4 3/13, ICMPv6 1/1.
    AdminProhibited,
    /// Source address not allowed on this path: ICMPv4 3/13, ICMPv6 1/5.
    SourcePolicy,
    /// Route of type unreachable: ICMPv4 3/1, ICMPv6 1/6.
    RejectRoute,
    /// Source address that must not leave its link: ICMPv6 1/2, no error in IPv4.
    BeyondScope,
    /// Wrong header field: ICMPv4 12/0, ICMPv6 4/`code`.
    ParameterProblem {
        /// Code in IPv6: 0 erroneous field, 1 unknown next header, 2 unknown option.
        code: u8,
        /// Offset of the wrong octet from the start of the network header.
        pointer: u32,
    },
    /// Better first hop: ICMPv4 5/1. IPv6 has another message for this (RFC 4861, 4.5).
    Redirect {
        /// Better first hop.
        gateway: Ipv4Addr,
    },
}

impl IcmpError {
    /// Number of kinds.
    pub const KINDS: usize = 13;

    /// Returns the number of the kind, below [`KINDS`](Self::KINDS).
    pub const fn kind(&self) -> usize {
        match self {
            Self::TtlExpired => 0,
            Self::ReassemblyTimeExceeded => 1,
            Self::NetUnreachable => 2,
            Self::HostUnreachable => 3,
            Self::ProtocolUnreachable => 4,
            Self::PortUnreachable => 5,
            Self::TooBig { .. } => 6,
            Self::AdminProhibited => 7,
            Self::SourcePolicy => 8,
            Self::RejectRoute => 9,
            Self::BeyondScope => 10,
            Self::ParameterProblem { .. } => 11,
            Self::Redirect { .. } => 12,
        }
    }
}

/// Header fields of ICMP errors that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorOptions {
    /// TOS or traffic class; default 0xc0, DSCP CS6 (RFC 1812, 4.3.2.5).
    pub traffic_class: u8,
    /// TTL or hop limit; default 64.
    pub ttl: u8,
    /// IPv4 identification. Each error needs a different one, because errors may be fragmented.
    pub identification: u16,
}

impl Default for ErrorOptions {
    fn default() -> Self {
        Self { traffic_class: 0xc0, ttl: 64, identification: 0 }
    }
}

/// Builds the ICMP error packet about `original`, to its sender. `original` has its network offset set and
/// passed the sanity checks. `source` is the source address of the error, of the same family. The error
/// quotes as much of `original` as fits into 576 bytes in IPv4 (RFC 1812, 4.3.2.3) and 1,280 bytes in IPv6
/// (RFC 4443, 2.4(c)). The new packet begins at the network header, and has headroom.
///
/// The caller asks [`may_send_error`] first. Returns `None` if the pool is empty, the families differ,
/// `source` is unspecified, or the family has no such error.
pub fn build_error(
    pool: &Pool,
    original: &Packet,
    error: IcmpError,
    source: IpAddr,
    options: &ErrorOptions,
) -> Option<Packet> {
    let version = original.network().first()? >> 4;
    match (version, source) {
        _ if source.is_unspecified() => None,
        (4, IpAddr::V4(source)) => message::build4(pool, original, error, source, options),
        (6, IpAddr::V6(source)) => message::build6(pool, original, error, source, options),
        _ => None,
    }
}
