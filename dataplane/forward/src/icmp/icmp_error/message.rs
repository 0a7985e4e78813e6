//! Octets of an ICMP error packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::{Packet, Pool};
use millrace_wire::{Protocol, checksum, ipv4, ipv6, ipv6_ext};

use super::{ErrorOptions, IcmpError};
use crate::fragment::append_range;

/// Length of the ICMP header in octets: type, code, checksum, and four octets whose meaning depends on the
/// type.
const ICMP_HEADER_LEN: usize = 8;
/// Length of the longest IPv4 error packet, in bytes.
const MAX_LEN4: usize = 576;

/// Type, code and the second word of the ICMP header.
type Header = (u8, u8, u32);

fn header4(error: IcmpError) -> Option<Header> {
    Some(match error {
        IcmpError::NetUnreachable => (3, 0, 0),
        IcmpError::HostUnreachable | IcmpError::RejectRoute => (3, 1, 0),
        IcmpError::ProtocolUnreachable => (3, 2, 0),
        IcmpError::PortUnreachable => (3, 3, 0),
        IcmpError::TooBig { mtu } => (3, 4, mtu.min(0xffff)),
        IcmpError::AdminProhibited | IcmpError::SourcePolicy => (3, 13, 0),
        IcmpError::Redirect { gateway } => (5, 1, gateway.to_bits()),
        IcmpError::TtlExpired => (11, 0, 0),
        IcmpError::ReassemblyTimeExceeded => (11, 1, 0),
        IcmpError::ParameterProblem { pointer, .. } => (12, 0, pointer.min(0xff) << 24),
        IcmpError::BeyondScope => return None,
    })
}

fn header6(error: IcmpError, original: &ipv6::Packet<&[u8]>) -> Option<Header> {
    Some(match error {
        IcmpError::NetUnreachable => (1, 0, 0),
        IcmpError::AdminProhibited => (1, 1, 0),
        IcmpError::BeyondScope => (1, 2, 0),
        IcmpError::HostUnreachable => (1, 3, 0),
        IcmpError::PortUnreachable => (1, 4, 0),
        IcmpError::SourcePolicy => (1, 5, 0),
        IcmpError::RejectRoute => (1, 6, 0),
        IcmpError::TooBig { mtu } => (2, 0, mtu),
        IcmpError::TtlExpired => (3, 0, 0),
        IcmpError::ReassemblyTimeExceeded => (3, 1, 0),
        IcmpError::ProtocolUnreachable => (4, 1, ipv6_ext::walk(original).announced_at as u32),
        IcmpError::ParameterProblem { code, pointer } => (4, code, pointer),
        IcmpError::Redirect { .. } => return None,
    })
}

pub(super) fn build4(
    pool: &Pool,
    original: &Packet,
    error: IcmpError,
    source: Ipv4Addr,
    options: &ErrorOptions,
) -> Option<Packet> {
    let quoted = ipv4::Packet::new_checked(original.network()).ok()?;
    let room = MAX_LEN4 - ipv4::HEADER_LEN - ICMP_HEADER_LEN;
    let quote = usize::from(quoted.total_len()).min(original.network_len()).min(room);
    let repr = ipv4::Repr {
        src: source,
        dst: quoted.src(),
        protocol: Protocol::ICMP,
        payload_len: (ICMP_HEADER_LEN + quote) as u16,
        ttl: options.ttl,
        tos: options.traffic_class,
        identification: options.identification,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
    };
    let mut octets = [0; ipv4::HEADER_LEN];
    repr.emit(&mut ipv4::Packet::new_unchecked(&mut octets[..]));
    let mut packet = assemble(pool, original, &octets, header4(error)?, quote)?;
    let value = checksum::checksum(packet.transport());
    set_checksum(&mut packet, ipv4::HEADER_LEN, value);
    Some(packet)
}

pub(super) fn build6(
    pool: &Pool,
    original: &Packet,
    error: IcmpError,
    source: Ipv6Addr,
    options: &ErrorOptions,
) -> Option<Packet> {
    let quoted = ipv6::Packet::new_checked(original.network()).ok()?;
    let room = ipv6::MIN_MTU - ipv6::HEADER_LEN - ICMP_HEADER_LEN;
    let quote = quoted.total_len().min(original.network_len()).min(room);
    let repr = ipv6::Repr {
        src: source,
        dst: quoted.src(),
        next_header: Protocol::ICMPV6,
        payload_len: (ICMP_HEADER_LEN + quote) as u16,
        hop_limit: options.ttl,
        traffic_class: options.traffic_class,
        flow_label: 0,
    };
    let mut octets = [0; ipv6::HEADER_LEN];
    repr.emit(&mut ipv6::Packet::new_unchecked(&mut octets[..]));
    let mut packet = assemble(pool, original, &octets, header6(error, &quoted)?, quote)?;
    let length = (ICMP_HEADER_LEN + quote) as u32;
    let pseudo = checksum::pseudo_header_v6(source, quoted.src(), Protocol::ICMPV6, length);
    let value = pseudo.bytes(packet.transport()).checksum();
    set_checksum(&mut packet, ipv6::HEADER_LEN, value);
    Some(packet)
}

/// Assembles network header, ICMP header with a checksum of 0, and quote. The result has at most 1,280 bytes,
/// so it fits into one memory frame.
fn assemble(
    pool: &Pool,
    original: &Packet,
    network: &[u8],
    (kind, code, word): Header,
    quote: usize,
) -> Option<Packet> {
    let mut packet = pool.packet_from(network)?;
    let [a, b, c, d] = word.to_be_bytes();
    let written = packet.append(pool, &[kind, code, 0, 0, a, b, c, d])
        && append_range(pool, &mut packet, original, original.network_offset(), quote);
    packet.set_network(0);
    packet.set_transport(network.len());
    written.then_some(packet)
}

fn set_checksum(packet: &mut Packet, icmp: usize, value: u16) {
    let message = packet.data_mut().get_mut(icmp..);
    if let Some([_, _, high, low, ..]) = message.and_then(<[u8]>::first_chunk_mut::<ICMP_HEADER_LEN>) {
        [*high, *low] = value.to_be_bytes();
    }
}
