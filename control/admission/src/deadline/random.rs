//! Random numbers of flow sets and simulations: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
//! Number Generators", 2014).

/// Generator whose numbers depend on its seed alone.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `least` to below `most`.
    pub fn uniform(&mut self, least: f64, most: f64) -> f64 {
        least + (self.number() >> 11) as f64 / (1_u64 << 53) as f64 * (most - least)
    }

    /// Returns a number from `least` to below `most`, both above 0, with a uniform logarithm.
    pub fn scale(&mut self, least: f64, most: f64) -> f64 {
        self.uniform(least.ln(), most.ln()).exp()
    }

    /// Returns a number below `most`, at least 1.
    pub fn below(&mut self, most: u64) -> u64 {
        self.number() % most.max(1)
    }
}
