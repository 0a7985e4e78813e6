//! Index of flows: the hash of bpf/flow_cache_table.h, and buckets of words that name flow cache entries.
//!
//! A removed flow leaves a tombstone, not a free word. A program searches a flow's second bucket only if the
//! first bucket has no free word. So a free word in the first bucket would hide flows in their second bucket.
//! New flows use tombstones first.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

use aya::Ebpf;

use super::layout::{KEY_BYTES, Table, WORDS};
use crate::OffloadError;
use crate::bpf::mapped_map::MappedMap;

const FREE: u32 = 0;
/// Length of a bucket in bytes.
const BUCKET: usize = WORDS * 4;
/// Shifts of the hash that select a flow's first and second bucket.
const CHOICES: [u32; 2] = [36, 12];

impl Table {
    /// Creates a table for `capacity` flows, with its own hash secrets. At most half of its words are in use.
    pub fn new(capacity: u32) -> Self {
        let keyed = RandomState::new();
        let secrets = std::array::from_fn(|at| keyed.hash_one(at) as u32);
        let buckets = (u64::from(capacity) * 2).div_ceil(WORDS as u64).next_power_of_two();
        // A word with all number bits set is a tombstone, so no entry has that number.
        let numbers = (u64::from(capacity) + 2).next_power_of_two() - 1;
        Self { mask: (buckets - 1) as u32, numbers: numbers as u32, secrets }
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u32 {
        self.mask + 1
    }

    /// Computes `hash_of` of bpf/flow_cache_table.h.
    fn hash(&self, key: &[u8; KEY_BYTES]) -> u64 {
        let mut words = [0_u64; KEY_BYTES / 4];
        for ((word, bytes), secret) in words.iter_mut().zip(key.as_chunks().0).zip(&self.secrets) {
            *word = u32::from_ne_bytes(*bytes).wrapping_add(*secret).into();
        }
        let is_v6 = key[37] == 6;
        let [a, b, c, d, e, f, g, h, ports, last] = words;
        let mut sum = (a * e).wrapping_add(ports * last);
        if is_v6 {
            sum =
                [(b, f), (c, g), (d, h)].iter().fold(sum, |sum, (one, other)| sum.wrapping_add(one * other));
        }
        sum = (sum ^ sum >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum = (sum ^ sum >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        sum ^ sum >> 33
    }
}

/// Buckets of the flow table, for changes by workers. Several workers may change them at the same time.
#[derive(Debug)]
pub(super) struct Words {
    map: MappedMap,
    table: Table,
}

impl Words {
    pub fn new(object: &mut Ebpf, table: Table) -> Result<Self, OffloadError> {
        Ok(Self { map: MappedMap::new(object, "buckets", table.buckets() as usize, BUCKET)?, table })
    }

    /// Inserts an entry number. Returns `false` if there is no free word, or if the flow has an entry
    /// already. `is_there` tells whether the entry with a number is an entry of this flow.
    pub fn insert(&mut self, key: &[u8; KEY_BYTES], number: u32, is_there: impl Fn(u32) -> bool) -> bool {
        let hash = self.table.hash(key);
        let named = self.word(hash, number + 1);
        if self.places(hash).any(|at| self.number(self.found(at), hash).is_some_and(&is_there)) {
            return false;
        }
        while let Some((at, found)) = self.vacant(hash) {
            let order = (Ordering::Release, Ordering::Relaxed);
            // The exchange fails if another worker has just taken the word; then the search starts again.
            if self.map.word32(at).compare_exchange(found, named, order.0, order.1).is_ok() {
                return true;
            }
        }
        false
    }

    /// Returns the byte offset of the word to use for a new flow of this hash, and its contents: free or a
    /// tombstone. `None` if both buckets are full.
    fn vacant(&self, hash: u64) -> Option<(usize, u32)> {
        let numbers = self.table.numbers;
        let found = |at: usize| (at, self.found(at));
        let (is_free, is_left) = (|word: u32| word == FREE, |word: u32| word & numbers == numbers);
        (0..CHOICES.len()).find_map(|bucket| {
            let words = || self.places(hash).skip(bucket * WORDS).take(WORDS).map(found);
            let first = words().take(1).find(|(_, word)| is_free(*word) || is_left(*word));
            first
                .or_else(|| words().find(|(_, word)| is_left(*word)))
                .or_else(|| words().find(|(_, word)| is_free(*word)))
        })
    }

    fn found(&self, at: usize) -> u32 {
        self.map.word32(at).load(Ordering::Relaxed)
    }

    /// Removes an entry number.
    pub fn remove(&mut self, key: &[u8; KEY_BYTES], number: u32) {
        let hash = self.table.hash(key);
        let named = self.word(hash, number + 1);
        if let Some(at) = self.places(hash).find(|at| self.map.word32(*at).load(Ordering::Relaxed) == named) {
            self.map.word32(at).store(self.table.numbers, Ordering::Release);
        }
    }

    /// Returns the byte offsets of all words that a flow may use, in the order of the search.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = u64::from(self.table.mask);
        CHOICES.into_iter().flat_map(move |shift| {
            let bucket = (hash >> shift & mask) as usize * BUCKET;
            (0..WORDS).map(move |turn| bucket + ((hash >> 60) as usize + turn) % WORDS * 4)
        })
    }

    fn word(&self, hash: u64, name: u32) -> u32 {
        (hash as u32 & !self.table.numbers) | name
    }

    /// Returns the entry number in a word, if the word has the hash bits of this hash.
    fn number(&self, word: u32, hash: u64) -> Option<u32> {
        let is_of = (word ^ hash as u32) & !self.table.numbers == 0;
        (word & self.table.numbers).checked_sub(1).filter(|_| is_of)
    }
}
