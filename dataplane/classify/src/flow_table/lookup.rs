//! Finding records, and counting packets.

use millrace_memory::prefetch_slice_element;
use millrace_packet::{Family, FlowKey};
use millrace_units::Instant;

use super::record::{FLAG_BITS, FLAGS, NearKey, PROBATION, tick};
use super::{FlowIndex, FlowTable};

/// Keys that go through a stage of a batch lookup together.
const BLOCK: usize = 16;

impl FlowTable {
    /// The hash under which a flow's records are found: of all six fields, with a key of this table's own.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hash.of(key)
    }

    /// Fetches where the search for a flow's base record begins.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.buckets.prefetch(self.buckets.home(hash));
    }

    /// Fetches where the search for another of a flow's records begins.
    #[inline(always)]
    pub fn prefetch_variant(&self, hash: u64, variant: u32) {
        self.prefetch(self.hash.with_variant(hash, variant));
    }

    /// Fetches the record at `index`, which [`touch`](Self::touch) will write to.
    #[inline(always)]
    pub fn prefetch_record(&self, index: FlowIndex) {
        prefetch_slice_element(&self.records, index.slot() as usize);
    }

    /// The record of a flow: variant 0 is its base record. `hash` is the key's.
    #[inline]
    pub fn find(&self, key: &FlowKey, hash: u64, variant: u32) -> Option<FlowIndex> {
        let near = NearKey::of(key);
        let hash = self.hash.with_variant(hash, variant);
        let slot = self.buckets.find(hash, |slot| self.is_it(slot, near, key, variant))?;
        FlowIndex::from_slot(slot)
    }

    /// The base records of a batch's flows: `found[i]` becomes that of `keys[i]`, whose hash is `hashes[i]`. What the
    /// search needs is fetched ahead.
    ///
    /// # Panics
    /// When the slices' lengths differ.
    pub fn find_batch(&self, keys: &[FlowKey], hashes: &[u64], found: &mut [Option<FlowIndex>]) {
        assert!(
            keys.len() == hashes.len() && keys.len() == found.len(),
            "slices of one batch differ in length"
        );
        let (key_blocks, keys) = keys.as_chunks::<BLOCK>();
        let (hash_blocks, hashes) = hashes.as_chunks::<BLOCK>();
        let (found_blocks, found) = found.as_chunks_mut::<BLOCK>();
        // Each round is in another stage with each of three blocks: while lines are on their way there is work to do.
        for round in 0..key_blocks.len() + 2 {
            if let Some(hashes) = hash_blocks.get(round) {
                self.fetch_buckets(hashes);
            }
            let block = round.wrapping_sub(1);
            if let (Some(keys), Some(hashes)) = (key_blocks.get(block), hash_blocks.get(block)) {
                self.guess(keys, hashes, &mut found_blocks[block]);
            }
            let block = round.wrapping_sub(2);
            if let (Some(keys), Some(hashes)) = (key_blocks.get(block), hash_blocks.get(block)) {
                self.check(keys, hashes, &mut found_blocks[block]);
            }
        }
        self.fetch_buckets(hashes);
        self.guess(keys, hashes, found);
        self.check(keys, hashes, found);
    }

    /// The first stage.
    #[inline(always)]
    fn fetch_buckets(&self, hashes: &[u64]) {
        hashes.iter().for_each(|&hash| self.prefetch(hash));
    }

    /// The second stage: buckets have come, records are fetched.
    #[inline(always)]
    fn guess(&self, keys: &[FlowKey], hashes: &[u64], found: &mut [Option<FlowIndex>]) {
        for ((found, &hash), key) in found.iter_mut().zip(hashes).zip(keys) {
            let slot = self.buckets.guess(self.buckets.home(hash), hash);
            prefetch_slice_element(&self.records, slot as usize);
            if key.family() == Family::V6 {
                prefetch_slice_element(&self.far, slot as usize);
            }
            *found = FlowIndex::from_slot(slot);
        }
    }

    /// The third stage: records have come.
    #[inline(always)]
    fn check(&self, keys: &[FlowKey], hashes: &[u64], found: &mut [Option<FlowIndex>]) {
        for ((found, &hash), key) in found.iter_mut().zip(hashes).zip(keys) {
            let right = match *found {
                Some(index) => self.is_it(index.slot(), NearKey::of(key), key, 0),
                None => !self.buckets.spills(self.buckets.home(hash)),
            };
            if !right {
                *found = self.find_again(key, hash);
            }
        }
    }

    /// For the few whose first guess was wrong.
    #[cold]
    #[inline(never)]
    fn find_again(&self, key: &FlowKey, hash: u64) -> Option<FlowIndex> {
        self.find(key, hash, 0)
    }

    #[inline(always)]
    fn is_it(&self, slot: u32, near: NearKey, key: &FlowKey, variant: u32) -> bool {
        let record = &self.records[slot as usize];
        record.key == near
            && record.variant == variant
            && (key.family() == Family::V4 || self.far[slot as usize].key.is_of(key))
    }

    /// Counts a packet of `bytes` at `now` with the record at `index`, the flow's first one included. With the second
    /// the record's probation ends.
    #[inline(always)]
    pub fn touch(&mut self, index: FlowIndex, bytes: u32, now: Instant) {
        let record = &mut self.records[index.slot() as usize];
        let used = record.used;
        record.used = tick(now) << FLAG_BITS | used & FLAGS;
        record.bytes = record.bytes.wrapping_add(u64::from(bytes));
        let (packets, carry) = record.packets.overflowing_add(1);
        record.packets = packets;
        if used & PROBATION != 0 || carry {
            self.touch_rarely(index.slot(), carry);
        }
    }

    /// Notes that packets of a live record's flow were forwarded elsewhere, the last of them by `now`.
    pub fn touch_many(&mut self, index: FlowIndex, packets: u64, bytes: u64, now: Instant) {
        let slot = index.slot() as usize;
        let sum = self.packets(index).wrapping_add(packets);
        let record = &mut self.records[slot];
        record.used = tick(now) << FLAG_BITS | record.used & FLAGS;
        record.bytes = record.bytes.wrapping_add(bytes);
        record.packets = sum as u32;
        self.upkeep[slot].packets_high = (sum >> 32) as u32;
        if sum >= 2 {
            self.end_probation(index.slot());
        }
    }

    #[cold]
    #[inline(never)]
    fn touch_rarely(&mut self, slot: u32, carry: bool) {
        if carry {
            let high = &mut self.upkeep[slot as usize].packets_high;
            *high = high.wrapping_add(1);
        }
        if self.records[slot as usize].packets >= 2 {
            self.end_probation(slot);
        }
    }
}
