//! Where records are found: buckets of a cache line, each with 16 entries of a tag and a slot.
//!
//! A hash names a *home* bucket. Two buckets that follow each other are a pair; an entry that finds its home full goes
//! to the other one of the pair. It goes home when an entry there is removed, so that it is looked for there only
//! while its home is full.
//!
//! The number of pairs doubles by linear hashing (Litwin, VLDB 1980): pair after pair is split, each into itself and a
//! new one behind all others, so that any hash has its entry in one pair at any time, and a step has a bounded cost.
//! Entries hold no hash beside the tag; who splits or removes tells the hash of a slot.

use std::hint::select_unpredictable;

use millrace_memory::{HugeSlice, MemoryError, prefetch_slice_element, words_above, zeroable};

/// Entries of a bucket.
const WIDTH: usize = 16;

zeroable! {
    /// Entries, 0 where there is none. An entry's slot is in its low bits, its tag above.
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Bucket([u32; WIDTH]);
}

impl Bucket {
    /// A bit for each entry whose tag is `tag`, when slots have `slot_bits`.
    #[inline(always)]
    fn with_tag(&self, tag: u32, slot_bits: u32) -> u32 {
        words_above(&self.0, slot_bits, tag)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.0.iter().all(|&entry| entry != 0)
    }
}

/// The buckets of a table.
#[derive(Debug)]
pub(super) struct Buckets {
    buckets: HugeSlice<Bucket>,
    /// Pairs before any was split.
    base: u32,
    /// Pairs in use.
    pairs: u32,
    /// Pairs wanted; it is `base` doubled some times.
    wanted: u32,
    /// Pairs when the doubling that is under way, or was the last, is complete.
    round: u32,
    /// Selects the bits of the hash that tell the pairs of this doubling apart: `round / base - 1`.
    mask: u32,
    slot_bits: u32,
}

impl Buckets {
    /// Buckets for slots up to `slots`: `base` pairs, which can be doubled `doublings` times.
    pub fn new(base: u32, doublings: u32, slots: u32) -> Result<Self, MemoryError> {
        let buckets = HugeSlice::new("the flow table's buckets", (base as usize) << doublings << 1)?;
        let slot_bits = u32::BITS - slots.leading_zeros();
        Ok(Self { buckets, base, pairs: base, wanted: base, round: base, mask: 0, slot_bits })
    }

    /// The number of the hash's home bucket.
    #[inline(always)]
    pub fn home(&self, hash: u64) -> usize {
        let first = ((hash & 0xffff_ffff) * u64::from(self.base)) >> 32;
        let spread = (hash >> 32) as u32;
        let pair = |mask: u32| first as u32 + self.base * (spread & mask);
        let split = pair(self.mask);
        let pair = select_unpredictable(split < self.pairs, split, pair(self.mask >> 1));
        (pair as usize) << 1 | (hash & 1) as usize
    }

    /// Fetches the bucket `home`.
    #[inline(always)]
    pub fn prefetch(&self, home: usize) {
        prefetch_slice_element(&self.buckets, home);
    }

    #[inline(always)]
    fn tag(&self, hash: u64) -> u32 {
        ((hash >> 32) as u32 >> self.slot_bits).max(1)
    }

    #[inline(always)]
    fn slot(&self, entry: u32) -> u32 {
        entry & ((1 << self.slot_bits) - 1)
    }

    /// The first slot in bucket `home` that may be the hash's; 0 when there is none.
    ///
    /// With 0, [`find`](Self::find) can still succeed when [`spills`](Self::spills).
    #[inline(always)]
    pub fn guess(&self, home: usize, hash: u64) -> u32 {
        let bucket = &self.buckets[home];
        let found = bucket.with_tag(self.tag(hash), self.slot_bits);
        // Bit 16 stands for none: its entry, looked up at 0, is made 0.
        let entry = bucket.0[found.trailing_zeros() as usize % WIDTH];
        if found == 0 { 0 } else { self.slot(entry) }
    }

    /// Whether entries of this home can be in the other bucket of the pair.
    #[inline]
    pub fn spills(&self, home: usize) -> bool {
        self.buckets[home].is_full()
    }

    /// The slot under `hash` that `is_it` accepts.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let home = self.home(hash);
        self.find_in(home, hash, &mut is_it)
            .or_else(|| if self.spills(home) { self.find_in(home ^ 1, hash, &mut is_it) } else { None })
    }

    #[inline]
    fn find_in(&self, number: usize, hash: u64, is_it: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let bucket = &self.buckets[number];
        let mut found = bucket.with_tag(self.tag(hash), self.slot_bits);
        while found != 0 {
            let slot = self.slot(bucket.0[found.trailing_zeros() as usize % WIDTH]);
            if is_it(slot) {
                return Some(slot);
            }
            found &= found - 1;
        }
        None
    }

    /// The slots in the pair of `hash`.
    pub fn pair(&self, hash: u64) -> impl Iterator<Item = u32> {
        let first = self.home(hash) & !1;
        let entries = self.buckets[first].0.into_iter().chain(self.buckets[first + 1].0);
        entries.filter(|&entry| entry != 0).map(|entry| self.slot(entry))
    }

    /// Whether an entry of `hash` finds a place.
    pub fn has_room(&self, hash: u64) -> bool {
        let home = self.home(hash);
        !self.buckets[home].is_full() || !self.buckets[home ^ 1].is_full()
    }

    /// Enters `slot` under `hash`; false when the pair is full.
    #[must_use]
    pub fn insert(&mut self, hash: u64, slot: u32) -> bool {
        let entry = self.tag(hash) << self.slot_bits | slot;
        self.place(self.home(hash), entry)
    }

    fn place(&mut self, home: usize, entry: u32) -> bool {
        for number in [home, home ^ 1] {
            if let Some(free) = self.buckets[number].0.iter_mut().find(|entry| **entry == 0) {
                *free = entry;
                return true;
            }
        }
        false
    }

    /// Removes the entry of `slot`, which is there under `hash`.
    pub fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let (home, bits) = (self.home(hash), self.slot_bits);
        let is_it = |&entry: &u32| entry << (u32::BITS - bits) == slot << (u32::BITS - bits);
        for number in [home, home ^ 1] {
            let was_full = self.buckets[number].is_full();
            let Some(at) = self.buckets[number].0.iter().position(is_it) else { continue };
            self.buckets[number].0[at] = 0;
            if was_full {
                self.bring_home(number, at, hash_of);
            }
            return;
        }
        debug_assert!(false, "slot {slot} is not in its bucket");
    }

    /// Fills the place `at` of bucket `number` with an entry that had to go to the other bucket of the pair.
    fn bring_home(&mut self, number: usize, at: usize, hash_of: impl Fn(u32) -> u64) {
        let abroad = |entry: u32| entry != 0 && self.home(hash_of(self.slot(entry))) == number;
        if let Some(place) = self.buckets[number ^ 1].0.iter().position(|&entry| abroad(entry)) {
            self.buckets[number].0[at] = std::mem::take(&mut self.buckets[number ^ 1].0[place]);
        }
    }

    /// Wants twice as many pairs; the splits that lead there are made by [`split`](Self::split).
    pub fn double(&mut self) {
        self.wanted = (self.wanted * 2).min((self.buckets.len() / 2) as u32);
    }

    /// Whether there are fewer pairs than wanted.
    #[inline]
    pub fn wants_split(&self) -> bool {
        self.pairs < self.wanted
    }

    /// Splits a pair. Looks at up to 32 slots' hashes, and fetches those that the next but one split will look at, by
    /// `fetch`.
    pub fn split(&mut self, hash_of: impl Fn(u32) -> u64, fetch: impl Fn(u32)) {
        if self.pairs == self.round {
            self.round *= 2;
            self.mask = self.mask << 1 | 1;
        }
        let old = (self.pairs - self.round / 2) as usize;
        for bucket in self.buckets.get(2 * old + 4..2 * old + 6).into_iter().flatten() {
            bucket.0.iter().filter(|&&entry| entry != 0).for_each(|&entry| fetch(self.slot(entry)));
        }
        let both =
            [std::mem::take(&mut self.buckets[2 * old].0), std::mem::take(&mut self.buckets[2 * old + 1].0)];
        self.pairs += 1;
        for entry in both.into_iter().flatten().filter(|&entry| entry != 0) {
            let home = self.home(hash_of(self.slot(entry)));
            // What was in one pair finds its place in it or in its twin.
            let placed = self.place(home, entry);
            debug_assert!(placed, "a split lost an entry");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Hashes that crowd a few pairs: with 1 base pair, the low half's bit 0 and the lowest bits of the high half count.
    fn crowded() -> impl Strategy<Value = u64> {
        (0..2_u64, 0..4_u64, 0..3_u64).prop_map(|(side, spread, tag)| side | spread << 32 | tag << 62)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Remove(usize),
        Double,
        Split,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => crowded().prop_map(Step::Insert),
            5 => any::<usize>().prop_map(Step::Remove),
            1 => Just(Step::Double),
            3 => Just(Step::Split),
        ]
    }

    /// Every slot is found under its hash and no other, and lies abroad only while its home is full.
    fn check(buckets: &Buckets, model: &BTreeMap<u32, u64>) {
        for (&slot, &hash) in model {
            assert_eq!(buckets.find(hash, |found| found == slot), Some(slot));
            assert_eq!(buckets.pair(hash).filter(|&other| other == slot).count(), 1);
            let home = buckets.home(hash);
            let guess = buckets.guess(home, hash);
            assert!(guess != 0 || buckets.spills(home));
        }
        let entries: usize =
            buckets.buckets.iter().map(|bucket| bucket.0.iter().filter(|&&e| e != 0).count()).sum();
        assert_eq!(entries, model.len());
    }

    proptest! {
        #[test]
        fn entries_are_found_through_spills_splits_and_removals(steps in prop::collection::vec(step(), 1..400)) {
            let mut buckets = Buckets::new(1, 3, 1000).unwrap();
            let mut model = BTreeMap::new();
            for (slot, step) in (1..).zip(steps) {
                let hash_of = |slot: u32| model[&slot];
                match step {
                    Step::Insert(hash) => {
                        let room = buckets.has_room(hash);
                        prop_assert_eq!(buckets.pair(hash).count() < 2 * WIDTH, room);
                        prop_assert_eq!(buckets.insert(hash, slot), room);
                        if room {
                            model.insert(slot, hash);
                        }
                    }
                    Step::Remove(which) if !model.is_empty() => {
                        let slot = *model.keys().nth(which % model.len()).unwrap();
                        buckets.remove(model[&slot], slot, hash_of);
                        model.remove(&slot);
                    }
                    Step::Split if buckets.wants_split() => buckets.split(hash_of, |_| ()),
                    Step::Double => buckets.double(),
                    Step::Remove(_) | Step::Split => {}
                }
                check(&buckets, &model);
            }
        }
    }
}
