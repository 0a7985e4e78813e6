//! Ethernet II frames (IEEE 802.3, 3.2.6), without preamble and frame check sequence.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has the 14-octet header. A value
//! below 0x0600 in the type field is an 802.3 length; [`EtherType::is_length`] detects it.

use std::fmt;

use crate::bytes::{array, get_u16, octets, octets_mut, put, put_u16, view};
use crate::error::need;
use crate::{MacAddr, WireError};

/// Length in octets of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;
/// Minimum length of a frame on the wire, in octets without frame check sequence; shorter frames are padded.
pub const MIN_FRAME_LEN: usize = 60;

mod field {
    pub const DESTINATION: usize = 0;
    pub const SOURCE: usize = 6;
    pub const ETHER_TYPE: usize = 12;
}

/// EtherType: the protocol of the payload of an Ethernet frame or a VLAN tag (IANA, *IEEE 802 Numbers*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// Flow control (IEEE 802.3, annex 31B).
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// MPLS, unicast (RFC 3032).
    pub const MPLS: Self = Self(0x8847);
    /// A service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Link layer discovery (IEEE 802.1AB).
    pub const LLDP: Self = Self(0x88cc);

    /// Whether this is an 802.3 length and not a type.
    #[inline]
    #[must_use]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }

    /// Whether a VLAN tag follows.
    #[inline]
    #[must_use]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::IPV4 => "ipv4",
            Self::ARP => "arp",
            Self::VLAN => "vlan",
            Self::IPV6 => "ipv6",
            Self::MAC_CONTROL => "mac-control",
            Self::MPLS => "mpls",
            Self::SERVICE_VLAN => "service-vlan",
            Self::LLDP => "lldp",
            Self(other) => return write!(f, "{other:#06x}"),
        })
    }
}

view! {
    /// A view of an Ethernet frame.
    Frame
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// Accepts a buffer that holds the header.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 14 octets.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("ethernet", HEADER_LEN, self.data())
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> MacAddr {
        MacAddr(array(self.data(), field::DESTINATION))
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> MacAddr {
        MacAddr(array(self.data(), field::SOURCE))
    }

    /// Returns the EtherType of the payload.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(get_u16(self.data(), field::ETHER_TYPE))
    }

    /// Returns the payload after the header, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        octets(self.data(), HEADER_LEN..)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Frame<T> {
    /// Sets the destination address.
    #[inline]
    pub fn set_destination(&mut self, address: MacAddr) {
        put(self.buffer.as_mut(), field::DESTINATION, &address.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_source(&mut self, address: MacAddr) {
        put(self.buffer.as_mut(), field::SOURCE, &address.0);
    }

    /// Sets the EtherType of the payload.
    #[inline]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        put_u16(self.buffer.as_mut(), field::ETHER_TYPE, ether_type.0);
    }

    /// Returns the payload after the header, for writes.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        octets_mut(self.buffer.as_mut(), HEADER_LEN..)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Frame<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::parse(self).fmt(f)
    }
}

/// An Ethernet header as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// EtherType of the payload.
    pub ether_type: EtherType,
}

impl Repr {
    /// Reads the header. Every field value is valid, so the function cannot fail.
    pub fn parse<T: AsRef<[u8]>>(frame: &Frame<T>) -> Self {
        Self { destination: frame.destination(), source: frame.source(), ether_type: frame.ether_type() }
    }

    /// Returns the number of octets that [`emit`](Self::emit) writes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, frame: &mut Frame<T>) {
        frame.set_destination(self.destination);
        frame.set_source(self.source);
        frame.set_ether_type(self.ether_type);
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ethernet {} > {} {}", self.source, self.destination, self.ether_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thirteen_octets_are_refused_with_the_numbers() {
        let error = Frame::new_checked([0u8; 13]).unwrap_err();
        assert_eq!(error.to_string(), "ethernet: needs 14 octets, but only 13 are present");
    }

    #[test]
    fn types_and_lengths_differ_at_0x600() {
        assert!(EtherType(0x05ff).is_length());
        assert!(!EtherType(0x0600).is_length());
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(destination: [u8; 6], source: [u8; 6], ether_type: u16) {
            let (destination, source) = (MacAddr(destination), MacAddr(source));
            let repr = Repr { destination, source, ether_type: EtherType(ether_type) };
            let mut frame = Frame::new_checked([0u8; HEADER_LEN]).unwrap();
            repr.emit(&mut frame);
            prop_assert_eq!(Repr::parse(&frame), repr);
        }
    }
}
