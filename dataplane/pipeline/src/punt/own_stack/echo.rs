//! Echo replies of ports without a kernel stack (RFC 1812, 4.3.3.6; RFC 4443, 4.2), and refusal of other
//! protocols.

use millrace_forward::IcmpError;
use millrace_packet::{DropReason, Packet};
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{ICMP_HEADER_LEN, Protocol, checksum, ipv4, ipv6};

use super::{Context, Outcome, is_icmp};

const TTL: u8 = 64;
const ECHO_REQUEST4: u8 = 8;
const ECHO_REPLY4: u8 = 0;
const ECHO_REQUEST6: u8 = 128;
const ECHO_REPLY6: u8 = 129;

/// Returns the offset of an ICMPv4 echo request from the start of the network header.
///
/// # Errors
/// The outcome of any other packet. A packet of another protocol is refused.
pub(super) fn request4(network: &[u8]) -> Result<usize, Outcome> {
    let Ok(header) = ipv4::Packet::new_checked(network) else {
        return Err(Outcome::Dropped(DropReason::Ip4Short));
    };
    let (protocol, offset) = (header.protocol(), header.header_len());
    if header.is_fragment() {
        return Err(Outcome::Dropped(DropReason::LocalUnknown));
    }
    if !is_icmp(protocol) {
        return Err(refusal(protocol));
    }
    match message_type(network, offset) {
        Some(ECHO_REQUEST4) => Ok(offset),
        _ => Err(Outcome::Dropped(DropReason::LocalUnknown)),
    }
}

/// Answers an ICMPv4 echo request to an address of a port without a kernel stack.
pub(super) fn answer4(packet: &Packet, offset: usize, context: &mut Context<'_>) -> Outcome {
    if !checksum::sum_slices(message(packet, offset)).is_valid() {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    answer(packet, context, |reply| reply4(reply, offset))
}

/// Returns the offset of an ICMPv6 echo request from the start of the network header.
///
/// # Errors
/// The outcome of any other packet. A packet of another protocol is refused.
pub(super) fn request6(network: &[u8]) -> Result<usize, Outcome> {
    let Ok(header) = ipv6::Packet::new_checked(network) else {
        return Err(Outcome::Dropped(DropReason::Ip6Short));
    };
    let walk = ipv6_ext::walk(&header);
    let is_multicast = header.dst().is_multicast();
    if walk.end != End::UpperLayer || walk.fragment.is_some() {
        return Err(Outcome::Dropped(DropReason::LocalUnknown));
    }
    if !is_icmp(walk.protocol) {
        return Err(match is_multicast {
            true => Outcome::Dropped(DropReason::Multicast),
            false => refusal(walk.protocol),
        });
    }
    let offset = walk.offset;
    // RFC 4443, 4.2 permits a reply to a request for a multicast group. This router is a member of no group
    // and doesn't reply.
    match message_type(network, offset) {
        Some(ECHO_REQUEST6) if !is_multicast && offset == ipv6::HEADER_LEN => Ok(offset),
        _ => Err(Outcome::Dropped(DropReason::LocalUnknown)),
    }
}

/// Answers an ICMPv6 echo request to an address of a port without a kernel stack.
pub(super) fn answer6(packet: &Packet, offset: usize, context: &mut Context<'_>) -> Outcome {
    let Ok(header) = ipv6::Packet::new_checked(packet.network()) else {
        return Outcome::Dropped(DropReason::Ip6Short);
    };
    let length = packet.network_len().saturating_sub(offset);
    let pseudo = header.pseudo_header(Protocol::ICMPV6, length as u32);
    let sum = message(packet, offset).fold(pseudo, |sum, bytes| sum.bytes(bytes));
    if !sum.is_valid() {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    answer(packet, context, |reply| reply6(reply, offset))
}

/// Sends a copy of the request, which `turn` changes into the reply.
fn answer(packet: &Packet, context: &mut Context<'_>, turn: impl FnOnce(&mut [u8]) -> Option<()>) -> Outcome {
    let Some(mut reply) = bare_copy(packet, context) else { return Outcome::Dropped(DropReason::NoMemory) };
    if turn(reply.network_mut()).is_none() {
        return Outcome::Dropped(DropReason::LocalUnknown);
    }
    context.packets.push(reply);
    Outcome::Delivered
}

/// Turns an IPv4 echo request into its reply; `None` for a packet shorter than its headers.
fn reply4(packet: &mut [u8], offset: usize) -> Option<()> {
    let mut view = ipv4::Packet::new_checked(&mut *packet).ok()?;
    let (source, destination) = (view.src(), view.dst());
    view.set_src(destination);
    view.set_dst(source);
    view.set_ttl(TTL);
    view.fill_checksum();
    set_type(packet.get_mut(offset..)?, ECHO_REPLY4)
}

/// Turns an IPv6 echo request into its reply; `None` for a packet shorter than its headers.
fn reply6(packet: &mut [u8], offset: usize) -> Option<()> {
    let mut view = ipv6::Packet::new_checked(&mut *packet).ok()?;
    let (source, destination) = (view.src(), view.dst());
    view.set_src(destination);
    view.set_dst(source);
    view.set_hop_limit(TTL);
    set_type(packet.get_mut(offset..)?, ECHO_REPLY6)
}

/// Sets the type of an ICMP message and updates its checksum; `None` for a message shorter than its header.
fn set_type(message: &mut [u8], to: u8) -> Option<()> {
    let [kind, code, high, low, ..] = message.first_chunk_mut::<ICMP_HEADER_LEN>()?;
    let (old, new) = (u16::from_be_bytes([*kind, *code]), u16::from_be_bytes([to, *code]));
    *kind = to;
    let sum = match checksum::update_u16(u16::from_be_bytes([*high, *low]), old, new) {
        // 0 and 0xffff both mean a sum of zero; 0xffff is right except for a message of zeros only, such as
        // the reply to an empty request with identifier 0.
        0 => 0xffff,
        sum => sum,
    };
    [*high, *low] = sum.to_be_bytes();
    Some(())
}

/// Returns the type of the ICMP message `offset` bytes after the start of the network header. Returns `None`
/// unless the whole ICMP header (8 bytes in both versions) is in the first memory frame.
fn message_type(network: &[u8], offset: usize) -> Option<u8> {
    let [kind, ..] = network.get(offset..)?.first_chunk::<ICMP_HEADER_LEN>()?;
    Some(*kind)
}

fn refusal(protocol: Protocol) -> Outcome {
    Outcome::Refused(match protocol {
        Protocol::TCP | Protocol::UDP => IcmpError::PortUnreachable,
        _ => IcmpError::ProtocolUnreachable,
    })
}

/// Returns the bytes of the network packet from `offset` on, by memory frame.
fn message(packet: &Packet, offset: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = packet.network_offset() + offset;
    packet.frames().map(move |bytes| {
        let (skipped, rest) = bytes.split_at_checked(skip).unwrap_or((bytes, &[]));
        skip -= skipped.len();
        rest
    })
}

/// Returns a copy of the packet without its link header. The copy counts as router-made.
fn bare_copy(packet: &Packet, context: &Context<'_>) -> Option<Packet> {
    let mut copy = packet.copy(context.pool)?;
    let offset = copy.network_offset();
    if !copy.trim_front(offset) {
        return None;
    }
    *copy = millrace_packet::Annotations::EMPTY;
    copy.out_port = packet.port;
    Some(copy)
}
