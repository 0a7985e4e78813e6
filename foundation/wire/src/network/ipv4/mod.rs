//! IPv4 headers (RFC 791; DS field RFC 2474; ECN RFC 3168).
//!
//! Getters never panic after `new_checked`, which verifies only that the whole header is in the buffer.
//! [`sanity()`] checks whether a router may forward the packet (RFC 1812, 5.2.2), with one fault per rule.

pub mod option;
mod repr;
mod sanity;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::ops::Range;

use crate::bytes::{Field as _, fields, octets, put_bits, view};
use crate::error::need;
use crate::tlv::Options;
use crate::{Protocol, WireError, checksum};

pub use self::repr::Repr;
pub use self::sanity::{Ipv4Fault, sanity};

/// Length in octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Length in octets of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

mod field {
    pub const VERSION_IHL: usize = 0;
    pub const FLAGS_FRAGMENT: usize = 6;
}

mod flag {
    pub const RESERVED: u8 = 0x80;
    pub const DONT_FRAGMENT: u8 = 0x40;
    pub const MORE_FRAGMENTS: u8 = 0x20;
}

/// Decrements the TTL, which must be at least 1, in a word that holds TTL (lowest octet), protocol and
/// checksum. The result equals that of [`Packet::decrement_ttl`]. The octets of the checksum are swapped in
/// this word, and so are those of the new checksum (RFC 1071, 2(B)).
#[inline(always)]
#[must_use]
pub const fn hop_taken_off(word: u32) -> u32 {
    let carry = (word >= 0xfffe_0000) as u32;
    word.wrapping_sub(1).wrapping_add((1 + carry) << 16)
}

view! {
    /// View of an IPv4 packet.
    Packet
}

fields! {
    Packet:
    /// Octet of DSCP and ECN.
    tos / set_tos: u8 = 1;
    /// Length of header and payload in octets.
    total_len / set_total_len: u16 = 2;
    /// Identification, which all fragments of a packet share.
    identification / set_identification: u16 = 4;
    /// Number of hops that the packet may still make.
    ttl / set_ttl: u8 = 8;
    /// Protocol of the payload.
    protocol / set_protocol: Protocol = 9;
    /// Header checksum.
    checksum / set_checksum: u16 = 10;
    /// Source address.
    src / set_src: Ipv4Addr = 12;
    /// Destination address.
    dst / set_dst: Ipv4Addr = 16;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the whole header, options included. The header must have at least 5 words.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("ipv4", HEADER_LEN, self.data())?;
        if self.header_len() < HEADER_LEN {
            let found = u32::from(self.version_and_length() & 0x0f);
            let (field, offset, expected) = ("header length", field::VERSION_IHL, "5 to 15 words");
            return Err(WireError::Field { header: "ipv4", field, offset, found, expected });
        }
        need("ipv4", self.header_len(), self.data())
    }

    #[inline]
    fn version_and_length(&self) -> u8 {
        u8::get(self.data(), field::VERSION_IHL)
    }

    /// Returns the 16-bit word that holds the flags and the fragment offset.
    #[inline]
    fn flags_and_offset(&self) -> u16 {
        u16::get(self.data(), field::FLAGS_FRAGMENT)
    }

    /// Returns the version, 4 in IPv4 packets.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_and_length() >> 4
    }

    /// Returns the header length in octets, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_and_length() & 0x0f) * 4
    }

    /// Returns the DSCP, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// Returns the ECN field, 0 to 3.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    /// Returns the reserved flag. It must be zero, but a router forwards it unchanged.
    #[inline]
    pub fn reserved_flag(&self) -> bool {
        self.has(flag::RESERVED)
    }

    /// Returns whether routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.has(flag::DONT_FRAGMENT)
    }

    /// Returns whether more fragments follow this one.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.has(flag::MORE_FRAGMENTS)
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        u8::get(self.data(), field::FLAGS_FRAGMENT) & flag != 0
    }

    /// Returns the offset of this fragment in the payload of the original packet, in octets: 0 to 65,528, a
    /// multiple of 8.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.flags_and_offset() & 0x1fff) << 3
    }

    /// Returns whether this is a fragment, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset() & 0x3fff != 0
    }

    /// Returns whether the header checksum is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        match self.header().as_chunks::<4>() {
            // Common case: a header without options.
            (&[a, b, c, d, e], []) => {
                let word = |low, high| {
                    u64::from(u32::from_ne_bytes(low)) | u64::from(u32::from_ne_bytes(high)) << 32
                };
                checksum::is_valid_header(word(a, b), word(c, d), u32::from_ne_bytes(e))
            }
            _ => checksum::sum(self.header()).is_valid(),
        }
    }

    /// Returns the octets of the header, options included.
    #[inline]
    pub fn header(&self) -> &[u8] {
        octets(self.data(), ..self.header_len())
    }

    /// Iterates over the options, with their offsets from the start of the header. A malformed option ends
    /// the iteration with an error.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options::new(octets(self.data(), HEADER_LEN..self.header_len()), HEADER_LEN)
    }

    /// Returns the payload: up to the total length, or to the end of the buffer if that comes first. Link
    /// padding is not included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let range = payload_range(self.header_len(), self.total_len(), self.data().len());
        octets(self.data(), range)
    }

    /// Returns the sum of the pseudo-header for a transport checksum over the payload.
    #[inline]
    pub fn pseudo_header(&self) -> checksum::Sum {
        let length = self.total_len().saturating_sub(self.header_len() as u16);
        checksum::pseudo_header_v4(self.src(), self.dst(), self.protocol(), length)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets version 4 and the header length, in octets: a multiple of 4 from 20 to 60.
    pub fn set_header_len(&mut self, octets: usize) {
        (0x40 | ((octets / 4) as u8 & 0x0f)).put(self.buffer.as_mut(), field::VERSION_IHL);
    }

    /// Sets whether routers must not fragment the packet.
    #[inline]
    pub fn set_dont_fragment(&mut self, on: bool) {
        self.set_flag(flag::DONT_FRAGMENT, on);
    }

    /// Sets whether more fragments follow.
    #[inline]
    pub fn set_more_fragments(&mut self, on: bool) {
        self.set_flag(flag::MORE_FRAGMENTS, on);
    }

    #[inline]
    fn set_flag(&mut self, flag: u8, on: bool) {
        put_bits(self.buffer.as_mut(), field::FLAGS_FRAGMENT, flag, if on { 0xff } else { 0 });
    }

    /// Sets the fragment offset in octets, rounded down to a multiple of 8.
    #[inline]
    pub fn set_fragment_offset(&mut self, octets: u16) {
        let [high, low] = (octets >> 3).to_be_bytes();
        put_bits(self.buffer.as_mut(), field::FLAGS_FRAGMENT, 0x1f, high);
        low.put(self.buffer.as_mut(), field::FLAGS_FRAGMENT + 1);
    }

    /// Computes the header checksum and sets it.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let value = checksum::checksum(self.header());
        self.set_checksum(value);
    }

    /// Decrements the TTL and updates the checksum. Returns `false`, and changes nothing, if the TTL is 0 or
    /// 1 (RFC 1812, 5.3.1), so that the packet must not be forwarded.
    #[inline]
    #[must_use]
    pub fn decrement_ttl(&mut self) -> bool {
        let ttl = self.ttl();
        if ttl <= 1 {
            return false;
        }
        self.set_ttl(ttl - 1);
        self.set_checksum(checksum::ttl_decremented(self.checksum()));
        true
    }
}

/// Returns the range of the payload in a buffer of `available` octets.
#[inline]
fn payload_range(header_len: usize, total_len: u16, available: usize) -> Range<usize> {
    header_len..usize::from(total_len).min(available).max(header_len)
}
