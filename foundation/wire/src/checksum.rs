//! The Internet checksum: RFC 1071 (computation), RFC 1624 (update), RFC 768/9293/8200 (pseudo-headers).
//!
//! All functions work on octets in network byte order. None panics. A [`Sum`] is exact up to 2^32 octets.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::Protocol;

/// One's complement sum of 16-bit words, not yet folded to 16 bits.
///
/// Octets are added in pieces of any length. After an odd number of octets, the next piece continues in the
/// middle of a word, as RFC 1071, section 2(A) and (B), permits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    total: u64,
    odd: bool,
}

impl Sum {
    /// Returns an empty sum.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { total: 0, odd: false }
    }

    /// Adds one word. The number of octets added before must be even.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self { total: self.total + word as u64, odd: self.odd }
    }

    /// Adds the octets of `data`.
    #[inline]
    #[must_use]
    pub fn bytes(self, data: &[u8]) -> Self {
        let folded = fold(native_sum(data)).to_be();
        let piece = if self.odd { folded.swap_bytes() } else { folded };
        Self { total: self.total + u64::from(piece), odd: self.odd ^ (data.len() % 2 == 1) }
    }

    /// Returns the sum folded to 16 bits, not complemented. A sender with checksum offload leaves this value
    /// in the checksum field, as partial checksum.
    #[inline]
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.total)
    }

    /// Returns the checksum: the complement of the folded sum.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns whether the checksum is right. The added octets must include the checksum field.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

/// Returns the sum of `data` in 32-bit words of the machine's byte order, with a last odd octet padded with
/// zero. Another byte order only swaps the octets of a one's complement sum (RFC 1071, 2(B)). The 64-bit
/// total can't wrap for less than 2^32 words.
#[inline]
fn native_sum(data: &[u8]) -> u64 {
    let (pairs, rest) = data.as_chunks::<8>();
    let mut total = 0;
    for &pair in pairs {
        let pair = u64::from_ne_bytes(pair);
        total += (pair & 0xffff_ffff) + (pair >> 32);
    }
    // Ends in fixed steps, without a copy of variable length: a header of 20 octets, the most frequent case,
    // ends here.
    let (words, rest) = rest.as_chunks::<4>();
    if let [word] = words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let (halves, rest) = rest.as_chunks::<2>();
    if let [half] = halves {
        total += u64::from(u16::from_ne_bytes(*half));
    }
    match rest {
        [last] => total + u64::from(u16::from_ne_bytes([*last, 0])),
        _ => total,
    }
}

/// Adds the carries to the lower bits until 16 bits remain.
#[inline]
const fn fold(total: u64) -> u16 {
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + ((total >> 16) & 0xffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    ((total & 0xffff) + (total >> 16)) as u16
}

/// Returns the sum of `data`, padded with a zero octet if its length is odd.
#[inline]
#[must_use]
pub fn sum(data: &[u8]) -> Sum {
    Sum::new().bytes(data)
}

/// Returns the sum of consecutive slices, such as the segments of a packet.
#[must_use]
pub fn sum_slices<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> Sum {
    slices.into_iter().fold(Sum::new(), Sum::bytes)
}

/// Returns the checksum of `data`, whose checksum field must be zero.
#[inline]
#[must_use]
pub fn checksum(data: &[u8]) -> u16 {
    sum(data).checksum()
}

/// Returns whether the checksum of an IPv4 header without options is right. `first`, `second` and `last` are
/// the header's first 8, next 8 and last 4 octets, read as words in the machine's byte order. The first octet
/// must not be 0.
///
/// One's complement sums are sums modulo 2^16 - 1, and powers of 2^16 are 1 in this modulus. So words of any
/// length are added without folding, and a carry adds 1.
#[inline(always)]
#[must_use]
pub const fn is_valid_header(first: u64, second: u64, last: u32) -> bool {
    let total = first as u128 + second as u128 + last as u128;
    let (sum, carry) = (total as u64).overflowing_add((total >> 64) as u64);
    (sum + carry as u64).is_multiple_of(0xffff)
}

/// Returns the sum of the IPv4 pseudo-header (RFC 768; RFC 9293, 3.1), for `length` octets of transport
/// header and data.
#[inline]
#[must_use]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, length: u16) -> Sum {
    Sum::new().bytes(&src.octets()).bytes(&dst.octets()).word(u16::from(protocol.0)).word(length)
}

/// Returns the sum of the IPv6 pseudo-header (RFC 8200, 8.1), for `length` octets of upper-layer header and
/// data.
#[inline]
#[must_use]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol, length: u32) -> Sum {
    let sum = Sum::new().bytes(&src.octets()).bytes(&dst.octets()).word(u16::from(protocol.0));
    sum.word((length >> 16) as u16).word(length as u16)
}

/// Returns the checksum after one 16-bit word has changed from `old` to `new`, by RFC 1624, equation 3: HC' =
/// ~(~HC + ~m + m').
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Returns the IPv4 header checksum after a decrement of the TTL, which must not have been 0.
///
/// The TTL is the high octet of its word, so m' is m - 0x0100. Equation 3 of RFC 1624 then adds ~m + m' =
/// 0xfeff for any TTL and protocol. So the function adds 0x0100 to the checksum itself, with the carry of
/// one's complement, in which 0xffff is 0.
#[inline]
#[must_use]
pub const fn ttl_decremented(checksum: u16) -> u16 {
    let sum = checksum as u32 + 0x0100;
    (sum + (sum >= 0xffff) as u32) as u16
}

/// Returns the offset of the checksum field in the transport header of TCP, UDP or ICMPv6, which may have a
/// partial checksum; `None` for other protocols.
#[inline]
#[must_use]
pub const fn transport_field(protocol: Protocol) -> Option<usize> {
    match protocol {
        Protocol::TCP => Some(16),
        Protocol::UDP => Some(6),
        Protocol::ICMPV6 => Some(2),
        _ => None,
    }
}

/// Returns the checksum for a transport header of `protocol`. In UDP, 0 would mean no checksum, so the
/// function returns the equivalent value 0xffff instead (RFC 768).
#[inline]
#[must_use]
pub const fn transport_checksum(protocol: Protocol, sum: Sum) -> u16 {
    match sum.checksum() {
        0 if protocol.0 == Protocol::UDP.0 => 0xffff,
        checksum => checksum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Field as _;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Reference implementation: the sum of RFC 1071, section 4.1, word by word.
    fn naive_sum(data: &[u8]) -> u16 {
        let mut total = 0u64;
        for pair in data.chunks(2) {
            total += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    /// Makes a header of 20 octets with the given TTL, whose correct checksum is `checksum`. The source
    /// address is chosen accordingly.
    fn header(ttl: u8, checksum: u16) -> [u8; 20] {
        let mut header = [0u8; 20];
        header[0] = 0x45;
        header[8] = ttl;
        header[9] = 17;
        let rest = naive_sum(&header);
        let filler = !naive_sum(&[rest.to_be_bytes(), checksum.to_be_bytes()].concat());
        header[12..14].copy_from_slice(&filler.to_be_bytes());
        header
    }

    #[test]
    fn rfc_1071_section_3_example() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&data).folded(), 0xddf2);
        assert_eq!(checksum(&data), !0xddf2);
    }

    #[test]
    fn rfc_1624_section_4_vector_gives_zero_and_not_minus_zero() {
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn ttl_decrement_equals_full_recomputation_for_every_checksum() {
        for ttl in [2u8, 64, 255] {
            for value in 0..=u16::MAX {
                let mut header = header(ttl, value);
                let stored = checksum(&header);
                // 0xffff is equivalent to 0x0000. A receiver accepts both, and both must lead to the same
                // output.
                assert_eq!(stored, if value == 0xffff { 0 } else { value });
                header[8] -= 1;
                let full = checksum(&header);
                assert_eq!(ttl_decremented(value), full, "ttl {ttl} checksum {value:#06x}");
                let word = u16::from_be_bytes([ttl, 17]);
                assert_eq!(update_u16(value, word, word - 0x100), full);
            }
        }
    }

    #[test]
    fn sum_over_the_longest_packet_of_ones_does_not_wrap() {
        let data = vec![0xff; 1 << 20];
        assert_eq!(sum(&data).folded(), naive_sum(&data));
    }

    #[test]
    fn zero_udp_checksum_is_sent_as_ones() {
        assert_eq!(transport_checksum(Protocol::UDP, Sum::new().word(0xffff)), 0xffff);
        assert_eq!(transport_checksum(Protocol::TCP, Sum::new().word(0xffff)), 0);
    }

    #[test]
    fn the_ipv6_pseudo_header_has_a_length_of_32_bits() {
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let pseudo = |length| pseudo_header_v6(src, dst, Protocol::TCP, length).folded();
        assert_eq!(pseudo(0), 0x2001 + 0xdb8 + 1 + 0x2001 + 0xdb8 + 2 + 6);
        assert_eq!(pseudo(0x0003_0004), pseudo(0) + 7);
    }

    #[test]
    fn a_carry_beyond_the_widest_word_counts() {
        // The sum of the three words is 2^65 - 1, which is 1 modulo 0xffff.
        assert!(!is_valid_header(u64::MAX - 0xba, u64::MAX, 0xbb));
        assert!(is_valid_header(u64::MAX - 0xba, u64::MAX, 0xba));
    }

    proptest! {
        #[test]
        fn header_is_valid_by_its_checksum(mut header in any::<[u8; 20]>(), ones in any::<u16>(), right in any::<bool>()) {
            header[0] = 0x45;
            for place in (0..16).filter(|place| ones >> place & 1 == 1) {
                header[place + 4] = 0xff;
            }
            if right {
                header[10..12].fill(0);
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let word = |at: usize| u64::from_ne_bytes(header[at..at + 8].try_into().unwrap());
            let last = u32::from_ne_bytes(header[16..].try_into().unwrap());
            prop_assert_eq!(is_valid_header(word(0), word(8), last), sum(&header).is_valid());
            prop_assert!(!right || is_valid_header(word(0), word(8), last));
        }

        #[test]
        fn fast_sum_equals_naive_sum(data in vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(sum(&data).folded(), naive_sum(&data));
        }

        #[test]
        fn a_sum_over_pieces_of_any_length_equals_the_sum_over_the_whole(pieces in vec(vec(any::<u8>(), 0..20), 0..8)) {
            let sum = sum_slices(pieces.iter().map(Vec::as_slice));
            prop_assert_eq!(sum.folded(), naive_sum(&pieces.concat()));
        }

        #[test]
        fn updating_a_word_equals_full_recomputation(mut data in vec(any::<u8>(), 20), at in 1usize..10, new: u16) {
            data[0] = 0x45; // no IP header is all zeros, the one case where the two forms of zero differ
            let before = checksum(&data);
            let old = u16::get(&data, at * 2);
            new.put(&mut data, at * 2);
            prop_assert_eq!(update_u16(before, old, new), checksum(&data));
        }
    }
}
