//! Describes a frame as the router describes it to a plugin: offsets, flow and exceptions. Understands
//! Ethernet with VLAN tags, IPv4, IPv6 with extension headers, and the ports of TCP, UDP, SCTP and UDP-Lite.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

use millrace_plugin_abi::binary::RawFlowEnd;

use crate::exceptions::{CUT, FRAGMENT, OPTIONS, TTL};

/// Flow key: a six-tuple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowName {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol; for IPv6 the upper-layer protocol.
    pub protocol: u8,
    /// Source port; 0 if the protocol has no ports, or if they can't be read.
    pub source_port: u16,
    /// Destination port; 0 if the protocol has no ports, or if they can't be read.
    pub destination_port: u16,
    /// Number of the ingress port.
    pub port: u16,
}

impl FlowName {
    /// Returns the address family: 4 or 6.
    #[must_use]
    pub fn family(&self) -> u8 {
        if self.source.is_ipv4() { 4 } else { 6 }
    }

    pub(super) fn end(&self) -> RawFlowEnd {
        let bytes = |address: IpAddr| match address {
            IpAddr::V6(address) => address.octets(),
            IpAddr::V4(address) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&address.octets());
                bytes
            }
        };
        RawFlowEnd {
            family: self.family(),
            protocol: self.protocol,
            source_port: self.source_port,
            destination_port: self.destination_port,
            port: self.port,
            source: bytes(self.source),
            destination: bytes(self.destination),
            ..RawFlowEnd::default()
        }
    }
}

/// Description of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// Offset of the network header.
    pub network: u16,
    /// Offset of the transport header; `None` if it can't be read.
    pub transport: Option<u16>,
    /// EtherType behind all VLAN tags.
    pub ether_type: u16,
    /// Flow key, with 0 as its ingress port.
    pub flow: FlowName,
    /// Exception bits; see [`exceptions`](crate::exceptions).
    pub exceptions: u8,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Describes a frame; returns `None` if the frame is not IP, or its network header is truncated.
#[must_use]
pub fn describe(frame: &[u8]) -> Option<Description> {
    let mut at = 12;
    while matches!(word(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let (ether_type, network) = (word(frame, at)?, at + 2);
    let header = frame.get(network..)?;
    let found = match ether_type {
        0x0800 => ipv4(header)?,
        0x86dd => ipv6(header)?,
        _ => return None,
    };
    let ports = header.get(found.transport..).and_then(|header| Some((word(header, 0)?, word(header, 2)?)));
    let mut exceptions = found.exceptions;
    let readable = exceptions & (FRAGMENT | CUT) == 0;
    let has_ports = matches!(found.protocol, 6 | 17 | 132 | 136);
    if readable && has_ports && ports.is_none() {
        exceptions |= CUT;
    }
    let (source_port, destination_port) = ports.filter(|_| readable && has_ports).unwrap_or_default();
    let transport = (exceptions & (FRAGMENT | CUT) == 0).then_some(network + found.transport);
    let flow = FlowName {
        source: found.source,
        destination: found.destination,
        protocol: found.protocol,
        source_port,
        destination_port,
        port: 0,
    };
    Some(Description {
        network: network as u16,
        transport: transport.map(|offset| offset as u16),
        ether_type,
        flow,
        exceptions,
    })
}

struct Network {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    transport: usize,
    exceptions: u8,
}

fn ipv4(header: &[u8]) -> Option<Network> {
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?).into());
    let transport = usize::from(header.first()? & 15) * 4;
    let mut exceptions = if transport > 20 { OPTIONS } else { 0 };
    if *header.get(8)? < 2 {
        exceptions |= TTL;
    }
    if word(header, 6)? & 0x1fff != 0 {
        exceptions |= FRAGMENT;
    }
    let (source, destination) = (address(12)?, address(16)?);
    (transport >= 20).then_some(Network { source, destination, protocol: header[9], transport, exceptions })
}

fn ipv6(header: &[u8]) -> Option<Network> {
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?).into());
    let (source, destination) = (address(8)?, address(24)?);
    let mut found = Network { source, destination, protocol: header[6], transport: 40, exceptions: 0 };
    if header[7] < 2 {
        found.exceptions |= TTL;
    }
    for _ in 0..8 {
        let length = match found.protocol {
            0 | 43 | 60 => header.get(found.transport + 1).map(|length| (usize::from(*length) + 1) * 8),
            44 => Some(8),
            _ => return Some(found),
        };
        let (Some(length), Some(next)) = (length, header.get(found.transport)) else { break };
        if found.protocol == 44 && word(header, found.transport + 2)? & 0xfff8 != 0 {
            found.exceptions |= FRAGMENT;
        }
        if found.protocol == 0 {
            found.exceptions |= OPTIONS;
        }
        (found.protocol, found.transport) = (*next, found.transport + length);
        if found.exceptions & FRAGMENT != 0 {
            return Some(found);
        }
    }
    found.exceptions |= CUT;
    Some(found)
}

/// Builds a frame of a flow, with a payload. Only UDP and TCP get a transport header.
#[must_use]
pub fn frame_of_ports(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let mut transport = vec![];
    if matches!(protocol, 6 | 17) {
        transport.extend(ports.0.to_be_bytes());
        transport.extend(ports.1.to_be_bytes());
    }
    match protocol {
        6 => transport.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]),
        17 => transport.extend([(8 + payload.len() as u16).to_be_bytes(), [0, 0]].concat()),
        _ => {}
    }
    transport.extend(payload);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let length = transport.len() as u16;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (source, destination) => {
            let v6 = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(v6(source).octets());
            frame.extend(v6(destination).octets());
        }
    }
    frame.extend(transport);
    mend_checksums(&mut frame);
    frame
}

/// Sets the IPv4, TCP and UDP checksums of a frame, which must not be a fragment.
pub fn mend_checksums(frame: &mut [u8]) {
    let Some(about) = describe(frame) else { return };
    let network = usize::from(about.network);
    if about.flow.family() == 4 {
        frame[network + 10..network + 12].fill(0);
        let end = network + usize::from(frame[network] & 15) * 4;
        let sum = frame.get(network..end).map_or(0, |header| checksum(&[header]));
        frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let Some(transport) = about.transport.map(usize::from) else { return };
    let (place, protocol) = match about.flow.protocol {
        6 => (transport + 16, 6),
        17 => (transport + 6, 17),
        _ => return,
    };
    if frame.len() < place + 2 {
        return;
    }
    frame[place..place + 2].fill(0);
    let addresses =
        if about.flow.family() == 4 { network + 12..network + 20 } else { network + 8..network + 40 };
    let length = ((frame.len() - transport) as u16).to_be_bytes();
    let sum = checksum(&[&frame[addresses], &[0, protocol], &length, &frame[transport..]]);
    let sum = if sum == 0 && protocol == 17 { u16::MAX } else { sum };
    frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Computes the checksum of RFC 1071 over `pieces`, one after the other. Only the last piece may have an odd
/// length.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let mut sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_description_matches_the_frame() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let frame = frame_of_ports(a, b, 17, (53, 4000), b"abc");
        let about = describe(&frame).unwrap();
        assert_eq!((about.network, about.transport, about.exceptions), (14, Some(34), 0));
        let flow = about.flow;
        assert_eq!(
            (flow.source, flow.destination, flow.source_port, flow.destination_port),
            (a, b, 53, 4000)
        );
        // Over a header with a valid checksum, the result is 0.
        assert_eq!(checksum(&[&frame[14..34]]), 0);
    }

    #[test]
    fn tags_and_extension_headers_are_gone_through() {
        let one = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
        let mut frame = frame_of_ports(one, one, 6, (1, 80), &[]);
        frame.splice(12..12, [0x81, 0, 0, 5]);
        frame[18 + 6] = 0;
        frame.splice(58..58, [6, 0, 0, 0, 0, 0, 0, 0]);
        let about = describe(&frame).unwrap();
        assert_eq!((about.ether_type, about.transport, about.exceptions), (0x86dd, Some(66), OPTIONS));
        assert_eq!((about.flow.protocol, about.flow.destination_port), (6, 80));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(mut bytes: Vec<u8>, ether_type in 0..3_usize) {
            let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0]];
            if bytes.len() > 14 {
                bytes[12..14].copy_from_slice(&kinds[ether_type]);
            }
            let _ = describe(&bytes);
            mend_checksums(&mut bytes);
        }
    }
}
