//! Keyed hash of connection keys and addresses.

use millrace_units::SplitMix;

use crate::key::ConnectionKey;

/// Keyed hash. A sender that doesn't know the seed can't choose keys that collide (NH of UMAC: Black, Halevi,
/// Krawczyk, Krovetz and Rogaway, CRYPTO '99, section 4, with 64-bit words).
#[derive(Clone)]
pub(crate) struct KeyHash {
    secrets: [u64; 6],
    fold: [u64; 2],
}

impl std::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyHash").finish_non_exhaustive()
    }
}

impl KeyHash {
    /// Derives the words of the hash from `seed` by [`SplitMix`].
    pub fn new(seed: u64) -> Self {
        let mut words = SplitMix::new(seed);
        let mut next = || words.word();
        Self { secrets: std::array::from_fn(|_| next()), fold: [next() | 1, next() | 1] }
    }

    /// Returns the hash of a connection key.
    #[inline]
    pub fn of(&self, key: &ConnectionKey) -> u64 {
        let [a, b, c, d, e] = key.words();
        self.of_words([a, c, b, d, e, 0])
    }

    /// Returns the hash of an address.
    #[inline]
    pub fn of_address(&self, address: &[u8; 16]) -> u64 {
        let word = u128::from_le_bytes(*address);
        self.of_words([word as u64, (word >> 64) as u64, 0, 0, 0, 0])
    }

    #[inline]
    fn of_words(&self, words: [u64; 6]) -> u64 {
        let mut sum = 0u128;
        for (pair, secret) in words.chunks_exact(2).zip(self.secrets.chunks_exact(2)) {
            if let ([a, b], [s, t]) = (pair, secret) {
                let product = u128::from(a.wrapping_add(*s)) * u128::from(b.wrapping_add(*t));
                sum = sum.wrapping_add(product);
            }
        }
        let mixed = (sum as u64).wrapping_mul(self.fold[0]) ^ ((sum >> 64) as u64).wrapping_mul(self.fold[1]);
        mixed ^ mixed >> 32
    }
}
