//! Addresses and prefixes as numbers.

use std::fmt::Debug;
use std::hash::Hash;

/// Address as a number, most significant bit first: `u32` for IPv4, `u128` for IPv6.
pub trait AddressBits: Copy + Eq + Ord + Hash + Default + Debug {
    /// Number of bits of an address.
    const WIDTH: u8;
    /// Returns the address with all bits behind the first `length` bits cleared.
    #[must_use]
    fn masked(self, length: u8) -> Self;
    /// Returns the number of leading bits that both addresses share.
    fn common(self, other: Self) -> u8;
    /// Returns the bit at `position`, 0 or 1. Position 0 is the most significant bit; `position` must be
    /// below [`WIDTH`](Self::WIDTH).
    fn bit(self, position: u8) -> usize;
    /// Returns the six bits that begin at `position`. `position` must be below [`WIDTH`](Self::WIDTH). Bits
    /// beyond the end of the address are 0.
    fn six_bits(self, position: u8) -> usize;
    /// Returns the address with the six bits `bits` at `position`, where it must have zeros.
    #[must_use]
    fn with_six_bits(self, position: u8, bits: usize) -> Self;
}

macro_rules! address_bits {
    ($int:ty) => {
        impl AddressBits for $int {
            const WIDTH: u8 = <$int>::BITS as u8;

            #[inline]
            fn masked(self, length: u8) -> Self {
                let behind = u32::from(Self::WIDTH.saturating_sub(length));
                self & <$int>::MAX.checked_shl(behind).unwrap_or(0)
            }

            #[inline]
            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            #[inline]
            fn bit(self, position: u8) -> usize {
                (self >> (Self::WIDTH - 1 - position)) as usize & 1
            }

            #[inline]
            fn six_bits(self, position: u8) -> usize {
                ((self << position) >> (Self::WIDTH - 6)) as usize
            }

            fn with_six_bits(self, position: u8, bits: usize) -> Self {
                self | (bits as Self) << (Self::WIDTH - 6) >> position
            }
        }
    };
}
address_bits!(u32);
address_bits!(u128);

/// Prefix: the first `length` bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Prefix<A> {
    bits: A,
    length: u8,
}

impl<A: AddressBits> Prefix<A> {
    /// Creates the prefix of the first `length` bits of `bits`. If `length` is greater than the length of an
    /// address, the prefix is the whole address.
    #[inline]
    pub fn new(bits: A, length: u8) -> Self {
        Self { bits: bits.masked(length), length: length.min(A::WIDTH) }
    }

    /// Returns the bits of the prefix, followed by zeros.
    #[inline]
    pub fn bits(self) -> A {
        self.bits
    }

    /// Returns the number of bits of the prefix.
    #[inline]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether the address begins with this prefix.
    #[inline]
    pub fn holds(self, address: A) -> bool {
        self.bits.common(address) >= self.length
    }

    /// Whether this prefix covers `other`: `other` is equal, or longer and begins with this prefix.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.holds(other.bits)
    }
}
