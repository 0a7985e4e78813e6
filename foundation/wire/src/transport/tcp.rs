//! TCP headers (RFC 9293, 3.1).
//!
//! Getters never panic after `new_checked`, which verifies that the header, options included, is in the
//! buffer. It refuses a segment that fragmentation has cut inside the header. The ports of such a segment, if
//! present, are its first four octets.

use std::ops::{BitAnd, BitOr};

use crate::WireError;
use crate::bytes::{Field as _, field_types, fields, octets, view};
use crate::error::need;

/// Length in octets of a header without options.
pub const HEADER_LEN: usize = 20;

/// Offset of the octet that contains the header length.
const DATA_OFFSET: usize = 12;

/// The eight control bits (flags).
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

    /// Returns whether all bits of `other` are set.
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

field_types! {
    Flags: |[bits]: [u8; 1]| Self(bits), |flags: Self| [flags.0];
}

view! {
    /// View of a TCP segment.
    Packet
}

fields! {
    Packet:
    /// Acknowledgment number, valid with [`Flags::ACK`].
    acknowledgment: u32 = 8;
    /// Control bits.
    flags: Flags = 13;
    /// Window, not scaled.
    window: u16 = 14;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the whole header, options included. The header must have at least 5 words.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("tcp", HEADER_LEN, self.data())?;
        if self.header_len() < HEADER_LEN {
            let found = (self.header_len() / 4) as u32;
            let (field, offset, expected) = ("data offset", DATA_OFFSET, "5 to 15 words");
            return Err(WireError::Field { header: "tcp", field, offset, found, expected });
        }
        need("tcp", self.header_len(), self.data())
    }

    /// Returns the header length in octets, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(u8::get(self.data(), DATA_OFFSET) >> 4) * 4
    }

    /// Returns the payload after the header, up to the end of the buffer.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        octets(self.data(), self.header_len()..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_offset_below_five_or_beyond_the_buffer_is_refused() {
        let mut data = [0u8; 24];
        for (words, ok) in [(4, false), (5, true), (6, true), (7, false)] {
            data[12] = words << 4;
            assert_eq!(Packet::new_checked(data).is_ok(), ok, "{words}");
        }
    }

    #[test]
    fn fields_are_read_at_their_offsets() {
        let mut data: [u8; HEADER_LEN] = std::array::from_fn(|at| at as u8);
        data[12] = 0x50;
        let packet = Packet::new_checked(data).unwrap();
        assert_eq!((packet.acknowledgment(), packet.window()), (0x0809_0a0b, 0x0e0f));
        assert_eq!((packet.flags(), packet.header_len()), (Flags(13), 20));
    }
}
