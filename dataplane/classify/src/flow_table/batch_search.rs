//! Lookup of the flow records of many keys at once.
//!
//! Keys pass three stages in blocks. The first stage prefetches the buckets of the hash table. The second
//! stage compares the tags in the buckets, and prefetches the record that probably belongs to the key. The
//! third stage compares the key with the record. Each iteration runs the stages on three different blocks, so
//! the processor has work while cache lines arrive.

use millrace_memory::{Operation, Vectors, prefetch};
use millrace_packet::{Family, FlowKey};

use super::lookup::Lookup;
use super::storage::{FlowIndex, FlowRecord, NearKey};

/// Number of keys in a block.
const BLOCK: usize = 32;
/// Number of iterations between the prefetch of a cache line and its use.
const AHEAD: usize = 1;
/// Number of blocks that are between the first and the last stage at once, rounded up to a power of two.
const UNDER_WAY: usize = (2 * AHEAD + 1).next_power_of_two();

/// Arguments of a batch lookup; see [`FlowTable::find_batch`](super::FlowTable::find_batch).
pub(super) struct BatchSearch<'a> {
    lookup: Lookup<'a>,
    keys: &'a [FlowKey],
    hashes: &'a [u64],
    found: &'a mut [Option<FlowIndex>],
}

/// Results for one block that a stage leaves for the next stage.
#[derive(Clone, Copy)]
struct Aims<'a> {
    homes: [u32; BLOCK],
    tags: [u32; BLOCK],
    guesses: [&'a FlowRecord; BLOCK],
}

impl<'a> BatchSearch<'a> {
    /// Creates the lookup of a batch.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn new(
        lookup: Lookup<'a>,
        keys: &'a [FlowKey],
        hashes: &'a [u64],
        found: &'a mut [Option<FlowIndex>],
    ) -> Self {
        let lengths = [hashes.len(), found.len()];
        assert!(lengths == [keys.len(); 2], "slices of one batch differ in length");
        Self { lookup, keys, hashes, found }
    }
}

impl Operation for BatchSearch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) {
        let Self { lookup, keys, hashes, found } = self;
        let (key_blocks, keys) = keys.as_chunks::<BLOCK>();
        let (hash_blocks, hashes) = hashes.as_chunks::<BLOCK>();
        let (found_blocks, found) = found.as_chunks_mut::<BLOCK>();
        // Slot 0 belongs to no flow.
        let none = &lookup.records[0];
        let none = Aims { homes: [0; BLOCK], tags: [0; BLOCK], guesses: [none; BLOCK] };
        let mut aims = [none; UNDER_WAY];
        for round in 0..key_blocks.len() + 2 * AHEAD {
            if let Some(hashes) = hash_blocks.get(round) {
                aim(lookup, hashes, &mut aims[round % UNDER_WAY]);
            }
            let block = round.wrapping_sub(AHEAD);
            if let (Some(keys), Some(found)) = (key_blocks.get(block), found_blocks.get_mut(block)) {
                guess(lookup, vectors, keys, &mut aims[block % UNDER_WAY], found);
            }
            let block = round.wrapping_sub(2 * AHEAD);
            if let (Some(keys), Some(hashes), Some(found)) =
                (key_blocks.get(block), hash_blocks.get(block), found_blocks.get_mut(block))
            {
                check(lookup, keys, hashes, &aims[block % UNDER_WAY].guesses, found);
            }
        }
        let [aims, ..] = &mut aims;
        aim(lookup, hashes, aims);
        guess(lookup, vectors, keys, aims, found);
        check(lookup, keys, hashes, &aims.guesses, found);
    }
}

/// First stage, for up to a block of hashes: prefetches the buckets.
#[inline(always)]
fn aim(lookup: Lookup<'_>, hashes: &[u64], aims: &mut Aims<'_>) {
    let places = aims.homes.iter_mut().zip(&mut aims.tags);
    for ((home, tag), &hash) in places.zip(hashes) {
        (*home, *tag) = (lookup.buckets.home(hash), lookup.buckets.tag(hash));
    }
    aims.homes.iter().take(hashes.len()).for_each(|&home| lookup.buckets.prefetch(home));
}

/// Second stage: prefetches the records that probably belong to the keys.
#[inline(always)]
fn guess<'a>(
    lookup: Lookup<'a>,
    vectors: impl Vectors,
    keys: &[FlowKey],
    aims: &mut Aims<'a>,
    found: &mut [Option<FlowIndex>],
) {
    let places = aims.homes.iter().zip(&aims.tags).zip(&mut aims.guesses);
    for ((found, key), ((&home, &tag), guess)) in found.iter_mut().zip(keys).zip(places) {
        let slot = lookup.buckets.guess(vectors, home, tag);
        *guess = &lookup.records[slot];
        prefetch(*guess);
        if key.family() == Family::V6 {
            prefetch(lookup.records.far(slot));
        }
        *found = FlowIndex::from_slot(slot);
    }
}

/// Third stage: compares the keys with these records.
#[inline(always)]
fn check(
    lookup: Lookup<'_>,
    keys: &[FlowKey],
    hashes: &[u64],
    guesses: &[&FlowRecord],
    found: &mut [Option<FlowIndex>],
) {
    for (((found, &hash), key), guess) in found.iter_mut().zip(hashes).zip(keys).zip(guesses) {
        let is_near = guess.is_near(NearKey::of(key), 0);
        let is_far = || found.is_some_and(|index| lookup.records.far(index.slot()).key.is_of(key));
        if !(is_near && (key.family() == Family::V4 || is_far())) {
            *found = lookup.find_again(*found, key, hash);
        }
    }
}
