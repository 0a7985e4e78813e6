//! Addresses and prefixes as numbers.

use std::fmt::Debug;
use std::hash::Hash;

/// Address as a number, most significant bit first: `u32` for IPv4, `u128` for IPv6.
pub trait AddressBits: Copy + Eq + Ord + Hash + Default + Debug {
    /// Number of bits of an address.
    const WIDTH: u8;
    /// Returns the first `length` bits; the other bits are 0.
    #[must_use]
    fn masked(self, length: u8) -> Self;
    /// Returns the length of the common prefix.
    fn common(self, other: Self) -> u8;
    /// Returns the bit at `position`, 0 or 1, counted from the first bit; `position` is below
    /// [`WIDTH`](Self::WIDTH).
    fn bit(self, position: u8) -> usize;
    /// Returns six bits from `position` on, which is below [`WIDTH`](Self::WIDTH), with zeros after the end
    /// of the address.
    fn six_bits(self, position: u8) -> usize;
    /// Returns the address with six bits set at `position`, where it has zeros.
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
    /// Makes a prefix of the first `length` bits of `bits`, at most the whole address.
    #[inline]
    pub fn new(bits: A, length: u8) -> Self {
        Self { bits: bits.masked(length), length: length.min(A::WIDTH) }
    }

    /// Returns the bits, with zeros after the prefix.
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

    /// Whether this prefix covers `other`: `other` is the same prefix or a longer one that begins with it.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.holds(other.bits)
    }
}
