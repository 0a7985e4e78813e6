//! Random numbers that are the same in every run, and frames made wrong by them.

/// SplitMix64 (Steele, Lea and Flood 2014): enough to make frames wrong in many ways.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits() as u8).collect()
    }

    /// One of `items`, which are not none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A frame made wrong in one of many ways: bits flipped, bytes overwritten, cut, lengthened, or its head put before
    /// the tail of `other`.
    pub fn mutate(&mut self, frame: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        match self.below(6) {
            0 => bytes.truncate(self.below(bytes.len() + 1)),
            1 => bytes.extend(self.bytes(64)),
            2 => {
                let at = self.below(bytes.len().min(other.len()) + 1);
                bytes.truncate(at);
                bytes.extend(&other[at..]);
            }
            // The addresses of the link stay, so that what follows is read at all.
            3 => self.overwrite(&mut bytes, 12),
            4 => self.flip(&mut bytes, 12),
            _ => self.flip(&mut bytes, 0),
        }
        bytes
    }

    fn overwrite(&mut self, bytes: &mut [u8], from: usize) {
        for _ in 0..=self.below(4) {
            let at = from + self.below((bytes.len() - from).max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *self.pick(&[0, 1, 4, 5, 0x45, 0x60, 0x7f, 0x80, 0xfe, 0xff]);
            }
        }
    }

    fn flip(&mut self, bytes: &mut [u8], from: usize) {
        for _ in 0..=self.below(8) {
            let at = from + self.below((bytes.len() - from).max(1));
            let bit = self.below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
    }
}
