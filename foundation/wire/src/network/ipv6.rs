//! IPv6 headers (RFC 8200, 3). Module [`ipv6_ext`](crate::ipv6_ext) has the extension headers.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has the 40-octet header.
//! [`sanity`] decides whether a router may forward the packet; it has one fault per rule.

use std::fmt;
use std::net::Ipv6Addr;

use crate::bytes::{Field as _, fields, octets, view};
use crate::error::need;
use crate::{Protocol, WireError, checksum};

/// Length in octets of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Smallest MTU that an IPv6 link may have, in octets (RFC 8200, 5).
pub const MIN_MTU: usize = 1280;

/// Offset of the word that holds version, traffic class and flow label.
const FIRST_WORD: usize = 0;

/// Faults for which a router must not forward an IPv6 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ipv6Fault {
    /// The frame has fewer than 40 octets after the link header.
    Short,
    /// The version is not 6.
    Version,
    /// The payload length is zero, although the header announces hop-by-hop options. The packet is a
    /// jumbogram (RFC 2675), which this router does not accept, or has no room for its options.
    PayloadLength,
    /// The payload length exceeds the number of octets in the frame.
    Truncated,
}

impl fmt::Display for Ipv6Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "ipv6: less than 40 octets",
            Self::Version => "ipv6: version is not 6",
            Self::PayloadLength => "ipv6: payload length is 0, although a hop-by-hop options header follows",
            Self::Truncated => "ipv6: payload length exceeds the received octets",
        })
    }
}

impl std::error::Error for Ipv6Fault {}

/// Checks an IPv6 packet. `data`: octets from the IPv6 header on, at least the fixed header. `frame_len`:
/// number of octets in the frame from the IPv6 header on, padding included. The error is the first rule
/// broken, in the order of [`Ipv6Fault`].
#[inline]
pub fn sanity(data: &[u8], frame_len: usize) -> Result<(), Ipv6Fault> {
    let packet = Packet::new_unchecked(data);
    if data.len() < HEADER_LEN || frame_len < HEADER_LEN {
        return Err(Ipv6Fault::Short);
    }
    if packet.version() != 6 {
        return Err(Ipv6Fault::Version);
    }
    if packet.payload_len() == 0 && packet.next_header() == Protocol::HOP_BY_HOP {
        return Err(Ipv6Fault::PayloadLength);
    }
    if HEADER_LEN + usize::from(packet.payload_len()) > frame_len {
        return Err(Ipv6Fault::Truncated);
    }
    Ok(())
}

view! {
    /// View of an IPv6 packet.
    Packet
}

fields! {
    Packet:
    /// Length of the payload after the fixed header, in octets.
    payload_len / set_payload_len: u16 = 4;
    /// Protocol number of the header after the fixed header.
    next_header / set_next_header: Protocol = 6;
    /// Number of hops that the packet may still make.
    hop_limit / set_hop_limit: u8 = 7;
    /// Source address.
    src / set_src: Ipv6Addr = 8;
    /// Destination address.
    dst / set_dst: Ipv6Addr = 24;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer of at least 40 octets, the fixed header.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("ipv6", HEADER_LEN, self.data())
    }

    /// Returns the version, 6 in IPv6 packets.
    #[inline]
    pub fn version(&self) -> u8 {
        u8::get(self.data(), FIRST_WORD) >> 4
    }

    /// Returns the octet of DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (u16::get(self.data(), FIRST_WORD) >> 4) as u8
    }

    /// Returns the DSCP, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Returns the ECN field, 0 to 3.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Returns the flow label, 20 bits (RFC 6437).
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32::get(self.data(), FIRST_WORD) & 0x000f_ffff
    }

    /// Returns the length of header and payload in octets.
    #[inline]
    pub fn total_len(&self) -> usize {
        HEADER_LEN + usize::from(self.payload_len())
    }

    /// Returns the payload: up to the payload length, or to the end of the buffer if that comes first. Link
    /// padding is not included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let end = self.total_len().min(self.data().len());
        octets(self.data(), HEADER_LEN..end)
    }

    /// Returns the sum of the pseudo-header for `length` octets of an upper-layer `protocol`, with the
    /// destination address of this header. The function ignores a routing header: with segments left, the
    /// final destination would have to be used instead.
    #[inline]
    pub fn pseudo_header(&self, protocol: Protocol, length: u32) -> checksum::Sum {
        checksum::pseudo_header_v6(self.src(), self.dst(), protocol, length)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets version 6, traffic class and flow label. Only the lower 20 bits of the flow label count.
    pub fn set_class_and_label(&mut self, traffic_class: u8, flow_label: u32) {
        let word = 6 << 28 | u32::from(traffic_class) << 20 | (flow_label & 0x000f_ffff);
        word.put(self.buffer.as_mut(), FIRST_WORD);
    }

    /// Sets the octet of DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, traffic_class: u8) {
        let word = (u16::get(self.data(), FIRST_WORD) & 0xf00f) | u16::from(traffic_class) << 4;
        word.put(self.buffer.as_mut(), FIRST_WORD);
    }

    /// Decrements the hop limit. Returns `false`, and changes nothing, if it is 0 or 1 (RFC 8200, 3), so that
    /// the packet must not be forwarded.
    #[inline]
    #[must_use]
    pub fn decrement_hop_limit(&mut self) -> bool {
        let hops = self.hop_limit();
        if hops <= 1 {
            return false;
        }
        self.set_hop_limit(hops - 1);
        true
    }
}

/// IPv6 header as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Protocol number of the header after the fixed header.
    pub next_header: Protocol,
    /// Length of the payload after the fixed header, in octets.
    pub payload_len: u16,
    /// Number of hops that the packet may make.
    pub hop_limit: u8,
    /// Octet of DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

impl Repr {
    /// Writes the fixed header.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        packet.set_class_and_label(self.traffic_class, self.flow_label);
        packet.set_payload_len(self.payload_len);
        packet.set_next_header(self.next_header);
        packet.set_hop_limit(self.hop_limit);
        packet.set_src(self.src);
        packet.set_dst(self.dst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next_header: Protocol, payload_len: u16, octets: usize) -> Vec<u8> {
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let repr = Repr {
            src,
            dst,
            next_header,
            payload_len,
            hop_limit: 64,
            traffic_class: 0xb8,
            flow_label: 0x12345,
        };
        let mut data = vec![0; HEADER_LEN + octets];
        repr.emit(&mut Packet::new_unchecked(&mut data[..]));
        data
    }

    fn fault(data: &[u8]) -> Result<(), Ipv6Fault> {
        sanity(data, data.len())
    }

    #[test]
    fn each_rule_has_a_separate_error() {
        assert_eq!(fault(&packet(Protocol::UDP, 8, 8)), Ok(()));
        assert_eq!(fault(&packet(Protocol::UDP, 8, 8)[..39]), Err(Ipv6Fault::Short));
        let mut other_version = packet(Protocol::UDP, 8, 8);
        other_version[0] = 0x45;
        assert_eq!(fault(&other_version), Err(Ipv6Fault::Version));
        assert_eq!(fault(&packet(Protocol::UDP, 9, 8)), Err(Ipv6Fault::Truncated));
        assert_eq!(fault(&packet(Protocol::HOP_BY_HOP, 8, 8)), Ok(()));
        assert_eq!(fault(&packet(Protocol::HOP_BY_HOP, 0, 8)), Err(Ipv6Fault::PayloadLength));
        assert_eq!(fault(&packet(Protocol::NO_NEXT_HEADER, 0, 0)), Ok(()));
    }

    #[test]
    fn payload_ends_at_its_length_without_padding() {
        let data = packet(Protocol::UDP, 8, 20);
        assert_eq!(fault(&data), Ok(()));
        assert_eq!(Packet::new_checked(&data[..]).unwrap().payload().len(), 8);
    }

    #[test]
    fn the_last_hops_are_not_taken_off() {
        let mut data = packet(Protocol::UDP, 0, 0);
        let mut packet = Packet::new_checked(&mut data[..]).unwrap();
        packet.set_hop_limit(2);
        assert!(packet.decrement_hop_limit());
        assert!(!packet.decrement_hop_limit());
        assert_eq!(packet.hop_limit(), 1);
    }

    #[test]
    fn a_new_traffic_class_leaves_version_and_label() {
        let mut data = packet(Protocol::UDP, 0, 0);
        let mut packet = Packet::new_checked(&mut data[..]).unwrap();
        packet.set_traffic_class(0x2e);
        assert_eq!((packet.version(), packet.traffic_class(), packet.flow_label()), (6, 0x2e, 0x12345));
        assert_eq!((packet.dscp(), packet.ecn()), (0x0b, 2));
    }

    proptest! {
        #[test]
        fn getters_read_what_emit_wrote(src: u128, dst: u128, next in 1u8.., class: u8, hop_limit: u8,
                                        flow_label in 0u32..1 << 20, payload_len in 0u16..2000) {
            let repr = Repr {
                src: src.into(), dst: dst.into(), next_header: Protocol(next), payload_len, hop_limit,
                traffic_class: class, flow_label,
            };
            let mut data = vec![0xa5; HEADER_LEN + usize::from(payload_len)];
            repr.emit(&mut Packet::new_unchecked(&mut data[..]));
            prop_assert_eq!(fault(&data), Ok(()));
            let packet = Packet::new_checked(&data[..]).unwrap();
            let read = Repr {
                src: packet.src(), dst: packet.dst(), next_header: packet.next_header(),
                payload_len: packet.payload_len(), hop_limit: packet.hop_limit(),
                traffic_class: packet.traffic_class(), flow_label: packet.flow_label(),
            };
            prop_assert_eq!(read, repr);
        }
    }
}
