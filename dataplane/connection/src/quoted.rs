//! Packets that ICMP errors quote.
//!
//! An error belongs to the connection of the packet that it quotes (RFC 792; RFC 4443, 2.4 c; RFC 5508,
//! REQ-4). At least the first 8 octets after the quoted network header are quoted.

use millrace_packet::FlowKey;
use millrace_units::PortId;
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{Protocol, ipv4, ipv6};

use crate::key::{ConnectionKey, Orientation};

/// Length of the header of an ICMP error, before the quoted packet.
const HEADER: usize = 8;

/// Packet that an ICMP error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quoted {
    /// Connection key of the packet.
    pub key: ConnectionKey,
    /// Orientation of the packet.
    pub orientation: Orientation,
    /// TCP sequence number of the packet.
    pub sequence: Option<u32>,
}

/// Returns whether a message is an error: destination unreachable, time exceeded or parameter problem; for ICMPv6 any
/// type below 128. Source quench is obsolete (RFC 6633), and only the first router sends a redirect, so neither comes from
/// afar.
pub(crate) fn is_error(protocol: u8, message: &[u8]) -> bool {
    let Some(kind) = message.first() else { return false };
    match Protocol(protocol) {
        Protocol::ICMP => matches!(kind, 3 | 11 | 12),
        Protocol::ICMPV6 => *kind < 128,
        _ => false,
    }
}

impl Quoted {
    /// Reads the packet that an error quotes; `None` if its addresses and ports are not quoted.
    pub fn read(protocol: u8, message: &[u8]) -> Option<Self> {
        let (key, transport) = read_flow(protocol, message)?;
        let (connection, orientation) = ConnectionKey::of(&key, transport)?;
        let sequence = transport.get(4..8).and_then(|octets| octets.first_chunk()).copied();
        let sequence = sequence.filter(|_| Protocol(key.protocol) == Protocol::TCP).map(u32::from_be_bytes);
        Some(Self { key: connection, orientation, sequence })
    }
}

/// Returns the flow key of the packet that an ICMP error quotes, without an ingress port. Returns `None` for other
/// messages, or if addresses or ports are not quoted. `message` is the packet from its transport header on.
pub fn quoted_flow(protocol: u8, message: &[u8]) -> Option<FlowKey> {
    is_error(protocol, message).then(|| read_flow(protocol, message).map(|(key, _)| key))?
}

/// Returns the flow key of a quoted packet, and its octets from the transport header on.
fn read_flow(protocol: u8, message: &[u8]) -> Option<(FlowKey, &[u8])> {
    let quoted = message.get(HEADER..)?;
    match Protocol(protocol) {
        Protocol::ICMP => read_v4(quoted),
        _ => read_v6(quoted),
    }
}

fn read_v4(quoted: &[u8]) -> Option<(FlowKey, &[u8])> {
    // The total length is that of the packet when the error was made, of which most may be missing.
    let [first, _, _, _, _, _, flags, offset, _, protocol, ..] = *quoted else { return None };
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < ipv4::HEADER_LEN || u16::from_be_bytes([flags, offset]) & 0x1fff != 0 {
        return None;
    }
    let address = |at: usize| quoted.get(at..at + 4)?.first_chunk::<4>().copied().map(Into::into);
    let transport = quoted.get(header..)?;
    let ports = ports(protocol, transport)?;
    Some((FlowKey::v4(address(12)?, address(16)?, protocol, ports, PortId::NONE), transport))
}

fn read_v6(quoted: &[u8]) -> Option<(FlowKey, &[u8])> {
    let packet = ipv6::Packet::new_checked(quoted).ok()?;
    let walk = ipv6_ext::walk(&packet);
    if walk.end != End::UpperLayer {
        return None;
    }
    let transport = quoted.get(walk.offset..)?;
    let ports = ports(walk.protocol.0, transport)?;
    Some((FlowKey::v6(packet.src(), packet.dst(), walk.protocol.0, ports, PortId::NONE), transport))
}

/// Returns the ports of a quoted packet: 0 for a protocol without ports. Returns `None` if they are missing.
fn ports(protocol: u8, transport: &[u8]) -> Option<(u16, u16)> {
    if !Protocol(protocol).has_ports() {
        return Some((0, 0));
    }
    let [a, b, c, d, ..] = *transport else { return None };
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn v4(protocol: u8, transport: &[u8]) -> Vec<u8> {
        let header = [0x45, 0, 5, 220, 0, 7, 0, 0, 63, protocol, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
        [&[3, 1, 0, 0, 0, 0, 0, 0][..], &header, transport].concat()
    }

    fn key_of(protocol: u8, ports: (u16, u16), transport: &[u8]) -> (ConnectionKey, Orientation) {
        let [source, destination] = [[10, 1, 0, 2], [10, 2, 0, 2]].map(Ipv4Addr::from);
        ConnectionKey::of(&FlowKey::v4(source, destination, protocol, ports, PortId(4)), transport).unwrap()
    }

    #[test]
    fn errors_belong_to_the_connection_of_the_quoted_packet() {
        let tcp = [0, 80, 1, 0, 0, 0, 1, 1];
        let quoted = Quoted::read(1, &v4(6, &tcp)).unwrap();
        assert_eq!((quoted.key, quoted.orientation), key_of(6, (80, 256), &[]));
        let flow = quoted_flow(1, &v4(6, &tcp)).unwrap();
        assert_eq!((flow.source_port, flow.destination_port, flow.protocol), (80, 256, 6));
        let mut request = v4(6, &tcp);
        request[0] = 8;
        assert_eq!(quoted_flow(1, &request), None, "only errors quote packets");
        assert_eq!(quoted.sequence, Some(257));
        // An echo request, GRE and IP in IP.
        for (protocol, transport) in [(1, [8, 0, 1, 2, 0, 9, 0, 1]), (47, [0; 8]), (4, [0x45; 8])] {
            let quoted = Quoted::read(1, &v4(protocol, &transport)).unwrap();
            assert_eq!((quoted.key, quoted.orientation), key_of(protocol, (0, 0), &transport));
            assert_eq!(quoted.sequence, None);
        }
    }

    #[test]
    fn ipv6_error_quotes_behind_extension_headers() {
        let [source, destination] = [1u128, 2].map(Ipv6Addr::from_bits);
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, 60, 64];
        packet.extend_from_slice(&source.octets());
        packet.extend_from_slice(&destination.octets());
        packet.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0, 0, 53, 0, 99, 0, 8, 0, 0]);
        let quoted = Quoted::read(58, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &packet].concat()).unwrap();
        let key = FlowKey::v6(source, destination, 17, (53, 99), PortId(1));
        assert_eq!(Some((quoted.key, quoted.orientation)), ConnectionKey::of(&key, &[]));
    }

    #[test]
    fn later_fragment_and_quoted_error_belong_to_nothing() {
        let mut fragment = v4(17, &[0; 8]);
        fragment[8 + 7] = 3;
        assert_eq!(Quoted::read(1, &fragment), None);
        assert_eq!(Quoted::read(1, &v4(1, &[3, 1, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(Quoted::read(1, &v4(6, &[0, 80, 1])), None);
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_panic(octets: Vec<u8>, version in prop::sample::select(vec![0x45u8, 0x4f, 0x60])) {
            let mut octets = octets;
            if let Some(first) = octets.get_mut(HEADER) {
                *first = version;
            }
            for protocol in [1, 58] {
                let _ = quoted_flow(protocol, &octets);
                let _ = Quoted::read(protocol, &octets);
            }
        }
    }
}
