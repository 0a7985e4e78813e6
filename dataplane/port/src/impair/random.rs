//! Pseudo-random numbers from a seed.

use millrace_units::SplitMix;

/// Random sequence determined by its seed.
#[derive(Debug)]
pub(super) struct Random(SplitMix);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.word()
    }

    /// Returns whether an event of this probability happens: never at 0, always at 1.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // The upper 53 bits make a number from 0 to just below 1.
        let draw = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        draw < probability
    }

    /// Returns a number from 0 to `below` - 1; 0 when `below` is 0.
    pub(super) fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(below)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_match_their_probability() {
        let mut random = Random::new(7);
        let hits = (0..100_000).filter(|_| random.chance(0.1)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| random.chance(1.0) && !random.chance(0.0)));
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        (0..1000).for_each(|_| seen[random.below(5) as usize] = true);
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!(random.below(0), 0);
    }
}
