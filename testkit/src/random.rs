//! Reproducible random numbers.

use millrace_units::SplitMix;

/// Random number generator. Any seed is suitable.
#[derive(Clone, Debug)]
pub struct Random(SplitMix);

impl Random {
    /// Returns a generator. The same seed gives the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.word()
    }

    /// Returns a number below `end`, which must be above 0.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Returns a number from 0 (included) to 1 (excluded).
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits() as u8).collect()
    }

    /// Returns a random item of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns a random item of `items`. A larger `skew` favours earlier items; 1 makes all items equally
    /// likely.
    pub fn skewed<'a, T>(&mut self, items: &'a [T], skew: f64) -> &'a T {
        &items[(self.fraction().powf(skew) * items.len() as f64) as usize]
    }

    /// Returns a random item of `items`. The probability of an item is proportional to its weight.
    pub fn weighted<'a, T>(&mut self, items: &'a [(T, u32)]) -> &'a T {
        let sum: u32 = items.iter().map(|(_, weight)| weight).sum();
        let mut left = self.below(sum as usize) as u32;
        let chosen = items.iter().find(|(_, weight)| {
            let here = left < *weight;
            left = left.wrapping_sub(*weight);
            here
        });
        &chosen.expect("the number is below the sum of the weights").0
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_keeps_every_item_and_changes_the_order() {
        let mut items: Vec<u32> = (0..1000).collect();
        Random::new(1).shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }
}
