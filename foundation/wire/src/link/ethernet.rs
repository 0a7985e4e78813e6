//! Ethernet II frames (IEEE 802.3, 3.2.6), without preamble and frame check sequence.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has the 14-octet header.

use std::fmt;

use crate::bytes::{field_types, fields, octets, view};
use crate::error::need;
use crate::{MacAddr, WireError};

/// Length in octets of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;

/// EtherType: the protocol of the payload of an Ethernet frame or a VLAN tag (IANA, *IEEE 802 Numbers*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// Customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// Flow control (IEEE 802.3, annex 31B).
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// MPLS, unicast (RFC 3032).
    pub const MPLS: Self = Self(0x8847);
    /// Service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Link layer discovery (IEEE 802.1AB).
    pub const LLDP: Self = Self(0x88cc);

    /// Returns whether the type announces a VLAN tag.
    #[inline]
    #[must_use]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }
}

field_types! {
    EtherType: |octets| Self(u16::from_be_bytes(octets)), |ether_type: Self| ether_type.0.to_be_bytes();
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
    /// View of an Ethernet frame.
    Frame
}

fields! {
    Frame:
    /// Destination address.
    destination: MacAddr = 0;
    /// Source address.
    source: MacAddr = 6;
    /// EtherType of the payload.
    ether_type: EtherType = 12;
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// Accepts a buffer of at least 14 octets, the header.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("ethernet", HEADER_LEN, self.data())
    }

    /// Returns the payload after the header, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        octets(self.data(), HEADER_LEN..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirteen_octets_are_refused_with_the_numbers() {
        let error = Frame::new_checked([0u8; 13]).unwrap_err();
        assert_eq!(error.to_string(), "ethernet: needs 14 octets, but only 13 are present");
    }

    #[test]
    fn fields_are_read_at_their_offsets() {
        let octets: [u8; HEADER_LEN] = std::array::from_fn(|at| at as u8);
        let frame = Frame::new_checked(octets).unwrap();
        assert_eq!(frame.destination(), MacAddr([0, 1, 2, 3, 4, 5]));
        assert_eq!(frame.source(), MacAddr([6, 7, 8, 9, 10, 11]));
        assert_eq!(frame.ether_type(), EtherType(0x0c0d));
    }
}
