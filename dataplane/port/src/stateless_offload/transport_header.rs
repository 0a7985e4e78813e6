//! Minimal parser that locates a frame's transport header, for the corrections that a port makes to received
//! frames.

use millrace_wire::checksum::Sum;
use millrace_wire::{EtherType, Protocol, ethernet};

/// Maximum number of extension headers that are parsed.
const MAX_EXTENSIONS: usize = 8;

/// Location of a transport header in an unfragmented packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransportHeader {
    /// Offset of the network header in the frame.
    pub(crate) network: usize,
    /// Offset of the transport header in the frame.
    pub(crate) transport: usize,
    /// Length of transport header and data in bytes, as the network header declares.
    pub(crate) length: usize,
    /// Transport protocol: TCP, UDP or another.
    pub(crate) protocol: Protocol,
    /// Whether the packet is IPv6; otherwise IPv4.
    pub(crate) is_v6: bool,
}

impl TransportHeader {
    /// Locates the transport header in a frame's first bytes. Returns `None` for frames that are neither IPv4
    /// nor IPv6, for fragments, and for source-routed IPv6 packets. Also `None` if the network header is cut
    /// or contradicts itself.
    #[inline]
    pub(crate) fn locate(frame: &[u8]) -> Option<Self> {
        let mut network = ethernet::HEADER_LEN;
        let mut ether_type = EtherType(word(frame, network - 2)?);
        while ether_type.is_vlan() && network < ethernet::HEADER_LEN + 8 {
            network += 4;
            ether_type = EtherType(word(frame, network - 2)?);
        }
        match ether_type {
            EtherType::IPV4 => Self::behind_v4(frame, network),
            EtherType::IPV6 => Self::behind_v6(frame, network),
            _ => None,
        }
    }

    #[inline]
    fn behind_v4(frame: &[u8], network: usize) -> Option<Self> {
        let header = frame.get(network..)?.first_chunk::<20>()?;
        let header_length = usize::from(header[0] & 15) * 4;
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        if header[0] >> 4 != 4 || header_length < 20 || fragment != 0 {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        Some(Self {
            network,
            transport: network + header_length,
            length: total.checked_sub(header_length)?,
            protocol: Protocol(header[9]),
            is_v6: false,
        })
    }

    #[inline]
    fn behind_v6(frame: &[u8], network: usize) -> Option<Self> {
        let header = frame.get(network..)?.first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let end = network + 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (transport, protocol) = behind_extensions(frame, network + 40, Protocol(header[6]))?;
        Some(Self { network, transport, length: end.checked_sub(transport)?, protocol, is_v6: true })
    }

    /// Returns the sum of the pseudo-header of a packet with `length` bytes of transport header and data.
    /// `frame` must be the frame that was parsed.
    #[inline]
    pub(crate) fn pseudo_header(&self, frame: &[u8], length: usize) -> Sum {
        let sum = if self.is_v6 {
            words::<32>(frame, self.network + 8)
        } else {
            words::<8>(frame, self.network + 12)
        };
        sum.word(u16::from(self.protocol.0)).word((length >> 16) as u16).word(length as u16)
    }
}

/// Returns the sum of the `N` bytes at `at`; zero if the frame is too short. The loop is unrolled, because
/// `Sum::bytes` costs more for so few bytes.
#[inline]
fn words<const N: usize>(frame: &[u8], at: usize) -> Sum {
    let bytes = frame.get(at..).and_then(<[u8]>::first_chunk::<N>).copied().unwrap_or([0; N]);
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().fold(Sum::new(), |sum, pair| sum.word(u16::from_be_bytes(*pair)))
}

#[inline]
fn behind_extensions(frame: &[u8], mut at: usize, mut protocol: Protocol) -> Option<(usize, Protocol)> {
    for _ in 0..MAX_EXTENSIONS {
        match protocol {
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {}
            // Only without segments left: otherwise the pseudo-header has another destination than the header
            // (RFC 8200, 8.1).
            Protocol::ROUTING if *frame.get(at + 3)? == 0 => {}
            Protocol::ROUTING | Protocol::FRAGMENT => return None,
            _ => return Some((at, protocol)),
        }
        protocol = Protocol(*frame.get(at)?);
        at += 8 + 8 * usize::from(*frame.get(at + 1)?);
    }
    None
}

/// Returns the 16-bit word at `at`, if it exists.
#[inline]
pub(crate) fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}
