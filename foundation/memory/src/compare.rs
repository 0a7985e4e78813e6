//! Comparing all words of a cache line at once.

/// A bit for each of `words` that is `value` when its low `bits` are shifted out.
///
/// `bits` must be below 32.
#[inline(always)]
pub fn words_above(words: &[u32; 16], bits: u32, value: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{
            _mm_cmpeq_epi32, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_packs_epi32, _mm_set1_epi32, _mm_srl_epi32,
        };
        // SAFETY: SSE2 is part of every x86-64 processor, and the four loads of 16 bytes lie inside of the 64 of
        // `words`, at any alignment.
        unsafe {
            let (wanted, shift) = (_mm_set1_epi32(value as i32), _mm_cvtsi32_si128(bits as i32));
            let start = words.as_ptr();
            let four = |at: usize| {
                _mm_cmpeq_epi32(_mm_srl_epi32(_mm_loadu_si128(start.add(at).cast()), shift), wanted)
            };
            let (low, high) = (_mm_packs_epi32(four(0), four(4)), _mm_packs_epi32(four(8), four(12)));
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    one_by_one(words, bits, value)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn one_by_one(words: &[u32; 16], bits: u32, value: u32) -> u32 {
    let bit = |(at, word): (usize, &u32)| u32::from(word >> bits == value) << at;
    words.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_compared_as_one_by_one(
            mut words: [u32; 16],
            bits in 0_u32..32,
            same in prop::collection::vec(0..16_usize, 0..6),
            which in 0..16_usize,
        ) {
            for at in same {
                words[at] = words[which] ^ 1;
            }
            let value = words[which] >> bits;
            prop_assert_ne!(words_above(&words, bits, value), 0);
            prop_assert_eq!(words_above(&words, bits, value), one_by_one(&words, bits, value));
        }
    }
}
