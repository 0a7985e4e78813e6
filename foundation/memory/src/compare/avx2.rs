//! AVX2, vectors of 32 bytes: Intel processors since 2013, AMD processors since 2015.

use core::arch::x86_64::{
    _mm256_andnot_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_loadu_si256, _mm256_max_epu32,
    _mm256_movemask_ps, _mm256_set1_epi32,
};

use super::portable::low_of_first;
use super::{Vectors, Words, proof};

proof! {
    /// Proof that the processor has AVX2 and the bit manipulation instructions.
    Avx2: "avx2", "bmi1", "bmi2", "popcnt"
}

impl Vectors for Avx2 {
    #[inline(always)]
    fn equal_above(self, words: &Words, wanted: u32, low: u32) -> u32 {
        // SAFETY: `self` proves that the processor has AVX2. The two loads of 32 bytes are inside the 64
        // bytes of `words`, at any alignment.
        unsafe {
            let (wanted, low) =
                (_mm256_set1_epi32(wanted.cast_signed()), _mm256_set1_epi32(low.cast_signed()));
            let start = words.as_ptr();
            let eight = |at: usize| {
                let above = _mm256_andnot_si256(low, _mm256_loadu_si256(start.add(at).cast()));
                _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(above, wanted))) as u32
            };
            eight(0) | eight(8) << 8
        }
    }

    #[inline(always)]
    fn first_low(self, words: &Words, wanted: u32, low: u32) -> u32 {
        low_of_first(words, self.equal_above(words, wanted, low), low)
    }

    #[inline(always)]
    fn below(self, words: &Words, limit: u32) -> u32 {
        // SAFETY: as in `equal_above`.
        unsafe {
            let limit = _mm256_set1_epi32(limit.cast_signed());
            let start = words.as_ptr();
            // AVX2 has no comparison of unsigned words. But the maximum of word and limit equals the word
            // unless the word is below the limit.
            let eight = |at: usize| {
                let words = _mm256_loadu_si256(start.add(at).cast());
                let reached = _mm256_cmpeq_epi32(_mm256_max_epu32(words, limit), words);
                _mm256_movemask_ps(_mm256_castsi256_ps(reached)) as u32
            };
            !(eight(0) | eight(8) << 8) & 0xffff
        }
    }
}
