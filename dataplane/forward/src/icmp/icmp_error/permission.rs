//! Packets about which no ICMP error may be sent: RFC 1812, 4.3.2.7; RFC 1122, 3.2.2; RFC 4443, 2.4(e).

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{Protocol, ipv4, ipv6};

use super::IcmpError;

/// Returns whether `error` may be sent about a packet that passed the sanity checks. `network`: first bytes
/// of the packet from the network header on. `link_broadcast`: whether the frame was broadcast or multicast,
/// or the destination is a directed broadcast address of a connected network.
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

/// Returns whether an address may belong to a single host (IE-04).
fn is_one_host4(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// Returns whether the packet is an ICMP error, or has no readable ICMP type (IE-01). Errors are destination
/// unreachable, source quench, redirect, time exceeded and parameter problem.
fn is_icmp_error4(packet: &ipv4::Packet<&[u8]>) -> bool {
    packet.protocol() == Protocol::ICMP
        && packet.payload().first().is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12))
}

fn may_answer6(packet: &ipv6::Packet<&[u8]>, error: &IcmpError, link_broadcast: bool) -> bool {
    // RFC 4443 permits these errors about multicast packets, for path MTU discovery and for reports of
    // unknown options.
    let to_many_too = matches!(error, IcmpError::TooBig { .. } | IcmpError::ParameterProblem { code: 2, .. });
    let to_many = link_broadcast || packet.dst().is_multicast();
    (!to_many || to_many_too) && is_one_host6(packet.src()) && !is_icmp_error6(packet)
}

fn is_one_host6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

/// Returns whether the packet is an ICMPv6 error (type below 128) or a redirect (137). Also `true` for a
/// later fragment of ICMPv6, and for extension headers that can't be read to the end.
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
