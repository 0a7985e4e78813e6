//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

/// Sequence of 64-bit words that a seed determines. Any seed is suitable. Not for secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Returns the sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next word.
    #[inline]
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_that_of_the_reference_implementation() {
        let mut words = SplitMix::new(1_234_567);
        assert_eq!((words.word(), words.word()), (6_457_827_717_110_365_317, 3_203_168_211_198_807_973));
    }
}
