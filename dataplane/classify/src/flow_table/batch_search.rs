//! Finding the records of many flows at once.
//!
//! Keys go through three stages in blocks: their buckets are fetched; buckets have come, and a record is guessed by
//! its tag and fetched; records have come, and keys are compared. Each round is in another stage with each of three
//! blocks, so while lines are on their way there is work to do.

use millrace_memory::{Operation, Vectors, prefetch};
use millrace_packet::{Family, FlowKey};

use super::record::{FlowRecord, NearKey};
use super::{FlowIndex, FlowTable};

/// Keys of a block.
const BLOCK: usize = 32;
/// Rounds that a line is given to come.
const AHEAD: usize = 1;
/// Blocks of which something is kept at a time, at least: a power of two.
const UNDER_WAY: usize = (2 * AHEAD + 1).next_power_of_two();

/// A batch to be found; see [`FlowTable::find_batch`].
pub(super) struct BatchSearch<'a> {
    table: &'a FlowTable,
    keys: &'a [FlowKey],
    hashes: &'a [u64],
    found: &'a mut [Option<FlowIndex>],
}

/// What is known of a block's flows between stages.
#[derive(Clone, Copy)]
struct Aims<'a> {
    homes: [u32; BLOCK],
    tags: [u32; BLOCK],
    guesses: [&'a FlowRecord; BLOCK],
}

impl<'a> BatchSearch<'a> {
    /// # Panics
    /// When the slices' lengths differ.
    #[inline(always)]
    pub fn new(
        table: &'a FlowTable,
        keys: &'a [FlowKey],
        hashes: &'a [u64],
        found: &'a mut [Option<FlowIndex>],
    ) -> Self {
        let lengths = [hashes.len(), found.len()];
        assert!(lengths == [keys.len(); 2], "slices of one batch differ in length");
        Self { table, keys, hashes, found }
    }
}

impl Operation for BatchSearch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) {
        let Self { table, keys, hashes, found } = self;
        let (key_blocks, keys) = keys.as_chunks::<BLOCK>();
        let (hash_blocks, hashes) = hashes.as_chunks::<BLOCK>();
        let (found_blocks, found) = found.as_chunks_mut::<BLOCK>();
        let none = Aims { homes: [0; BLOCK], tags: [0; BLOCK], guesses: [table.record_of_none(); BLOCK] };
        let mut aims = [none; UNDER_WAY];
        for round in 0..key_blocks.len() + 2 * AHEAD {
            if let Some(hashes) = hash_blocks.get(round) {
                table.aim(hashes, &mut aims[round % UNDER_WAY]);
            }
            let block = round.wrapping_sub(AHEAD);
            if let (Some(keys), Some(found)) = (key_blocks.get(block), found_blocks.get_mut(block)) {
                table.guess(vectors, keys, &mut aims[block % UNDER_WAY], found);
            }
            let block = round.wrapping_sub(2 * AHEAD);
            if let (Some(keys), Some(hashes), Some(found)) =
                (key_blocks.get(block), hash_blocks.get(block), found_blocks.get_mut(block))
            {
                table.check(keys, hashes, &aims[block % UNDER_WAY].guesses, found);
            }
        }
        let [aims, ..] = &mut aims;
        table.aim(hashes, aims);
        table.guess(vectors, keys, aims, found);
        table.check(keys, hashes, &aims.guesses, found);
    }
}

impl FlowTable {
    /// The first stage, for up to a block of hashes.
    #[inline(always)]
    fn aim(&self, hashes: &[u64], aims: &mut Aims<'_>) {
        let places = aims.homes.iter_mut().zip(&mut aims.tags);
        for ((home, tag), &hash) in places.zip(hashes) {
            (*home, *tag) = (self.buckets.home(hash), self.buckets.tag(hash));
        }
        aims.homes.iter().take(hashes.len()).for_each(|&home| self.buckets.prefetch(home));
    }

    /// The second stage.
    #[inline(always)]
    fn guess<'a>(
        &'a self,
        vectors: impl Vectors,
        keys: &[FlowKey],
        aims: &mut Aims<'a>,
        found: &mut [Option<FlowIndex>],
    ) {
        let places = aims.homes.iter().zip(&aims.tags).zip(&mut aims.guesses);
        for ((found, key), ((&home, &tag), guess)) in found.iter_mut().zip(keys).zip(places) {
            let slot = self.buckets.guess(vectors, home, tag);
            *guess = &self.records[slot];
            prefetch(*guess);
            if key.family() == Family::V6 {
                prefetch(self.records.far(slot));
            }
            *found = FlowIndex::from_slot(slot);
        }
    }

    /// The third stage.
    #[inline(always)]
    fn check(
        &self,
        keys: &[FlowKey],
        hashes: &[u64],
        guesses: &[&FlowRecord],
        found: &mut [Option<FlowIndex>],
    ) {
        for (((found, &hash), key), guess) in found.iter_mut().zip(hashes).zip(keys).zip(guesses) {
            let is_near = guess.is_near(NearKey::of(key), 0);
            let is_far = || found.is_some_and(|index| self.records.far(index.slot()).key.is_of(key));
            if !(is_near && (key.family() == Family::V4 || is_far())) {
                *found = self.find_again(*found, key, hash);
            }
        }
    }

    /// For flows without a record, and the few whose first guess was wrong.
    #[cold]
    #[inline(never)]
    pub(super) fn find_again(
        &self,
        guessed: Option<FlowIndex>,
        key: &FlowKey,
        hash: u64,
    ) -> Option<FlowIndex> {
        if guessed.is_none() && !self.buckets.spills(self.buckets.home(hash)) {
            return None;
        }
        self.find(key, hash, 0)
    }

    /// What stands in slot 0, which is no flow's.
    #[inline(always)]
    fn record_of_none(&self) -> &FlowRecord {
        &self.records[0]
    }
}
