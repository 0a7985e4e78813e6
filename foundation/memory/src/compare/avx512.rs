//! AVX-512, vectors of a whole cache line: Intel server processors since 2017, AMD processors since 2022.

use core::arch::x86_64::{
    _mm512_andnot_si512, _mm512_cmpeq_epi32_mask, _mm512_cmple_epu32_mask, _mm512_cmplt_epu32_mask,
    _mm512_cvtsi512_si32, _mm512_loadu_si512, _mm512_maskz_compress_epi32, _mm512_set1_epi32,
    _mm512_xor_si512,
};

use super::{Vectors, Words, proof};

proof! {
    /// Proof that the processor has AVX-512 with its extensions for 8-bit to 64-bit words and for shorter
    /// vectors.
    Avx512: "avx512f", "avx512bw", "avx512dq", "avx512vl", "bmi1", "bmi2", "popcnt"
}

impl Vectors for Avx512 {
    #[inline(always)]
    fn equal_above(self, words: &Words, wanted: u32, low: u32) -> u32 {
        // SAFETY: `self` proves that the processor has AVX-512. The load reads the 64 bytes of `words`, at
        // any alignment.
        unsafe {
            let above = _mm512_andnot_si512(
                _mm512_set1_epi32(low.cast_signed()),
                _mm512_loadu_si512(words.as_ptr().cast()),
            );
            u32::from(_mm512_cmpeq_epi32_mask(above, _mm512_set1_epi32(wanted.cast_signed())))
        }
    }

    #[inline(always)]
    fn first_low(self, words: &Words, wanted: u32, low: u32) -> u32 {
        // SAFETY: as in `equal_above`.
        unsafe {
            let words = _mm512_loadu_si512(words.as_ptr().cast());
            // The exclusive or leaves only the low bits of a word that equals `wanted`.
            let rest = _mm512_xor_si512(words, _mm512_set1_epi32(wanted.cast_signed()));
            let found = _mm512_cmple_epu32_mask(rest, _mm512_set1_epi32(low.cast_signed()));
            _mm512_cvtsi512_si32(_mm512_maskz_compress_epi32(found, rest)).cast_unsigned()
        }
    }

    #[inline(always)]
    fn below(self, words: &Words, limit: u32) -> u32 {
        // SAFETY: as in `equal_above`.
        unsafe {
            let words = _mm512_loadu_si512(words.as_ptr().cast());
            u32::from(_mm512_cmplt_epu32_mask(words, _mm512_set1_epi32(limit.cast_signed())))
        }
    }
}
