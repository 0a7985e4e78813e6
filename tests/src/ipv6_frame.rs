//! Builder of IPv6 frames, correct or wrong in any field.

use std::net::Ipv6Addr;

use crate::checksum::transport_checksum6;
use crate::link::{Frame, Link, link_setters};

/// Content after the IPv6 header and its extension headers.
#[derive(Clone, Debug)]
enum Transport {
    Udp { ports: (u16, u16) },
    Tcp { ports: (u16, u16), flags: u8 },
    Icmp { kind: u8, code: u8, rest: [u8; 4] },
    Raw,
}

/// IPv6 frame. Fields that a test doesn't set are correct: the frame goes from the host behind port a to
/// fd00:9::1 behind port b.
#[derive(Clone, Debug)]
pub struct Ipv6Frame {
    link: Link,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    transport: Transport,
    payload: Vec<u8>,
    /// Extension headers. Each has its protocol number, and its bytes without the next header field.
    extensions: Vec<(u8, Vec<u8>)>,
    hop_limit: u8,
    traffic_class: u8,
    flow_label: u32,
    version: u8,
    payload_length: Option<u16>,
    cut: Option<usize>,
    pad: usize,
}

impl Ipv6Frame {
    fn new(protocol: u8, transport: Transport, payload: &[u8]) -> Self {
        Self {
            link: Link::new(0x86dd),
            source: Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2),
            destination: Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1),
            protocol,
            transport,
            payload: payload.into(),
            extensions: Vec::new(),
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            version: 6,
            payload_length: None,
            cut: None,
            pad: 0,
        }
    }

    /// Returns a UDP packet from port 1000 to port 2000.
    pub fn udp() -> Self {
        Self::new(17, Transport::Udp { ports: (1000, 2000) }, b"payload of udp")
    }

    /// Returns a TCP segment with ACK from port 1000 to port 2000.
    pub fn tcp() -> Self {
        Self::new(6, Transport::Tcp { ports: (1000, 2000), flags: 0x10 }, b"payload of tcp")
    }

    /// Returns an echo request.
    pub fn echo() -> Self {
        Self::icmp(128, 0)
    }

    /// Returns an ICMPv6 message.
    pub fn icmp(kind: u8, code: u8) -> Self {
        Self::new(58, Transport::Icmp { kind, code, rest: [0x12, 0x34, 0, 1] }, b"payload of icmp!")
    }

    /// Returns a packet with any next header; only the payload follows the IPv6 header.
    pub fn raw(protocol: u8) -> Self {
        Self::new(protocol, Transport::Raw, b"payload of some protocol")
    }

    link_setters!();

    /// Sets the source address.
    pub fn src(mut self, address: &str) -> Self {
        self.source = address.parse().expect("an IPv6 address");
        self
    }

    /// Sets the destination address.
    pub fn dst(mut self, address: &str) -> Self {
        self.destination = address.parse().expect("an IPv6 address");
        self
    }

    /// Sets the hop limit.
    pub fn hop_limit(mut self, hops: u8) -> Self {
        self.hop_limit = hops;
        self
    }

    /// Sets the traffic class.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = class;
        self
    }

    /// Sets the flow label, 20 bits.
    pub fn flow_label(mut self, label: u32) -> Self {
        self.flow_label = label;
        self
    }

    /// Adds an extension header after the existing ones. `number` is its protocol number; `bytes` are its
    /// bytes without the next header field.
    pub fn extension(mut self, number: u8, bytes: &[u8]) -> Self {
        self.extensions.push((number, bytes.into()));
        self
    }

    /// Adds a fragment header. `offset` is in bytes, a multiple of 8.
    pub fn fragment(self, offset: u16, more: bool, identification: u32) -> Self {
        let field = (offset | u16::from(more)).to_be_bytes();
        let identification = identification.to_be_bytes();
        self.extension(44, &[&[0][..], &field, &identification].concat())
    }

    /// Sets source and destination port, for UDP and TCP.
    pub fn ports(mut self, source: u16, destination: u16) -> Self {
        match &mut self.transport {
            Transport::Udp { ports } | Transport::Tcp { ports, .. } => *ports = (source, destination),
            Transport::Icmp { .. } | Transport::Raw => panic!("only UDP and TCP have ports"),
        }
        self
    }

    /// Sets the TCP flags: FIN is 1, ACK is 16.
    pub fn flags(mut self, value: u8) -> Self {
        match &mut self.transport {
            Transport::Tcp { flags, .. } => *flags = value,
            _ => panic!("only TCP has flags"),
        }
        self
    }

    /// Returns the packet as fragments with `size` bytes after the fragment header, a multiple of 8. The last
    /// fragment may be shorter.
    pub fn pieces(&self, size: u16, identification: u32) -> Vec<Self> {
        let bytes = self.transport_bytes();
        let pieces = bytes.chunks(size.into()).zip((0..).step_by(size.into()));
        let piece = |(part, at): (&[u8], u16)| {
            let rest = bytes.len() > usize::from(at) + part.len();
            let piece = Self { transport: Transport::Raw, payload: part.into(), ..self.clone() };
            piece.fragment(at, rest, identification)
        };
        pieces.map(piece).collect()
    }

    /// Sets the data after the transport header.
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.into();
        self
    }

    /// Fills the data after the transport header with a pattern, up to an IP packet of `length` bytes.
    pub fn length(mut self, length: usize) -> Self {
        self.payload.clear();
        let headers = self.packet().len();
        self.payload = (0..length - headers).map(|at| (at * 7 + at / 256) as u8).collect();
        self
    }

    /// Sets the version field.
    pub fn version(mut self, version: u8) -> Self {
        self.version = version;
        self
    }

    /// Sets the payload length field.
    pub fn payload_length(mut self, length: u16) -> Self {
        self.payload_length = Some(length);
        self
    }

    /// Keeps only the first `length` bytes of the IP packet.
    pub fn cut(mut self, length: usize) -> Self {
        self.cut = Some(length);
        self
    }

    /// Pads the frame to `length` bytes with `0xaa`.
    pub fn pad(mut self, length: usize) -> Self {
        self.pad = length;
        self
    }

    /// Returns the IPv6 packet without the link header.
    pub fn packet(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let numbers: Vec<u8> =
            self.extensions.iter().map(|(number, _)| *number).chain([self.protocol]).collect();
        for (at, (_, bytes)) in self.extensions.iter().enumerate() {
            body.push(numbers[at + 1]);
            body.extend(bytes);
        }
        body.extend(self.transport_bytes());
        let first = u32::from(self.version) << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        let mut packet = first.to_be_bytes().to_vec();
        packet.extend(self.payload_length.unwrap_or(body.len() as u16).to_be_bytes());
        packet.extend([numbers[0], self.hop_limit]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(body);
        packet.truncate(self.cut.unwrap_or(packet.len()));
        packet
    }

    fn transport_bytes(&self) -> Vec<u8> {
        let (mut bytes, at) = match &self.transport {
            Transport::Udp { ports } => {
                let fields = [ports.0, ports.1, 8 + self.payload.len() as u16, 0];
                (fields.iter().flat_map(|field| field.to_be_bytes()).collect(), 6)
            }
            Transport::Tcp { ports, flags } => {
                let mut bytes: Vec<u8> =
                    [ports.0, ports.1].iter().flat_map(|port| port.to_be_bytes()).collect();
                bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, *flags, 0x20, 0, 0, 0, 0, 0]);
                (bytes, 16)
            }
            Transport::Icmp { kind, code, rest } => ([&[*kind, *code, 0, 0][..], rest].concat(), 2),
            Transport::Raw => return self.payload.clone(),
        };
        bytes.extend(&self.payload);
        let sum = transport_checksum6(self.source, self.destination, self.protocol, &bytes).to_be_bytes();
        bytes[at..at + 2].copy_from_slice(&sum);
        bytes
    }
}

impl Frame for Ipv6Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.link.frame(&self.packet());
        bytes.resize(bytes.len().max(self.pad), 0xaa);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a packet with bytes written by hand from RFC 8200 and RFC 768.
    #[test]
    fn packet_matches_the_rfcs_byte_by_byte() {
        let packet = Ipv6Frame::udp().payload(b"hi").traffic_class(0xb8).flow_label(0x12345).packet();
        let expected = [
            0x6b, 0x81, 0x23, 0x45, 0x00, 0x0a, 0x11,
            0x40, // version, class, label, length, UDP, 64 hops
            0xfd, 0x00, 0x00, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, // source
            0xfd, 0x00, 0x00, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, // destination
            0x03, 0xe8, 0x07, 0xd0, 0x00, 0x0a, 0x91, 0xaa, 0x68, 0x69, // UDP
        ];
        assert_eq!(packet, expected);
    }

    #[test]
    fn extension_headers_name_the_next_header() {
        let packet = Ipv6Frame::udp().extension(60, &[0, 1, 4, 0, 0, 0, 0]).fragment(8, true, 7).packet();
        assert_eq!((packet[6], packet[40], packet[48]), (60, 44, 17));
        assert_eq!(packet[48..56], [17, 0, 0, 9, 0, 0, 0, 7]);
    }
}
