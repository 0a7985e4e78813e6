//! Random numbers from a seed: the same on every machine.

/// Generator of pseudo-random numbers (SplitMix64; Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to, not including, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number from `least` to below `most`.
    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + self.fraction() * (most - least)
    }

    /// Returns a number from `least` to below `most`, both above 0, with a uniform logarithm.
    pub fn scale(&mut self, least: f64, most: f64) -> f64 {
        self.between(least.ln(), most.ln()).exp()
    }

    /// Returns a number below `count`; 0 where `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// Returns a number of the normal distribution (Box and Muller, 1958).
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.fraction();
        mean + deviation * radius * angle.cos()
    }
}
