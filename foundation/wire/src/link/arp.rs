//! Address resolution (RFC 826), for IPv4 over Ethernet.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has 28 octets. Their results are
//! meaningful if hardware and protocol types and lengths belong to Ethernet and IPv4, which [`Repr::parse`]
//! verifies.

use std::fmt;
use std::net::Ipv4Addr;

use crate::bytes::{array, get_u8, get_u16, put, put_u8, put_u16, view};
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
    pub const OPERATION: usize = 6;
    pub const SENDER_MAC: usize = 8;
    pub const SENDER_IP: usize = 14;
    pub const TARGET_MAC: usize = 18;
    pub const TARGET_IP: usize = 24;
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

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::REQUEST => f.write_str("request"),
            Self::REPLY => f.write_str("reply"),
            Self(other) => write!(f, "operation {other}"),
        }
    }
}

view! {
    /// A view of an ARP packet.
    Packet
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the packet.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 28 octets.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("arp", PACKET_LEN, self.data())
    }

    /// Returns the hardware type; 1 is Ethernet.
    #[inline]
    pub fn hardware_type(&self) -> u16 {
        get_u16(self.data(), field::HARDWARE_TYPE)
    }

    /// Returns the protocol type: the EtherType of the protocol addresses.
    #[inline]
    pub fn protocol_type(&self) -> EtherType {
        EtherType(get_u16(self.data(), field::PROTOCOL_TYPE))
    }

    /// Returns the length of a hardware address in octets.
    #[inline]
    pub fn hardware_len(&self) -> u8 {
        get_u8(self.data(), field::HARDWARE_LEN)
    }

    /// Returns the length of a protocol address in octets.
    #[inline]
    pub fn protocol_len(&self) -> u8 {
        get_u8(self.data(), field::PROTOCOL_LEN)
    }

    /// Returns the operation: request or reply.
    #[inline]
    pub fn operation(&self) -> Operation {
        Operation(get_u16(self.data(), field::OPERATION))
    }

    /// Returns the sender's link-layer address.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array(self.data(), field::SENDER_MAC))
    }

    /// Returns the sender's IPv4 address.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        array(self.data(), field::SENDER_IP).into()
    }

    /// Returns the target's link-layer address, which has no meaning in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array(self.data(), field::TARGET_MAC))
    }

    /// Returns the target's IPv4 address.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        array(self.data(), field::TARGET_IP).into()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the type and length fields for IPv4 over Ethernet.
    pub fn set_ethernet_ipv4(&mut self) {
        let data = self.buffer.as_mut();
        put_u16(data, field::HARDWARE_TYPE, HARDWARE_ETHERNET);
        put_u16(data, field::PROTOCOL_TYPE, EtherType::IPV4.0);
        put_u8(data, field::HARDWARE_LEN, 6);
        put_u8(data, field::PROTOCOL_LEN, 4);
    }

    /// Sets the operation: request or reply.
    pub fn set_operation(&mut self, operation: Operation) {
        put_u16(self.buffer.as_mut(), field::OPERATION, operation.0);
    }

    /// Sets the sender's addresses.
    pub fn set_sender(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        put(self.buffer.as_mut(), field::SENDER_MAC, &mac.0);
        put(self.buffer.as_mut(), field::SENDER_IP, &ip.octets());
    }

    /// Sets the target's addresses.
    pub fn set_target(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        put(self.buffer.as_mut(), field::TARGET_MAC, &mac.0);
        put(self.buffer.as_mut(), field::TARGET_IP, &ip.octets());
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Repr::parse(self) {
            Ok(repr) => repr.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

/// An ARP packet for IPv4 over Ethernet as a value.
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
    /// Reads the packet.
    ///
    /// # Errors
    /// [`WireError::Field`] if the packet is not for IPv4 over Ethernet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, WireError> {
        let p = packet;
        expect("hardware type", field::HARDWARE_TYPE, p.hardware_type(), HARDWARE_ETHERNET, "1 (Ethernet)")?;
        expect("protocol type", field::PROTOCOL_TYPE, p.protocol_type().0, EtherType::IPV4.0, "2048 (IPv4)")?;
        expect("hardware length", field::HARDWARE_LEN, p.hardware_len().into(), 6, "6")?;
        expect("protocol length", field::PROTOCOL_LEN, p.protocol_len().into(), 4, "4")?;
        Ok(Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        })
    }

    /// Returns the number of octets that [`emit`](Self::emit) writes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        PACKET_LEN
    }

    /// Writes the packet.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        packet.set_ethernet_ipv4();
        packet.set_operation(self.operation);
        packet.set_sender(self.sender_mac, self.sender_ip);
        packet.set_target(self.target_mac, self.target_ip);
    }
}

fn expect(
    field: &'static str,
    offset: usize,
    found: u16,
    want: u16,
    expected: &'static str,
) -> Result<(), WireError> {
    if found == want {
        return Ok(());
    }
    Err(WireError::Field { header: "arp", field, offset, found: found.into(), expected })
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, sender_mac, sender_ip, target_mac, target_ip } = self;
        write!(f, "arp {operation} from {sender_ip} ({sender_mac}) for {target_ip} ({target_mac})")
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
