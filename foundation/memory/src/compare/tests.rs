//! Tests that compare each kind of vectors of this processor with word-by-word implementations.

use proptest::prelude::*;

use super::portable::{one_by_one, shorts_one_by_one};
use super::{Operation, Vectors, Words, equal_shorts, with_each, with_widest};

#[derive(Clone, Copy)]
struct Both<'a> {
    words: &'a Words,
    wanted: u32,
    low: u32,
}

impl Operation for Both<'_> {
    type Output = (u32, u32, u32);

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) -> (u32, u32, u32) {
        let Self { words, wanted, low } = self;
        let below = vectors.below(words, wanted);
        (vectors.equal_above(words, wanted, low), vectors.first_low(words, wanted, low), below)
    }
}

proptest! {
    #[test]
    fn every_kind_of_vectors_compares_as_one_by_one(
        mut words: Words,
        bits in 0_u32..32,
        same in prop::collection::vec(0..16_usize, 0..6),
        which in 0..16_usize,
        there: bool,
    ) {
        for at in same {
            words[at] = words[which] ^ 1;
        }
        let low = (1 << bits) - 1;
        let wanted = (if there { words[which] } else { !words[which] }) & !low;
        let both = Both { words: &words, wanted, low };
        let found = one_by_one(&words, wanted, low);
        prop_assert!(found != 0 || !there);
        let first = words.get(found.trailing_zeros() as usize).map_or(0, |word| word & low);
        let less = |(at, word): (usize, &u32)| u32::from(*word < wanted) << at;
        let below = words.iter().enumerate().map(less).fold(0, |all, bit| all | bit);
        for output in with_each(|| both) {
            prop_assert_eq!(output, (found, first, below));
        }
        prop_assert_eq!(with_widest(both), (found, first, below));
    }

    #[test]
    fn short_words_are_compared_as_one_by_one(mut words: [u16; 8], same in prop::collection::vec(0..8_usize, 0..4), wanted: u16) {
        same.into_iter().for_each(|at| words[at] = wanted);
        prop_assert_eq!(equal_shorts(&words, wanted), shorts_one_by_one(&words, wanted));
    }
}
