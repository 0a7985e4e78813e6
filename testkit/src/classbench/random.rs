//! Random numbers that are the same in every run.

/// Vigna's SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 to below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// One of some items, the earlier the more often the greater `skew` is; 1 for all equally often.
    pub fn skewed<'a, T>(&mut self, items: &'a [T], skew: f64) -> &'a T {
        &items[(self.fraction().powf(skew) * items.len() as f64) as usize]
    }

    /// One of some items, as often as its weight says.
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
}
