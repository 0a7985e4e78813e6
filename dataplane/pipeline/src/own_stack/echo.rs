//! Echo for ports without a kernel (RFC 1812, 4.3.3.6; RFC 4443, 4.2), and the answer to everything else.

use millrace_forward::IcmpError;
use millrace_packet::{DropReason, Packet};
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{Protocol, checksum, ipv4, ipv6};

use super::{Context, Outcome, is_icmp};

const TTL: u8 = 64;
const ECHO_REQUEST4: u8 = 8;
const ECHO_REQUEST6: u8 = 128;
const ECHO_REPLY6: u8 = 129;

pub(super) fn handle4(packet: &Packet, context: &mut Context<'_>) -> Outcome {
    let Ok(header) = ipv4::Packet::new_checked(packet.network()) else {
        return Outcome::Dropped(DropReason::Ip4Short);
    };
    let (protocol, offset) = (header.protocol(), header.header_len());
    if header.is_fragment() {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    if !is_icmp(protocol) {
        return refusal(protocol);
    }
    // What is read next stands in the first frame: the whole message may not.
    if packet.network().get(offset) != Some(&ECHO_REQUEST4)
        || !checksum::sum_slices(message(packet, offset)).is_valid()
    {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    let Some(mut reply) = bare_copy(packet, context) else { return Outcome::Dropped(DropReason::NoMemory) };
    let mut view = ipv4::Packet::new_unchecked(reply.network_mut());
    let (source, destination) = (view.src(), view.dst());
    view.set_src(destination);
    view.set_dst(source);
    view.set_ttl(TTL);
    view.fill_checksum();
    let icmp = &mut reply.network_mut()[offset..];
    let sum = u16::from_be_bytes([icmp[2], icmp[3]]);
    let [high, low] =
        checksum::update_u16(sum, u16::from_be_bytes([icmp[0], icmp[1]]), u16::from_be_bytes([0, icmp[1]]))
            .to_be_bytes();
    (icmp[0], icmp[2], icmp[3]) = (0, high, low);
    context.packets.push(reply);
    Outcome::Delivered
}

pub(super) fn handle6(packet: &Packet, context: &mut Context<'_>) -> Outcome {
    let Ok(header) = ipv6::Packet::new_checked(packet.network()) else {
        return Outcome::Dropped(DropReason::Ip6Short);
    };
    let walk = ipv6_ext::walk(&header);
    let (source, destination) = (header.src(), header.dst());
    if walk.end != End::UpperLayer || walk.fragment.is_some() {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    if !is_icmp(walk.protocol) {
        return if destination.is_multicast() {
            Outcome::Dropped(DropReason::Multicast)
        } else {
            refusal(walk.protocol)
        };
    }
    let offset = walk.offset;
    let length = packet.network_len().saturating_sub(offset);
    let pseudo = header.pseudo_header(Protocol::ICMPV6, length as u32);
    let sum = message(packet, offset).fold(pseudo, |sum, bytes| sum.bytes(bytes));
    let is_request = packet.network().get(offset) == Some(&ECHO_REQUEST6);
    // RFC 4443, 4.2 lets a node answer a request to a group; a router that is no member of any does not.
    if !is_request || destination.is_multicast() || !sum.is_valid() || offset != ipv6::HEADER_LEN {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    let Some(mut reply) = bare_copy(packet, context) else { return Outcome::Dropped(DropReason::NoMemory) };
    let mut view = ipv6::Packet::new_unchecked(reply.network_mut());
    view.set_src(destination);
    view.set_dst(source);
    view.set_hop_limit(TTL);
    let icmp = &mut reply.network_mut()[offset..];
    let sum = u16::from_be_bytes([icmp[2], icmp[3]]);
    let old = u16::from_be_bytes([icmp[0], icmp[1]]);
    let [high, low] =
        checksum::update_u16(sum, old, u16::from_be_bytes([ECHO_REPLY6, icmp[1]])).to_be_bytes();
    (icmp[0], icmp[2], icmp[3]) = (ECHO_REPLY6, high, low);
    context.packets.push(reply);
    Outcome::Delivered
}

fn refusal(protocol: Protocol) -> Outcome {
    Outcome::Refused(match protocol {
        Protocol::TCP | Protocol::UDP => IcmpError::PortUnreachable,
        _ => IcmpError::ProtocolUnreachable,
    })
}

/// The bytes of the packet from `offset` behind the network header's start.
fn message(packet: &Packet, offset: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = packet.network_offset() + offset;
    packet.frames().map(move |bytes| {
        let from = skip.min(bytes.len());
        skip -= from;
        &bytes[from..]
    })
}

/// A copy of the packet without its link header, of the router's own.
fn bare_copy(packet: &Packet, context: &Context<'_>) -> Option<Packet> {
    let mut copy = packet.copy(context.pool)?;
    let offset = copy.network_offset();
    copy.trim_front(offset);
    *copy = millrace_packet::Annotations::EMPTY;
    copy.out_port = packet.port;
    Some(copy)
}
