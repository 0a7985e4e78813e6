//! Parse stage: sanity checks (the first partial classifier), flow key, header offsets and exceptions.

pub(crate) mod tags;

use millrace_classify::{Candidate, Fragment};
use millrace_packet::{DropReason, Exceptions, FlowKey, Packet};
use millrace_units::PortId;
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{EtherType, Ipv4Fault, Ipv6Fault, Protocol, ipv4, ipv6};

use crate::work::Varying;

/// Result of the parse stage for a packet.
#[derive(Clone, Copy, Debug)]
pub struct Parsed {
    /// Flow key.
    pub key: FlowKey,
    /// Varying fields, such as TCP flags and DSCP.
    pub varying: Varying,
    /// Fragment fields; `None` if the packet is not a fragment.
    pub fragment: Option<Fragment>,
    /// Whether the IPv6 extension headers can't be read up to the transport header, so that the protocol is
    /// unknown.
    pub hides_transport: bool,
    /// Whether the packet is a later fragment that would overlap the TCP header in the first fragment (RFC
    /// 3128).
    pub overlaps_header: bool,
}

impl Parsed {
    /// Returns the fields of the packet that filters match.
    pub fn candidate(&self, packet: &Packet) -> Candidate {
        self.varying.candidate(self.key, packet)
    }
}

/// Parses the network header of `packet`; its offset is in the annotations. Sets the packet's transport
/// offset and exceptions, and cuts off link-layer padding.
///
/// # Errors
/// Returns the drop reason required by RFC 1812, 5.2.2 (for IPv6: RFC 8200).
#[inline]
pub fn parse(packet: &mut Packet, ether_type: EtherType) -> Result<Parsed, DropReason> {
    match ether_type {
        EtherType::IPV4 => parse_v4(packet),
        EtherType::IPV6 => parse_v6(packet),
        _ => Err(DropReason::EtherType),
    }
}

/// Copies a packet that was parsed before, and parses the copy. Slow: meant for captures. Returns `None` if
/// there is no memory for the copy.
pub fn parse_copy(packet: &Packet, pool: &millrace_packet::Pool) -> Option<(Parsed, Packet)> {
    let mut copy = packet.copy(pool)?;
    if copy.is_shared() && !copy.make_writable(pool) {
        return None;
    }
    let parsed = parse_again(&mut copy)?;
    Some((parsed, copy))
}

/// Parses a packet again, and restores its exceptions, because a later fragment may have the exceptions of
/// its first fragment.
pub(crate) fn parse_again(packet: &mut Packet) -> Option<Parsed> {
    let ether_type = ether_type_of(packet);
    let exceptions = packet.exceptions;
    let parsed = parse(packet, ether_type).ok();
    packet.exceptions = exceptions;
    parsed
}

/// Returns the EtherType that corresponds to the IP version of a packet; IPv4 for an invalid version, which
/// the parser then refuses.
pub(crate) fn ether_type_of(packet: &Packet) -> EtherType {
    match packet.network().first().map(|first| first >> 4) {
        Some(6) => EtherType::IPV6,
        _ => EtherType::IPV4,
    }
}

fn parse_v4(packet: &mut Packet) -> Result<Parsed, DropReason> {
    ipv4::sanity(packet.network(), packet.network_len()).map_err(|fault| match fault {
        Ipv4Fault::Short => DropReason::Ip4Short,
        Ipv4Fault::Version => DropReason::Ip4Version,
        Ipv4Fault::HeaderLength => DropReason::Ip4HeaderLength,
        Ipv4Fault::TotalLength => DropReason::Ip4TotalLength,
        Ipv4Fault::Truncated => DropReason::Ip4Truncated,
        Ipv4Fault::Checksum => DropReason::Ip4Checksum,
    })?;
    let header = ipv4::Packet::new_checked(packet.network()).map_err(|_| DropReason::Ip4Short)?;
    let (source, destination) = (header.src(), header.dst());
    let (protocol, dscp) = (header.protocol(), header.dscp());
    let (header_len, total_len) = (header.header_len(), usize::from(header.total_len()));
    let offset = usize::from(header.fragment_offset());
    let fragment = header.is_fragment().then(|| Fragment {
        identification: header.identification().into(),
        first: offset == 0,
        offset: offset as u16,
        headers_end: 0,
    });
    if offset + total_len - header_len > usize::from(u16::MAX) {
        return Err(DropReason::Ip4Fragment);
    }
    let mut exceptions = Exceptions::NONE;
    if header.ttl() <= 1 {
        exceptions = exceptions.with(Exceptions::TTL);
    }
    if header_len > ipv4::HEADER_LEN {
        exceptions = exceptions.with(Exceptions::OPTIONS);
    }
    trim(packet, total_len)?;
    packet.set_transport(packet.network_offset() + header_len);
    let transport = transport(packet, protocol, offset > 0);
    packet.exceptions = exceptions.with(transport.exceptions);
    let key = FlowKey::v4(source, destination, protocol.0, transport.ports, packet.port);
    let varying = Varying { tcp_flags: transport.tcp_flags, dscp };
    let overlaps_header = overlaps_header(protocol, offset);
    Ok(Parsed { key, varying, fragment, hides_transport: false, overlaps_header })
}

fn parse_v6(packet: &mut Packet) -> Result<Parsed, DropReason> {
    ipv6::sanity(packet.network(), packet.network_len()).map_err(|fault| match fault {
        Ipv6Fault::Short => DropReason::Ip6Short,
        Ipv6Fault::Version => DropReason::Ip6Version,
        Ipv6Fault::PayloadLength => DropReason::Ip6Jumbo,
        Ipv6Fault::Truncated => DropReason::Ip6Truncated,
    })?;
    let header = ipv6::Packet::new_checked(packet.network()).map_err(|_| DropReason::Ip6Short)?;
    let (source, destination, dscp) = (header.src(), header.dst(), header.dscp());
    let walk = ipv6_ext::walk(&header);
    if walk.end == End::RepeatedFragment {
        // A packet with two fragment headers was fragmented twice. The router can't tell which of its
        // fragments holds the transport header, so filters can't match it.
        return Err(DropReason::Ip6RepeatedFragment);
    }
    let (hop_limit, total_len) = (header.hop_limit(), header.total_len());
    let mut exceptions = Exceptions::NONE;
    if hop_limit <= 1 {
        exceptions = exceptions.with(Exceptions::TTL);
    }
    if walk.hop_by_hop {
        exceptions = exceptions.with(Exceptions::OPTIONS);
    }
    let hides_transport = matches!(walk.end, End::Truncated | End::Limit | End::MisplacedHopByHop);
    if hides_transport {
        exceptions = exceptions.with(Exceptions::CUT);
    }
    trim(packet, total_len)?;
    packet.set_transport(packet.network_offset() + walk.offset);
    let readable = walk.end == End::UpperLayer;
    let mut transport = transport(packet, walk.protocol, !readable);
    if !readable && walk.end != End::LaterFragment {
        transport.exceptions = Exceptions::NONE;
    }
    packet.exceptions = exceptions.with(transport.exceptions);
    let key = FlowKey::v6(source, destination, walk.protocol.0, transport.ports, packet.port);
    let fragment = walk.fragment.filter(|(_, header)| !header.is_atomic()).map(|(_, header)| header);
    // Extent of the headers from the end of the fragment header to the end of the transport header. No later
    // fragment may overlap them.
    let headers_end = walk.fragment.map_or(0, |(at, _)| {
        let headers = walk.offset - at - ipv6_ext::FRAGMENT_HEADER_LEN + shortest(walk.protocol);
        headers.min(u16::MAX.into()) as u16
    });
    Ok(Parsed {
        key,
        varying: Varying { tcp_flags: transport.tcp_flags, dscp },
        fragment: fragment.map(|header| Fragment {
            identification: header.identification,
            first: header.is_first(),
            offset: header.offset,
            headers_end,
        }),
        hides_transport,
        // Irrelevant for IPv6: the classify stage checks overlaps by the extent of the first fragment's
        // headers, because the next header field of later fragments may be wrong.
        overlaps_header: false,
    })
}

/// Returns whether a later fragment begins inside the first 16 octets of a TCP header, which contain the
/// flags.
#[inline]
fn overlaps_header(protocol: Protocol, offset: usize) -> bool {
    protocol == Protocol::TCP && (1..16).contains(&offset)
}

/// Cuts off the bytes after the network packet. Fails if they are in memory frames shared with copies. In
/// that case the packet was parsed before, and an instance has reduced its length field since.
#[inline]
fn trim(packet: &mut Packet, network_len: usize) -> Result<(), DropReason> {
    let wanted = packet.network_offset() + network_len;
    if packet.len() > wanted && !packet.truncate(wanted) {
        return Err(DropReason::PluginFailed);
    }
    Ok(())
}

/// Returns the length of a transport header without options, in octets.
#[inline]
fn shortest(protocol: Protocol) -> usize {
    if protocol == Protocol::TCP { 20 } else { 8 }
}

struct Transport {
    ports: (u16, u16),
    tcp_flags: Option<u8>,
    exceptions: Exceptions,
}

#[inline]
fn transport(packet: &Packet, protocol: Protocol, later_fragment: bool) -> Transport {
    let none = Transport { ports: (0, 0), tcp_flags: None, exceptions: Exceptions::NONE };
    if later_fragment {
        return Transport { exceptions: Exceptions::FRAGMENT, ..none };
    }
    if !protocol.has_ports() {
        return none;
    }
    let bytes = packet.transport();
    if bytes.len() < shortest(protocol) {
        return Transport { exceptions: Exceptions::CUT, ..none };
    }
    let Some([a, b, c, d, ..]) = bytes.first_chunk::<8>() else { return none };
    let ports = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    let tcp_flags = bytes.get(13).copied().filter(|_| protocol == Protocol::TCP);
    Transport { ports, tcp_flags, exceptions: Exceptions::NONE }
}

/// Ingress port id of router-made packets.
pub const ROUTER: PortId = PortId::NONE;

#[cfg(test)]
mod tests {
    use millrace_packet::Pool;

    use super::*;

    /// Reduces the length field of a copy so that the cut falls into a memory frame shared with the original.
    /// An instance at a copy gate can do that.
    #[test]
    fn a_header_that_cuts_shared_frames_is_refused() {
        let pool = Pool::new(16).unwrap();
        let datagram = |total_len: u16| {
            let mut header = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
            header[2..4].copy_from_slice(&total_len.to_be_bytes());
            let sum = millrace_wire::checksum::sum(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        };
        let whole = [datagram(5000), vec![7; 4980]].concat();
        let packet = pool.packet_from(&whole).unwrap();
        for (total_len, parsed) in [(5000, true), (4999, false), (3000, false), (1000, true), (28, true)] {
            let mut copy = packet.copy(&pool).unwrap();
            copy.data_mut()[..20].copy_from_slice(&datagram(total_len));
            let result = parse(&mut copy, EtherType::IPV4);
            assert_eq!(result.is_ok(), parsed, "{total_len}");
            assert_eq!(result.err(), (!parsed).then_some(DropReason::PluginFailed));
            assert_eq!(copy.len(), if parsed { total_len.into() } else { 5000 });
            assert_eq!(packet.to_vec(), whole);
        }
    }

    #[test]
    fn packet_parsed_again_keeps_its_first_record() {
        let pool = Pool::new(4).unwrap();
        let mut header = vec![0x45, 0, 0, 28, 0, 7, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
        let sum = millrace_wire::checksum::sum(&header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        // The packet ends with two octets of padding, which the first call cuts off.
        let frame = [header, vec![0, 53, 0, 54, 0, 8, 0, 0, 0, 0]].concat();
        let mut packet = pool.packet_from(&frame).unwrap();
        let first = parse_again(&mut packet).unwrap();
        assert_eq!((packet.len(), packet.transport().len()), (28, 8));
        // Exception of a later fragment whose first fragment was cut.
        packet.exceptions = Exceptions::CUT;
        let again = parse_again(&mut packet).unwrap();
        assert_eq!((first.key, packet.exceptions), (again.key, Exceptions::CUT));
        assert_eq!((packet.len(), packet.transport().len()), (28, 8));
    }
}
