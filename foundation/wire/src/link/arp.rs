//! ARP (RFC 826) for IPv4 over Ethernet.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has 28 octets. Their results have
//! a meaning only if [`Repr::parse`] accepts the packet: hardware and protocol types and lengths must be
//! those of Ethernet and IPv4.

use std::net::Ipv4Addr;

use crate::bytes::{Field, field_types, fields, view};
use crate::error::need;
use crate::{EtherType, MacAddr, WireError};

/// Length in octets of an ARP packet for IPv4 over Ethernet.
pub const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

mod field {
    pub const HARDWARE_TYPE: usize = 0;
    pub const PROTOCOL_TYPE: usize = 2;
    pub const HARDWARE_LEN: usize = 4;
    pub const PROTOCOL_LEN: usize = 5;
}

/// Operation of an ARP packet: request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operation(pub u16);

impl Operation {
    /// Request for the link-layer address of the target address.
    pub const REQUEST: Self = Self(1);
    /// Reply with the sender's link-layer address.
    pub const REPLY: Self = Self(2);
}

field_types! {
    Operation: |octets| Self(u16::from_be_bytes(octets)), |operation: Self| operation.0.to_be_bytes();
}

view! {
    /// View of an ARP packet.
    Packet
}

fields! {
    Packet:
    /// Operation: request or reply.
    operation / set_operation: Operation = 6;
    /// Link-layer address of the sender.
    sender_mac / set_sender_mac: MacAddr = 8;
    /// IPv4 address of the sender.
    sender_ip / set_sender_ip: Ipv4Addr = 14;
    /// Link-layer address of the target, which has no meaning in a request.
    target_mac / set_target_mac: MacAddr = 18;
    /// IPv4 address of the target.
    target_ip / set_target_ip: Ipv4Addr = 24;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer of at least 28 octets, the packet.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("arp", PACKET_LEN, self.data())
    }
}

/// ARP packet for IPv4 over Ethernet as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Operation: request or reply.
    pub operation: Operation,
    /// The sender's link-layer address.
    pub sender_mac: MacAddr,
    /// The sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// The target's link-layer address.
    pub target_mac: MacAddr,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Reads an ARP packet for IPv4 over Ethernet.
    ///
    /// # Errors
    /// [`WireError`] if the hardware or protocol type or length is another.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, WireError> {
        let word = |at| u16::get(packet.data(), at);
        let octet = |at| u16::from(u8::get(packet.data(), at));
        expect("hardware type", field::HARDWARE_TYPE, word, HARDWARE_ETHERNET, "1 (Ethernet)")?;
        expect("protocol type", field::PROTOCOL_TYPE, word, EtherType::IPV4.0, "2048 (IPv4)")?;
        expect("hardware length", field::HARDWARE_LEN, octet, 6, "6")?;
        expect("protocol length", field::PROTOCOL_LEN, octet, 4, "4")?;
        Ok(Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        })
    }

    /// Writes the packet, of [`PACKET_LEN`] octets.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let data = packet.buffer.as_mut();
        HARDWARE_ETHERNET.put(data, field::HARDWARE_TYPE);
        EtherType::IPV4.put(data, field::PROTOCOL_TYPE);
        6_u8.put(data, field::HARDWARE_LEN);
        4_u8.put(data, field::PROTOCOL_LEN);
        packet.set_operation(self.operation);
        packet.set_sender_mac(self.sender_mac);
        packet.set_sender_ip(self.sender_ip);
        packet.set_target_mac(self.target_mac);
        packet.set_target_ip(self.target_ip);
    }
}

fn expect(
    field: &'static str,
    offset: usize,
    read: impl Fn(usize) -> u16,
    want: u16,
    expected: &'static str,
) -> Result<(), WireError> {
    match read(offset) {
        found if found == want => Ok(()),
        found => Err(WireError::Field { header: "arp", field, offset, found: found.into(), expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_hardware_is_refused_by_name() {
        let mut data = [0u8; PACKET_LEN];
        data[1] = 6;
        let error = Repr::parse(&Packet::new_checked(data).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "arp: hardware type at offset 0 is 6, must be 1 (Ethernet)");
    }

    #[test]
    fn twenty_seven_octets_are_refused() {
        assert!(Packet::new_checked([0u8; 27]).is_err());
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(op: u16, sm: [u8; 6], si: [u8; 4], tm: [u8; 6], ti: [u8; 4]) {
            let (sender_mac, target_mac) = (MacAddr(sm), MacAddr(tm));
            let operation = Operation(op);
            let repr = Repr { operation, sender_mac, sender_ip: si.into(), target_mac, target_ip: ti.into() };
            let mut packet = Packet::new_checked([0u8; PACKET_LEN]).unwrap();
            repr.emit(&mut packet);
            prop_assert_eq!(Repr::parse(&packet), Ok(repr));
        }
    }
}
