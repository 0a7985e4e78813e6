//! Choice of the copies to send.

use crate::settings::{Mode, Settings};

/// Chooses one of every `one_in` copies.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    one_in: u32,
    mode: Mode,
    /// Number of copies since the last chosen one, in the mode `every`.
    passed: u32,
    /// State of the random number generator; never 0.
    random: u64,
}

impl Choice {
    pub fn new(settings: &Settings) -> Self {
        let Settings { one_in, mode, seed, .. } = *settings;
        // Spread the bits of the seed: a small state would first yield small numbers. The factor is odd, so
        // the result is not 0.
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { one_in, mode, passed: 0, random }
    }

    /// Changes the settings. If `from_seed` is set, the random numbers start again from the seed.
    pub fn change(&mut self, settings: &Settings, from_seed: bool) {
        let begun = Self::new(settings);
        let random = if from_seed { begun.random } else { self.random };
        *self = Self { random, ..begun };
    }

    /// Whether the next copy is to be sent.
    #[inline]
    pub fn next(&mut self) -> bool {
        match self.mode {
            Mode::Every => {
                self.passed += 1;
                let chosen = self.passed >= self.one_in;
                if chosen {
                    self.passed = 0;
                }
                chosen
            }
            // Send the copy if the random number, as a fraction of 2^64, is below 1 / `one_in`.
            Mode::Random => (u128::from(self.draw()) * u128::from(self.one_in)) >> 64 == 0,
        }
    }

    /// Returns the next 64-bit random number: xorshift with shifts of 13, 7 and 17 (Marsaglia, *Xorshift
    /// RNGs*, 2003).
    #[inline]
    fn draw(&mut self) -> u64 {
        let mut number = self.random;
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.random = number;
        number
    }
}
