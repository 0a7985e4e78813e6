//! Packets that must not be answered with an error: RFC 1812, 4.3.2.7; RFC 1122, 3.2.2; RFC 4443, 2.4(e).

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{Protocol, ipv4, ipv6};

use super::IcmpError;

/// Whether a packet that passed the sanity checks may be answered with `error`. `network` are its first bytes
/// from the network header on. `link_broadcast` is set if the frame was broadcast or multicast, or the
/// destination is a directed broadcast of a connected network.
pub fn may_send_error(network: &[u8], error: &IcmpError, link_broadcast: bool) -> bool {
    match network.first().map(|octet| octet >> 4) {
        Some(4) => {
            ipv4::Packet::new_checked(network).is_ok_and(|packet| may_answer4(&packet, link_broadcast))
        }
        Some(6) => {
            ipv6::Packet::new_checked(network).is_ok_and(|packet| may_answer6(&packet, error, link_broadcast))
        }
        _ => false,
    }
}

fn may_answer4(packet: &ipv4::Packet<&[u8]>, link_broadcast: bool) -> bool {
    let destination = packet.dst();
    !link_broadcast
        && !destination.is_multicast()
        && !destination.is_broadcast()
        && packet.fragment_offset() == 0
        && is_one_host4(packet.src())
        && !is_icmp_error4(packet)
}

/// Whether an address names a single host (IE-04).
fn is_one_host4(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// Whether the packet is an ICMP error, or too short to tell (IE-01): destination unreachable, source quench,
/// redirect, time exceeded, parameter problem.
fn is_icmp_error4(packet: &ipv4::Packet<&[u8]>) -> bool {
    packet.protocol() == Protocol::ICMP
        && packet.payload().first().is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12))
}

fn may_answer6(packet: &ipv6::Packet<&[u8]>, error: &IcmpError, link_broadcast: bool) -> bool {
    // The exceptions let path MTU discovery work for multicast, and let a host report unknown options there.
    let to_many_too = matches!(error, IcmpError::TooBig { .. } | IcmpError::ParameterProblem { code: 2, .. });
    let to_many = link_broadcast || packet.dst().is_multicast();
    (!to_many || to_many_too) && is_one_host6(packet.src()) && !is_icmp_error6(packet)
}

fn is_one_host6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

/// Whether the packet is an ICMPv6 error (types below 128) or a redirect (137). Also `true` for a later
/// fragment of ICMPv6, and if the extension headers can't be read to the end.
fn is_icmp_error6(packet: &ipv6::Packet<&[u8]>) -> bool {
    let walk = ipv6_ext::walk(packet);
    match walk.end {
        End::UpperLayer if walk.protocol == Protocol::ICMPV6 => {
            let kind = packet.payload().get(walk.offset - ipv6::HEADER_LEN);
            kind.is_none_or(|kind| *kind < 128 || *kind == 137)
        }
        End::LaterFragment => walk.protocol == Protocol::ICMPV6,
        End::UpperLayer | End::NoNextHeader | End::MisplacedHopByHop => false,
        End::Truncated | End::Limit | End::RepeatedFragment => true,
    }
}
