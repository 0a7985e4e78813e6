//! Frames sent by the router, and accessors for their headers.

use std::net::IpAddr;

use millrace_wire::{MacAddr, arp, ethernet, ipv4, ipv6, ndp, vlan};

use crate::checksum::{checksum, transport_checksum6};

/// Frame sent by a port.
#[derive(Clone, PartialEq, Eq)]
pub struct Output {
    /// Bytes of the frame.
    pub bytes: Vec<u8>,
    network: usize,
    ether_type: u16,
}

/// ICMP message of either family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpView {
    /// Source address of the packet that contains the message.
    pub source: IpAddr,
    /// Destination address of the packet that contains the message.
    pub destination: IpAddr,
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Four bytes after the checksum of the ICMP header.
    pub rest: [u8; 4],
    /// Content after the ICMP header; in an error, the quoted packet.
    pub body: Vec<u8>,
}

impl Output {
    /// Returns a frame with its link header parsed.
    ///
    /// # Panics
    /// When the link header is cut short: a router sends no such frame.
    pub fn new(bytes: Vec<u8>) -> Self {
        let frame = ethernet::Frame::new_checked(&bytes[..]).expect("a whole Ethernet header");
        let stack = vlan::Stack::parse(frame.ether_type(), frame.payload()).expect("whole VLAN tags");
        let (network, ether_type) = (ethernet::HEADER_LEN + stack.len, stack.ether_type.0);
        Self { bytes, network, ether_type }
    }

    /// Returns the destination MAC address.
    pub fn to(&self) -> MacAddr {
        ethernet::Frame::new_unchecked(&self.bytes[..]).destination()
    }

    /// Returns the source MAC address.
    pub fn from(&self) -> MacAddr {
        ethernet::Frame::new_unchecked(&self.bytes[..]).source()
    }

    /// Returns the EtherType after the VLAN tags.
    pub fn ether_type(&self) -> u16 {
        self.ether_type
    }

    /// Returns the bytes of all VLAN tags, TPIDs included.
    pub fn tags(&self) -> &[u8] {
        &self.bytes[12..self.network - 2]
    }

    /// Returns all bytes after the link header.
    pub fn network(&self) -> &[u8] {
        &self.bytes[self.network..]
    }

    /// Checks header checksum and length of the IPv4 packet, and returns it.
    ///
    /// # Panics
    /// When the frame carries no IPv4 packet, or an invalid one.
    pub fn ipv4(&self) -> ipv4::Packet<&[u8]> {
        assert_eq!(self.ether_type, 0x0800, "not an IPv4 frame: {self:?}");
        let packet = ipv4::Packet::new_checked(self.network()).expect("a whole IPv4 header");
        assert_eq!(checksum(packet.header()), 0, "wrong header checksum: {self:?}");
        assert!(usize::from(packet.total_len()) <= self.network().len(), "shorter than it says: {self:?}");
        packet
    }

    /// Checks the length of the IPv6 packet, and returns it.
    ///
    /// # Panics
    /// When the frame carries no IPv6 packet, or an invalid one.
    pub fn ipv6(&self) -> ipv6::Packet<&[u8]> {
        assert_eq!(self.ether_type, 0x86dd, "not an IPv6 frame: {self:?}");
        let packet = ipv6::Packet::new_checked(self.network()).expect("a whole IPv6 header");
        assert!(packet.total_len() <= self.network().len(), "shorter than it says: {self:?}");
        packet
    }

    /// Returns the ARP message.
    ///
    /// # Panics
    /// When the frame carries no ARP message.
    pub fn arp(&self) -> arp::Repr {
        assert_eq!(self.ether_type, 0x0806, "not an ARP frame: {self:?}");
        let packet = arp::Packet::new_checked(self.network()).expect("a whole ARP message");
        arp::Repr::parse(&packet).expect("a sound ARP message")
    }

    /// Checks the neighbour discovery message, and returns it.
    ///
    /// # Panics
    /// When the frame carries no such message, or an invalid one.
    pub fn ndp(&self) -> ndp::Packet<&[u8]> {
        let packet = self.ipv6();
        assert_eq!(packet.next_header().0, 58, "not ICMPv6: {self:?}");
        let end = packet.total_len();
        let bytes = &self.network()[ipv6::HEADER_LEN..end];
        ndp::validate(packet.hop_limit(), packet.src(), packet.dst(), bytes).expect("a valid message")
    }

    /// Checks the checksum of the ICMP or ICMPv6 message, and returns the message.
    ///
    /// # Panics
    /// When the frame carries no such message, or an invalid one.
    pub fn icmp(&self) -> IcmpView {
        let (source, destination, bytes) = if self.ether_type == 0x0800 {
            let packet = self.ipv4();
            assert_eq!(packet.protocol().0, 1, "not ICMP: {self:?}");
            let bytes = &self.network()[packet.header_len()..packet.total_len().into()];
            assert_eq!(checksum(bytes), 0, "wrong ICMP checksum: {self:?}");
            (packet.src().into(), packet.dst().into(), bytes)
        } else {
            let packet = self.ipv6();
            assert_eq!(packet.next_header().0, 58, "not ICMPv6: {self:?}");
            let bytes = &self.network()[ipv6::HEADER_LEN..packet.total_len()];
            let sum = transport_checksum6(packet.src(), packet.dst(), 58, bytes);
            assert_eq!(sum, 0, "wrong ICMPv6 checksum: {self:?}");
            (packet.src().into(), packet.dst().into(), bytes)
        };
        assert!(bytes.len() >= 8, "cut short: {self:?}");
        let rest = [bytes[4], bytes[5], bytes[6], bytes[7]];
        IcmpView { source, destination, kind: bytes[0], code: bytes[1], rest, body: bytes[8..].into() }
    }

    /// Whether the frame carries an ICMP or ICMPv6 error.
    pub fn is_icmp_error(&self) -> bool {
        let network = self.network();
        match self.ether_type {
            0x0800 => {
                network[9] == 1 && matches!(network[usize::from(network[0] & 15) * 4], 3 | 4 | 5 | 11 | 12)
            }
            0x86dd => network[6] == 58 && network[40] < 128,
            _ => false,
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {} {:#06x}", self.from(), self.to(), self.ether_type)?;
        let shown = &self.network()[..self.network().len().min(96)];
        shown.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
        write!(f, " ({} bytes)", self.bytes.len())
    }
}
