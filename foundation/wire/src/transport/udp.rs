//! UDP (RFC 768).
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has the 8-octet header. The length
//! field may still be wrong; [`Repr::parse`] verifies it. A checksum of zero means no checksum.

use std::fmt;

use crate::bytes::{get_u16, octets, octets_mut, put_u16, view};
use crate::checksum::{Sum, transport_checksum};
use crate::error::need;
use crate::{Protocol, WireError};

/// Length in octets of the header.
pub const HEADER_LEN: usize = 8;

mod field {
    pub const SOURCE_PORT: usize = 0;
    pub const DESTINATION_PORT: usize = 2;
    pub const LENGTH: usize = 4;
    pub const CHECKSUM: usize = 6;
}

view! {
    /// A view of a UDP datagram.
    Packet
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the header.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 8 octets.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("udp", HEADER_LEN, self.data())
    }

    /// Returns the source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        get_u16(self.data(), field::SOURCE_PORT)
    }

    /// Returns the destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        get_u16(self.data(), field::DESTINATION_PORT)
    }

    /// Returns the length of header and payload in octets.
    #[inline]
    pub fn len(&self) -> u16 {
        get_u16(self.data(), field::LENGTH)
    }

    /// Whether the datagram has no payload.
    #[inline]
    pub fn is_empty(&self) -> bool {
        usize::from(self.len()) <= HEADER_LEN
    }

    /// Returns the checksum; zero means none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        get_u16(self.data(), field::CHECKSUM)
    }

    /// Whether the checksum is absent or right, under the sum of the pseudo-header. Over IPv6, a datagram
    /// without a checksum is invalid (RFC 8200, 8.1); the caller must check this.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        let end = usize::from(self.len()).clamp(HEADER_LEN, self.data().len());
        self.checksum() == 0 || pseudo.bytes(octets(self.data(), ..end)).is_valid()
    }

    /// Returns the payload, up to the length field, or to the end of the buffer if that is nearer.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let end = usize::from(self.len()).clamp(HEADER_LEN, self.data().len());
        octets(self.data(), HEADER_LEN..end)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the source port. The checksum stays as it is.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), field::SOURCE_PORT, port);
    }

    /// Sets the destination port. The checksum stays as it is.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), field::DESTINATION_PORT, port);
    }

    /// Sets the length of header and payload in octets.
    #[inline]
    pub fn set_len(&mut self, octets: u16) {
        put_u16(self.buffer.as_mut(), field::LENGTH, octets);
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.buffer.as_mut(), field::CHECKSUM, value);
    }

    /// Computes the checksum over header and payload, which must be in place, and sets it.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let end = usize::from(self.len()).clamp(HEADER_LEN, self.data().len());
        let value = transport_checksum(Protocol::UDP, pseudo.bytes(octets(self.data(), ..end)));
        self.set_checksum(value);
    }

    /// Returns the payload for writes, with the bounds of [`payload`](Self::payload).
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = usize::from(self.len()).clamp(HEADER_LEN, self.data().len());
        octets_mut(self.buffer.as_mut(), HEADER_LEN..end)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp {} > {} length {}", self.src_port(), self.dst_port(), self.len())
    }
}

/// A UDP header as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Length of the payload in octets, up to 65,527.
    pub payload_len: u16,
}

impl Repr {
    /// Reads the header.
    ///
    /// # Errors
    /// [`WireError::Field`] if the length is below 8, [`WireError::Truncated`] if it exceeds the buffer,
    /// [`WireError::Checksum`] if the checksum is present and wrong.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>, pseudo: Sum) -> Result<Self, WireError> {
        let len = usize::from(packet.len());
        if len < HEADER_LEN {
            let (field, offset, found) = ("length", field::LENGTH, packet.len().into());
            return Err(WireError::Field { header: "udp", field, offset, found, expected: "at least 8" });
        }
        need("udp", len, packet.data())?;
        if !packet.verify_checksum(pseudo) {
            return Err(WireError::Checksum { header: "udp" });
        }
        let payload_len = (len - HEADER_LEN) as u16;
        Ok(Self { src_port: packet.src_port(), dst_port: packet.dst_port(), payload_len })
    }

    /// Returns the length of the header, which [`emit`](Self::emit) writes, in octets.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, and the checksum over it and the payload, which must be in place.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>, pseudo: Sum) {
        packet.set_src_port(self.src_port);
        packet.set_dst_port(self.dst_port);
        packet.set_len(self.payload_len.saturating_add(HEADER_LEN as u16));
        packet.fill_checksum(pseudo);
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp {} > {} payload {}", self.src_port, self.dst_port, self.payload_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_header_v4;
    use proptest::prelude::*;

    #[test]
    fn a_length_below_the_header_is_refused_and_getters_live() {
        let packet = Packet::new_checked([0u8; 12]).unwrap();
        assert!(packet.payload().is_empty());
        assert!(matches!(Repr::parse(&packet, Sum::new()), Err(WireError::Field { field: "length", .. })));
    }

    #[test]
    fn a_length_beyond_the_buffer_is_truncated() {
        let mut packet = Packet::new_checked([0u8; 12]).unwrap();
        packet.set_len(13);
        assert!(matches!(Repr::parse(&packet, Sum::new()), Err(WireError::Truncated { need: 13, .. })));
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(src_port: u16, dst_port: u16, payload: Vec<u8>, src: u32, dst: u32) {
            let repr = Repr { src_port, dst_port, payload_len: payload.len() as u16 };
            let mut data = [vec![0xff; repr.buffer_len()], payload].concat();
            let pseudo = pseudo_header_v4(src.into(), dst.into(), Protocol::UDP, data.len() as u16);
            repr.emit(&mut Packet::new_unchecked(&mut data[..]), pseudo);
            prop_assert_eq!(Repr::parse(&Packet::new_checked(&data[..]).unwrap(), pseudo), Ok(repr));
            data[0] ^= 1;
            let damaged = Repr::parse(&Packet::new_checked(&data[..]).unwrap(), pseudo);
            prop_assert_eq!(damaged, Err(WireError::Checksum { header: "udp" }));
        }
    }
}
