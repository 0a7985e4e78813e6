//! Addresses and prefixes as numbers.

use std::fmt::Debug;
use std::hash::Hash;

/// An address as a number, most significant bit first: `u32` for IPv4, `u128` for IPv6.
pub trait AddressBits: Copy + Eq + Ord + Hash + Default + Debug {
    /// Bits of an address.
    const WIDTH: u8;
    /// Returns the first `length` bits; the other bits are 0.
    #[must_use]
    fn masked(self, length: u8) -> Self;
    /// Returns the length of the common prefix.
    fn common(self, other: Self) -> u8;
    /// The bit behind the first `position`, 0 or 1; `position` is below [`WIDTH`](Self::WIDTH).
    fn bit(self, position: u8) -> usize;
    /// The six bits behind the first `position`, which is below [`WIDTH`](Self::WIDTH); zeros behind the last.
    fn six_bits(self, position: u8) -> usize;
    /// With six bits behind the first `position`, where zeros stood.
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

/// A prefix: the first `length` bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Prefix<A> {
    bits: A,
    length: u8,
}

impl<A: AddressBits> Prefix<A> {
    /// The first `length` bits of `bits`; a length beyond the address is that of the address.
    #[inline]
    pub fn new(bits: A, length: u8) -> Self {
        Self { bits: bits.masked(length), length: length.min(A::WIDTH) }
    }

    /// The bits, zeros behind the prefix.
    #[inline]
    pub fn bits(self) -> A {
        self.bits
    }

    /// How many bits it has.
    #[inline]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether the address begins with it.
    #[inline]
    pub fn holds(self, address: A) -> bool {
        self.bits.common(address) >= self.length
    }

    /// Whether every address that begins with `other` begins with it: `other` is the same or a longer one below it.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.holds(other.bits)
    }
}
