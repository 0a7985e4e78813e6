//! TCP headers (RFC 9293, 3.1).
//!
//! Getters never panic after `new_checked`, which verifies that the header, options included, is in the
//! buffer. It refuses a segment cut short by fragmentation. The ports of such a segment, if present, are its
//! first four octets.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use crate::bytes::{get_u8, get_u16, get_u32, octets, octets_mut, put_u8, put_u16, put_u32, view};
use crate::checksum::{Sum, transport_checksum};
use crate::error::need;
use crate::tlv::Options;
use crate::{Protocol, WireError};

/// Length in octets of a header without options.
pub const HEADER_LEN: usize = 20;

mod field {
    pub const SOURCE_PORT: usize = 0;
    pub const DESTINATION_PORT: usize = 2;
    pub const SEQUENCE: usize = 4;
    pub const ACKNOWLEDGMENT: usize = 8;
    pub const DATA_OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const WINDOW: usize = 14;
    pub const CHECKSUM: usize = 16;
    pub const URGENT: usize = 18;
}

/// The eight control bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// End of the data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronisation of sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset of the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// Echo of a congestion mark (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Each bit with its name, lowest first.
    pub const NAMES: [(Self, &'static str); 8] = [
        (Self::FIN, "fin"),
        (Self::SYN, "syn"),
        (Self::RST, "rst"),
        (Self::PSH, "psh"),
        (Self::ACK, "ack"),
        (Self::URG, "urg"),
        (Self::ECE, "ece"),
        (Self::CWR, "cwr"),
    ];

    /// Whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Flags {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = "+";
        }
        if self.0 == 0 { f.write_str("none") } else { Ok(()) }
    }
}

view! {
    /// A view of a TCP segment.
    Packet
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the header with its options.
    ///
    /// # Errors
    /// [`WireError::Truncated`], or [`WireError::Field`] if the data offset is below 5 words.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("tcp", HEADER_LEN, self.data())?;
        if self.header_len() < HEADER_LEN {
            let found = (self.header_len() / 4) as u32;
            let (field, offset, expected) = ("data offset", field::DATA_OFFSET, "5 to 15 words");
            return Err(WireError::Field { header: "tcp", field, offset, found, expected });
        }
        need("tcp", self.header_len(), self.data())
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

    /// Returns the sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        get_u32(self.data(), field::SEQUENCE)
    }

    /// Returns the acknowledgment number, valid with [`Flags::ACK`].
    #[inline]
    pub fn acknowledgment(&self) -> u32 {
        get_u32(self.data(), field::ACKNOWLEDGMENT)
    }

    /// Returns the header length in octets, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(get_u8(self.data(), field::DATA_OFFSET) >> 4) * 4
    }

    /// Returns the control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(get_u8(self.data(), field::FLAGS))
    }

    /// Returns the unscaled window.
    #[inline]
    pub fn window(&self) -> u16 {
        get_u16(self.data(), field::WINDOW)
    }

    /// Returns the checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        get_u16(self.data(), field::CHECKSUM)
    }

    /// Returns the urgent pointer, valid with [`Flags::URG`].
    #[inline]
    pub fn urgent_pointer(&self) -> u16 {
        get_u16(self.data(), field::URGENT)
    }

    /// Whether the checksum over the whole buffer is right, under the sum of the pseudo-header.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.data()).is_valid()
    }

    /// Iterates over the options, with their offsets from the start of the header.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options::new(octets(self.data(), HEADER_LEN..self.header_len()), HEADER_LEN)
    }

    /// Returns the payload after the header, up to the end of the buffer.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        octets(self.data(), self.header_len()..)
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

    /// Sets the sequence number.
    pub fn set_sequence(&mut self, number: u32) {
        put_u32(self.buffer.as_mut(), field::SEQUENCE, number);
    }

    /// Sets the acknowledgment number.
    pub fn set_acknowledgment(&mut self, number: u32) {
        put_u32(self.buffer.as_mut(), field::ACKNOWLEDGMENT, number);
    }

    /// Sets the header length, in octets: a multiple of 4 from 20 to 60.
    pub fn set_header_len(&mut self, octets: usize) {
        put_u8(self.buffer.as_mut(), field::DATA_OFFSET, ((octets / 4) as u8) << 4);
    }

    /// Sets the control bits.
    pub fn set_flags(&mut self, flags: Flags) {
        put_u8(self.buffer.as_mut(), field::FLAGS, flags.0);
    }

    /// Sets the window.
    pub fn set_window(&mut self, window: u16) {
        put_u16(self.buffer.as_mut(), field::WINDOW, window);
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.buffer.as_mut(), field::CHECKSUM, value);
    }

    /// Sets the urgent pointer.
    pub fn set_urgent_pointer(&mut self, value: u16) {
        put_u16(self.buffer.as_mut(), field::URGENT, value);
    }

    /// Computes the checksum over the whole buffer and sets it.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let value = transport_checksum(Protocol::TCP, pseudo.bytes(self.data()));
        self.set_checksum(value);
    }

    /// Returns the octets of the options.
    pub fn options_mut(&mut self) -> &mut [u8] {
        let end = self.header_len();
        octets_mut(self.buffer.as_mut(), HEADER_LEN..end)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::from_fields(self).fmt(f)
    }
}

/// A TCP header without options as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent_pointer: u16,
}

impl Repr {
    /// Reads the header of the segment that fills the buffer; options are left out.
    ///
    /// # Errors
    /// [`WireError::Checksum`].
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>, pseudo: Sum) -> Result<Self, WireError> {
        if !packet.verify_checksum(pseudo) {
            return Err(WireError::Checksum { header: "tcp" });
        }
        Ok(Self::from_fields(packet))
    }

    fn from_fields<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            src_port: packet.src_port(),
            dst_port: packet.dst_port(),
            sequence: packet.sequence(),
            acknowledgment: packet.acknowledgment(),
            flags: packet.flags(),
            window: packet.window(),
            urgent_pointer: packet.urgent_pointer(),
        }
    }

    /// Returns the length of the header, which [`emit`](Self::emit) writes, in octets.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes a header without options, and the checksum over the whole buffer, with its payload in place.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>, pseudo: Sum) {
        packet.set_src_port(self.src_port);
        packet.set_dst_port(self.dst_port);
        packet.set_sequence(self.sequence);
        packet.set_acknowledgment(self.acknowledgment);
        packet.set_header_len(HEADER_LEN);
        packet.set_flags(self.flags);
        packet.set_window(self.window);
        packet.set_urgent_pointer(self.urgent_pointer);
        packet.fill_checksum(pseudo);
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { src_port, dst_port, sequence, acknowledgment, flags, window, .. } = self;
        write!(f, "tcp {src_port} > {dst_port} {flags} seq {sequence} ack {acknowledgment} window {window}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_header_v6;
    use proptest::prelude::*;

    #[test]
    fn a_data_offset_below_five_or_beyond_the_buffer_is_refused() {
        let mut data = [0u8; 24];
        for (words, ok) in [(4, false), (5, true), (6, true), (7, false)] {
            data[12] = words << 4;
            assert_eq!(Packet::new_checked(data).is_ok(), ok, "{words}");
        }
    }

    #[test]
    fn flags_are_shown_by_name() {
        assert_eq!((Flags::SYN | Flags::ACK).to_string(), "syn+ack");
        assert_eq!(Flags(0).to_string(), "none");
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(ports: (u16, u16), numbers: (u32, u32), flags: u8, window: u16, urgent: u16,
                                            payload: Vec<u8>, addresses: (u128, u128)) {
            let repr = Repr {
                src_port: ports.0, dst_port: ports.1, sequence: numbers.0, acknowledgment: numbers.1,
                flags: Flags(flags), window, urgent_pointer: urgent,
            };
            let mut data = [vec![0xff; repr.buffer_len()], payload].concat();
            let (src, dst) = (addresses.0.into(), addresses.1.into());
            let pseudo = pseudo_header_v6(src, dst, Protocol::TCP, data.len() as u32);
            repr.emit(&mut Packet::new_unchecked(&mut data[..]), pseudo);
            prop_assert_eq!(Repr::parse(&Packet::new_checked(&data[..]).unwrap(), pseudo), Ok(repr));
            data[0] ^= 1;
            let damaged = Repr::parse(&Packet::new_checked(&data[..]).unwrap(), pseudo);
            prop_assert_eq!(damaged, Err(WireError::Checksum { header: "tcp" }));
        }
    }
}
