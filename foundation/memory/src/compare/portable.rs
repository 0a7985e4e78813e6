//! Vector instructions that every processor of the architecture has.

use super::{Vectors, Words};

/// Proof for instructions that every processor of the architecture has: SSE2 on x86-64.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Vectors for Portable {
    #[inline(always)]
    fn equal_above(self, words: &Words, wanted: u32, low: u32) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{
                _mm_andnot_si128, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
                _mm_packs_epi32, _mm_set1_epi32,
            };
            // SAFETY: SSE2 is part of every x86-64 processor. The four loads of 16 bytes are inside the 64
            // bytes of `words`, at any alignment.
            unsafe {
                let (wanted, low) = (_mm_set1_epi32(wanted.cast_signed()), _mm_set1_epi32(low.cast_signed()));
                let start = words.as_ptr();
                let four = |at: usize| {
                    _mm_cmpeq_epi32(_mm_andnot_si128(low, _mm_loadu_si128(start.add(at).cast())), wanted)
                };
                let (first, second) = (_mm_packs_epi32(four(0), four(4)), _mm_packs_epi32(four(8), four(12)));
                _mm_movemask_epi8(_mm_packs_epi16(first, second)) as u32
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        one_by_one(words, wanted, low)
    }

    #[inline(always)]
    fn first_low(self, words: &Words, wanted: u32, low: u32) -> u32 {
        low_of_first(words, self.equal_above(words, wanted, low), low)
    }

    #[inline(always)]
    fn below(self, words: &Words, limit: u32) -> u32 {
        // The compiler turns this form into vector instructions.
        let bit = |at: usize| u16::from(words[at] < limit) << at;
        let bits: [u16; 16] = std::array::from_fn(bit);
        u32::from(bits.iter().fold(0, |below, bit| below | bit))
    }
}

/// Returns a word whose bit n is set if short word n of `words` equals `wanted`. Uses no wider vectors,
/// because the words are only a quarter of a cache line.
#[inline(always)]
pub fn equal_shorts(words: &[u16; 8], wanted: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
            _mm_setzero_si128,
        };
        // SAFETY: SSE2 is part of every x86-64 processor, and the load reads the 16 bytes of `words`, at any
        // alignment.
        unsafe {
            let words = _mm_loadu_si128(words.as_ptr().cast());
            let equal = _mm_cmpeq_epi16(words, _mm_set1_epi16(wanted.cast_signed()));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    shorts_one_by_one(words, wanted)
}

/// Reference implementation of [`equal_shorts`].
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) fn shorts_one_by_one(words: &[u16; 8], wanted: u16) -> u32 {
    let bit = |(at, word): (usize, &u16)| u32::from(*word == wanted) << at;
    words.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
}

/// Returns the `low` bits of the word with the lowest bit that is set in `found`; 0 if `found` is 0.
#[inline(always)]
pub(super) fn low_of_first(words: &Words, found: u32, low: u32) -> u32 {
    // If `found` is 0, there are 32 trailing zeros. Then the lookup reads word 0, and the select returns 0
    // instead.
    let word = words[found.trailing_zeros() as usize % words.len()];
    std::hint::select_unpredictable(found == 0, 0, word & low)
}

/// Reference implementation of [`Vectors::equal_above`] for all kinds of vectors.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) fn one_by_one(words: &Words, wanted: u32, low: u32) -> u32 {
    let bit = |(at, word): (usize, &u32)| u32::from(word & !low == wanted) << at;
    words.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
}
