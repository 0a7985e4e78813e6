//! Builder of IPv4 frames, correct or wrong in any field.

use std::net::Ipv4Addr;

use crate::checksum::{checksum, transport_checksum4};
use crate::link::{Frame, Link, link_setters};

/// Content after the IPv4 header.
#[derive(Clone, Debug)]
enum Transport {
    Udp { ports: (u16, u16), checksum: Option<u16> },
    Tcp { ports: (u16, u16), flags: u8, acknowledged: u32, checksum: Option<u16> },
    Icmp { kind: u8, code: u8, rest: [u8; 4] },
    Raw,
}

/// IPv4 frame. Fields that a test doesn't set are correct: the frame goes from the host behind port a to
/// 10.9.0.1 behind port b.
#[derive(Clone, Debug)]
pub struct Ipv4Frame {
    link: Link,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    transport: Transport,
    payload: Vec<u8>,
    ttl: u8,
    tos: u8,
    identification: u16,
    /// Flags and fragment offset as in the header: flags in the upper three bits, then the offset in units of
    /// 8 bytes.
    fragment: u16,
    options: Vec<u8>,
    faults: Faults,
}

/// Deviations from a correct frame.
#[derive(Clone, Debug, Default)]
struct Faults {
    /// Version field, if it is not 4.
    version: Option<u8>,
    /// Header length field in 32-bit words, if it differs from the actual length.
    header_words: Option<u8>,
    /// Total length field, if it differs from the actual length.
    total_length: Option<u16>,
    /// Bits of the header checksum to flip.
    checksum_xor: u16,
    /// Length in bytes to which the IP packet is cut.
    cut: Option<usize>,
    /// Length in bytes to which the frame is padded.
    pad: usize,
}

impl Ipv4Frame {
    fn new(protocol: u8, transport: Transport, payload: &[u8]) -> Self {
        Self {
            link: Link::new(0x0800),
            source: Ipv4Addr::new(10, 1, 0, 2),
            destination: Ipv4Addr::new(10, 9, 0, 1),
            protocol,
            transport,
            payload: payload.into(),
            ttl: 64,
            tos: 0,
            identification: 0x1234,
            fragment: 0,
            options: Vec::new(),
            faults: Faults::default(),
        }
    }

    /// Returns a UDP packet from port 1000 to port 2000.
    pub fn udp() -> Self {
        Self::new(17, Transport::Udp { ports: (1000, 2000), checksum: None }, b"payload of udp")
    }

    /// Returns a TCP segment with ACK from port 1000 to port 2000.
    pub fn tcp() -> Self {
        Self::new(
            6,
            Transport::Tcp { ports: (1000, 2000), flags: 0x10, acknowledged: 2, checksum: None },
            b"payload of tcp",
        )
    }

    /// Returns an echo request.
    pub fn echo() -> Self {
        Self::icmp(8, 0)
    }

    /// Returns an ICMP message.
    pub fn icmp(kind: u8, code: u8) -> Self {
        Self::new(1, Transport::Icmp { kind, code, rest: [0x12, 0x34, 0, 1] }, b"payload of icmp!")
    }

    /// Returns a packet of any protocol; only the payload follows the IPv4 header.
    pub fn raw(protocol: u8) -> Self {
        Self::new(protocol, Transport::Raw, b"payload of some protocol")
    }

    link_setters!();

    /// Sets the source address.
    pub fn src(mut self, address: &str) -> Self {
        self.source = address.parse().expect("an IPv4 address");
        self
    }

    /// Sets the destination address.
    pub fn dst(mut self, address: &str) -> Self {
        self.destination = address.parse().expect("an IPv4 address");
        self
    }

    /// Sets the TTL.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the TOS byte: DSCP and ECN.
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// Sets the identification.
    pub fn id(mut self, identification: u16) -> Self {
        self.identification = identification;
        self
    }

    /// Sets the reserved ("evil") flag.
    pub fn evil(mut self) -> Self {
        self.fragment |= 0x8000;
        self
    }

    /// Sets "don't fragment".
    pub fn dont_fragment(mut self) -> Self {
        self.fragment |= 0x4000;
        self
    }

    /// Sets "more fragments".
    pub fn more_fragments(mut self) -> Self {
        self.fragment |= 0x2000;
        self
    }

    /// Sets the fragment offset, in bytes, a multiple of 8.
    pub fn offset(mut self, bytes: u16) -> Self {
        self.fragment |= bytes / 8;
        self
    }

    /// Sets the options, padded with zeros to a multiple of 4 bytes.
    pub fn options(mut self, options: &[u8]) -> Self {
        self.options = options.into();
        self.options.resize(options.len().next_multiple_of(4), 0);
        self
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

    /// Sets source and destination port, for UDP and TCP.
    pub fn ports(mut self, source: u16, destination: u16) -> Self {
        match &mut self.transport {
            Transport::Udp { ports, .. } | Transport::Tcp { ports, .. } => *ports = (source, destination),
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

    /// Sets the acknowledgment number of TCP.
    pub fn acknowledged(mut self, value: u32) -> Self {
        match &mut self.transport {
            Transport::Tcp { acknowledged, .. } => *acknowledged = value,
            _ => panic!("only TCP acknowledges"),
        }
        self
    }

    /// Returns the packet as fragments with `size` bytes after the IP header, a multiple of 8. The last
    /// fragment may be shorter.
    pub fn pieces(&self, size: u16) -> Vec<Self> {
        let bytes = self.transport_bytes();
        let pieces = bytes.chunks(size.into()).zip((0..).step_by(size.into()));
        let piece = |(part, at): (&[u8], u16)| {
            let rest = bytes.len() > usize::from(at) + part.len();
            let piece = Self { transport: Transport::Raw, payload: part.into(), ..self.clone() }.offset(at);
            if rest { piece.more_fragments() } else { piece }
        };
        pieces.map(piece).collect()
    }

    /// Sets the checksum field of the UDP or TCP header to `value`.
    pub fn transport_checksum(mut self, value: u16) -> Self {
        match &mut self.transport {
            Transport::Udp { checksum, .. } | Transport::Tcp { checksum, .. } => *checksum = Some(value),
            Transport::Icmp { .. } | Transport::Raw => panic!("only UDP and TCP have one that can be set"),
        }
        self
    }

    /// Sets the version field.
    pub fn version(mut self, version: u8) -> Self {
        self.faults.version = Some(version);
        self
    }

    /// Sets the header length field, in 32-bit words. The checksum is computed over this length.
    pub fn header_words(mut self, words: u8) -> Self {
        self.faults.header_words = Some(words);
        self
    }

    /// Sets the total length field.
    pub fn total_length(mut self, length: u16) -> Self {
        self.faults.total_length = Some(length);
        self
    }

    /// Flips these bits of the correct header checksum.
    pub fn checksum_xor(mut self, bits: u16) -> Self {
        self.faults.checksum_xor = bits;
        self
    }

    /// Keeps only the first `length` bytes of the IP packet.
    pub fn cut(mut self, length: usize) -> Self {
        self.faults.cut = Some(length);
        self
    }

    /// Pads the frame to `length` bytes with `0xaa`, which stands for leaked memory of the sender.
    pub fn pad(mut self, length: usize) -> Self {
        self.faults.pad = length;
        self
    }

    /// Returns the IPv4 packet without the link header.
    pub fn packet(&self) -> Vec<u8> {
        let transport = self.transport_bytes();
        let header_len = 20 + self.options.len();
        let words = self.faults.header_words.unwrap_or((header_len / 4) as u8);
        let total = self.faults.total_length.unwrap_or((header_len + transport.len()) as u16);
        let mut packet = vec![self.faults.version.unwrap_or(4) << 4 | words, self.tos];
        packet.extend(total.to_be_bytes());
        packet.extend(self.identification.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, self.protocol, 0, 0]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(&self.options);
        packet.extend(transport);
        let summed = (usize::from(words) * 4).min(packet.len());
        let sum = checksum(&packet[..summed]) ^ self.faults.checksum_xor;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.truncate(self.faults.cut.unwrap_or(packet.len()));
        packet
    }

    fn transport_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.transport {
            Transport::Udp { ports, checksum } => {
                bytes.extend(ports.0.to_be_bytes());
                bytes.extend(ports.1.to_be_bytes());
                bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
                self.finish(bytes, 6, *checksum)
            }
            Transport::Tcp { ports, flags, acknowledged, checksum } => {
                bytes.extend(ports.0.to_be_bytes());
                bytes.extend(ports.1.to_be_bytes());
                bytes.extend([0, 0, 0, 1]);
                bytes.extend(acknowledged.to_be_bytes());
                bytes.extend([0x50, *flags, 0x20, 0, 0, 0, 0, 0]);
                self.finish(bytes, 16, *checksum)
            }
            Transport::Icmp { kind, code, rest } => {
                bytes.extend([*kind, *code, 0, 0]);
                bytes.extend(rest);
                bytes.extend(&self.payload);
                let sum = checksum(&bytes).to_be_bytes();
                bytes[2..4].copy_from_slice(&sum);
                bytes
            }
            Transport::Raw => self.payload.clone(),
        }
    }

    fn finish(&self, mut bytes: Vec<u8>, at: usize, checksum: Option<u16>) -> Vec<u8> {
        bytes.extend(&self.payload);
        let right = || transport_checksum4(self.source, self.destination, self.protocol, &bytes);
        let sum = checksum.unwrap_or_else(right).to_be_bytes();
        bytes[at..at + 2].copy_from_slice(&sum);
        bytes
    }
}

impl Frame for Ipv4Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.link.frame(&self.packet());
        bytes.resize(bytes.len().max(self.faults.pad), 0xaa);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a frame with bytes written by hand from RFC 791 and RFC 768.
    #[test]
    fn frame_matches_the_rfcs_byte_by_byte() {
        let frame = Ipv4Frame::udp().payload(b"hi").dont_fragment().bytes();
        let expected = [
            0x02, 0x00, 0x00, 0x00, 0x00, 0x0a, 0x02, 0x00, 0x00, 0x00, 0x00, 0xa2, 0x08,
            0x00, // Ethernet
            0x45, 0x00, 0x00, 0x1e, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x14, 0x8f, // IPv4
            0x0a, 0x01, 0x00, 0x02, 0x0a, 0x09, 0x00, 0x01, // addresses
            0x03, 0xe8, 0x07, 0xd0, 0x00, 0x0a, 0x77, 0xac, 0x68, 0x69, // UDP
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn pieces_make_the_packet_again() {
        let frame = Ipv4Frame::tcp().length(100);
        let pieces: Vec<Vec<u8>> = frame.pieces(32).iter().map(Ipv4Frame::packet).collect();
        assert_eq!(
            pieces.iter().flat_map(|piece| &piece[20..]).copied().collect::<Vec<_>>(),
            frame.packet()[20..]
        );
        assert_eq!(
            pieces.iter().map(|piece| [piece[6], piece[7]]).collect::<Vec<_>>(),
            [[0x20, 0], [0x20, 4], [0, 8]]
        );
    }

    #[test]
    fn a_length_is_that_of_the_whole_packet() {
        assert_eq!(Ipv4Frame::tcp().options(&[1, 1]).length(1500).packet().len(), 1500);
    }
}
