//! Index of records by hash: buckets of one cache line, with 16 entries of a tag and a slot each.
//!
//! A hash determines a *home* bucket. Four consecutive buckets are a group. If its home bucket is full, an
//! entry is *displaced*: it goes to another bucket of the group. When an entry leaves a full bucket, an entry
//! displaced from there moves back. So a search looks at other buckets only while the home bucket is full. If
//! the whole group is full, the entry goes to the table's [`Overflow`] until the group has room.
//!
//! The number of groups doubles by linear hashing (Litwin, VLDB 1980). Each split distributes the entries of
//! one group over this group and a new one behind all others. So the entry of a hash is in one group at any
//! time, and each step has a bounded cost.
//!
//! An entry stores only the tag of its hash. Therefore callers of splits and removals pass a function from
//! slots to hashes.

use std::hint::select_unpredictable;

use millrace_memory::{HugeSlice, MemoryError, Portable, Vectors, prefetch_slice_element, zeroable};

use super::overflow::Overflow;

/// Number of entries of a bucket.
const WIDTH: usize = 16;
/// Number of buckets of a group.
const GROUP: usize = 4;
/// Name of this memory in errors.
const WHAT: &str = "the flow table's buckets";

zeroable! {
    /// Entries of a bucket; 0 for a free place. An entry has its slot in the low bits, and its tag above.
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Bucket([u32; WIDTH]);
}

impl Bucket {
    #[inline]
    fn is_full(&self) -> bool {
        self.0.iter().all(|&entry| entry != 0)
    }
}

/// All buckets of a table.
#[derive(Debug)]
pub(in crate::flow_table) struct Buckets {
    buckets: HugeSlice<Bucket>,
    /// Entries that found no place in their group.
    overflow: Overflow,
    /// Number of buckets in use.
    used: u32,
    /// Number of buckets that the table needs; a power of two. Splits raise `used` to this number.
    wanted: u32,
    /// Number of buckets after the current doubling, or now if no doubling is in progress; a power of two.
    round: u32,
    /// Mask of the slot bits in an entry: a power of two, minus one.
    slots: u32,
}

/// Copy of the fields that map a hash to its home bucket and tag, for a loop over many hashes.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow_table) struct Aim {
    last: u32,
    before: u32,
    used: u32,
    slots: u32,
}

impl Aim {
    /// Returns the number of the home bucket of a hash.
    #[inline(always)]
    pub fn home(self, hash: u64) -> u32 {
        let (last, before) = (hash as u32 & self.last, hash as u32 & self.before);
        // Until its split, a group holds the same hashes as before this doubling.
        select_unpredictable(last < self.used, last, before)
    }

    /// Returns the tag of a hash, in the bits above the slot. A tag is never 0.
    #[inline(always)]
    pub fn tag(self, hash: u64) -> u32 {
        ((hash >> 32) as u32 & !self.slots).max(self.slots + 1)
    }
}

impl Buckets {
    /// Creates buckets in `groups` groups; `groups` must be a power of two. Maps memory that suffices to
    /// double the number of buckets `doublings` times. `slots` is the largest slot number.
    pub fn new(groups: u32, doublings: u32, slots: u32) -> Result<Self, MemoryError> {
        let used = groups * GROUP as u32;
        let buckets = HugeSlice::new(WHAT, (used as usize) << doublings)?;
        let slots = u32::MAX >> slots.leading_zeros();
        Ok(Self { buckets, overflow: Overflow::new(), used, wanted: used, round: used, slots })
    }

    /// Populates the memory of the maximum number of buckets.
    pub fn populate(&mut self) -> Result<(), MemoryError> {
        self.buckets.populate(WHAT)
    }

    /// Returns the current mapping from hashes to home buckets and tags.
    #[inline(always)]
    pub fn aim(&self) -> Aim {
        Aim { last: self.round - 1, before: (self.round - 1) / 2, used: self.used, slots: self.slots }
    }

    /// Returns the number of the home bucket of a hash.
    #[inline(always)]
    pub fn home(&self, hash: u64) -> u32 {
        self.aim().home(hash)
    }

    /// Returns the numbers of the buckets in a group, the home bucket first.
    #[inline]
    fn group(home: u32) -> [usize; GROUP] {
        let home = home as usize;
        [home, home ^ 1, home ^ 2, home ^ 3]
    }

    /// Prefetches the bucket `home`.
    #[inline(always)]
    pub fn prefetch(&self, home: u32) {
        prefetch_slice_element(&self.buckets, home as usize);
    }

    /// Returns the tag of a hash, in the bits above the slot. A tag is never 0.
    #[inline(always)]
    pub fn tag(&self, hash: u64) -> u32 {
        self.aim().tag(hash)
    }

    #[inline(always)]
    fn slot(&self, entry: u32) -> u32 {
        entry & self.slots
    }

    /// Returns the first slot in the bucket `home` with this tag; 0 if there is none.
    ///
    /// If it returns 0 and the bucket [`spills`](Self::spills), [`find`](Self::find) may still find an entry.
    #[inline(always)]
    pub fn guess(&self, vectors: impl Vectors, home: u32, tag: u32) -> u32 {
        vectors.first_low(&self.buckets[home as usize].0, tag, self.slots)
    }

    /// Whether entries with this home bucket may be displaced.
    #[inline]
    pub fn spills(&self, home: u32) -> bool {
        self.buckets[home as usize].is_full()
    }

    /// Returns the slot of an entry with `hash` for which `is_it` holds; `None` if there is none.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let home = self.home(hash);
        let [first, others @ ..] = Self::group(home);
        if let Some(slot) = self.find_in(first, hash, &mut is_it) {
            return Some(slot);
        }
        if !self.spills(home) {
            return None;
        }
        others.into_iter().find_map(|other| self.find_in(other, hash, &mut is_it)).or_else(|| {
            let tag = self.tag(hash);
            let alike = self.overflow.entries().iter().filter(|&&entry| entry & !self.slots == tag);
            alike.map(|&entry| self.slot(entry)).find(|&slot| is_it(slot))
        })
    }

    #[inline]
    fn find_in(&self, number: usize, hash: u64, is_it: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let bucket = &self.buckets[number];
        let mut found = Portable.equal_above(&bucket.0, self.tag(hash), self.slots);
        while found != 0 {
            let slot = self.slot(bucket.0[found.trailing_zeros() as usize % WIDTH]);
            if is_it(slot) {
                return Some(slot);
            }
            found &= found - 1;
        }
        None
    }

    /// Iterates over the slots in the group of `hash`.
    fn group_of(&self, hash: u64) -> impl Iterator<Item = u32> {
        let entries = Self::group(self.home(hash)).into_iter().flat_map(|number| self.buckets[number].0);
        entries.filter(|&entry| entry != 0).map(|entry| self.slot(entry))
    }

    /// Iterates over the slots in the group of `hash` and in the overflow. If group and overflow are full,
    /// one of these slots must be removed before an entry of `hash` finds a place.
    pub fn rivals_of(&self, hash: u64) -> impl Iterator<Item = u32> {
        self.group_of(hash).chain(self.overflow.entries().iter().map(|&entry| self.slot(entry)))
    }

    /// Whether an entry of `hash` finds a place in its group or in the overflow.
    pub fn has_room(&self, hash: u64) -> bool {
        self.overflow.has_room() || !self.is_group_full(self.home(hash))
    }

    fn is_group_full(&self, home: u32) -> bool {
        Self::group(home).iter().all(|&number| self.buckets[number].is_full())
    }

    /// Adds `slot` under `hash`. Returns `false` if the group and the overflow are full.
    #[must_use]
    pub fn insert(&mut self, hash: u64, slot: u32) -> bool {
        let entry = self.tag(hash) | slot;
        self.place(self.home(hash), entry) || self.overflow.push(entry)
    }

    #[inline]
    fn place(&mut self, home: u32, entry: u32) -> bool {
        for number in Self::group(home) {
            if let Some(free) = self.buckets[number].0.iter_mut().find(|entry| **entry == 0) {
                *free = entry;
                return true;
            }
        }
        false
    }

    /// Removes the entry of `slot`, which is stored under `hash`.
    pub fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let (home, slots) = (self.home(hash), self.slots);
        let is_it = |&entry: &u32| entry & slots == slot;
        for number in Self::group(home) {
            let Some(at) = self.buckets[number].0.iter().position(is_it) else { continue };
            self.empty(number, at, &hash_of);
            return self.refill(home, hash_of);
        }
        let removed = self.overflow.take(|entry| entry & slots == slot);
        debug_assert!(removed.is_some(), "slot {slot} is not in its buckets");
    }

    /// Moves an entry from the overflow into the group of bucket `home`, where a place has become free.
    fn refill(&mut self, home: u32, hash_of: impl Fn(u32) -> u64) {
        if self.overflow.is_empty() {
            return;
        }
        let (aim, slots) = (self.aim(), self.slots);
        let home_of = |entry: u32| aim.home(hash_of(entry & slots));
        let Some(entry) = self.overflow.take(|entry| home_of(entry) / GROUP as u32 == home / GROUP as u32)
        else {
            return;
        };
        let placed = self.place(home_of(entry), entry);
        debug_assert!(placed, "a place of the group is free");
    }

    /// Clears the place `at` of bucket `number`. If the bucket was full, an entry that was displaced from it
    /// moves back. The place of that entry is then cleared in the same way. Each step leaves one displaced
    /// entry fewer.
    fn empty(&mut self, mut number: usize, mut at: usize, hash_of: &impl Fn(u32) -> u64) {
        loop {
            let was_full = self.buckets[number].is_full();
            self.buckets[number].0[at] = 0;
            let abroad = if was_full { self.abroad(number as u32, hash_of) } else { None };
            let Some((other, place)) = abroad else { return };
            self.buckets[number].0[at] = self.buckets[other].0[place];
            (number, at) = (other, place);
        }
    }

    /// Finds an entry that was displaced from the bucket `home`. Returns the entry's bucket and its place in
    /// the bucket.
    fn abroad(&self, home: u32, hash_of: impl Fn(u32) -> u64) -> Option<(usize, usize)> {
        let at_home = |entry: u32| self.home(hash_of(self.slot(entry))) == home;
        let [_, others @ ..] = Self::group(home);
        others.into_iter().find_map(|other| {
            let place = self.buckets[other].0.iter().position(|&entry| entry != 0 && at_home(entry))?;
            Some((other, place))
        })
    }

    /// Doubles the number of needed groups. [`split`](Self::split) then creates them.
    pub fn double(&mut self) {
        self.wanted = (self.wanted * 2).min(self.buckets.len() as u32);
    }

    /// Whether there are fewer groups than needed.
    #[inline]
    pub fn wants_split(&self) -> bool {
        self.used < self.wanted
    }

    /// Splits the next group of buckets. Calls `hash_of` for up to 64 slots of this group, and `fetch` for
    /// the slots of the group that is split after this one.
    pub fn split(&mut self, hash_of: impl Fn(u32) -> u64, fetch: impl Fn(u32)) {
        if self.used == self.round {
            self.round *= 2;
        }
        let old = (self.used - self.round / 2) as usize;
        for bucket in self.buckets.get(old + GROUP..old + 2 * GROUP).into_iter().flatten() {
            bucket.0.iter().filter(|&&entry| entry != 0).for_each(|&entry| fetch(self.slot(entry)));
        }
        let mut entries = [Bucket([0; WIDTH]); GROUP];
        entries.swap_with_slice(&mut self.buckets[old..old + GROUP]);
        self.used += GROUP as u32;
        for entry in entries.into_iter().flat_map(|bucket| bucket.0).filter(|&entry| entry != 0) {
            let home = self.home(hash_of(self.slot(entry)));
            // All entries of a group fit into this group and the new one.
            let placed = self.place(home, entry);
            debug_assert!(placed, "a split lost an entry");
        }
        self.place_overflow(old as u32, hash_of);
    }

    /// After a split, moves entries of the overflow to free places in the group that was split, whose first
    /// bucket is `old`, and in the new group.
    fn place_overflow(&mut self, old: u32, hash_of: impl Fn(u32) -> u64) {
        let twin = self.used - GROUP as u32;
        for home in [old, twin] {
            while !self.overflow.is_empty() && !self.is_group_full(home) {
                let before = self.overflow.entries().len();
                self.refill(home, &hash_of);
                if self.overflow.entries().len() == before {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Random hashes with few home buckets and few tags.
    fn crowded() -> impl Strategy<Value = u64> {
        (0..11_u64, 0..3_u64).prop_map(|(bucket, tag)| bucket | tag << 62)
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

    /// Checks that every slot is found under its own hash and no other. A slot may be displaced only while
    /// its home bucket is full.
    fn check(buckets: &Buckets, model: &BTreeMap<u32, u64>) {
        for (&slot, &hash) in model {
            assert_eq!(buckets.find(hash, |found| found == slot), Some(slot));
            let overflowing = || buckets.overflow.entries().iter().map(|&entry| buckets.slot(entry));
            assert_eq!(buckets.rivals_of(hash).filter(|&other| other == slot).count(), 1);
            assert!(buckets.is_group_full(buckets.home(hash)) || overflowing().all(|other| other != slot));
            let home = buckets.home(hash);
            let guess = buckets.guess(Portable, home, buckets.tag(hash));
            assert!(guess != 0 || buckets.spills(home));
        }
        let entries: usize =
            buckets.buckets.iter().map(|bucket| bucket.0.iter().filter(|&&e| e != 0).count()).sum();
        assert_eq!(entries + buckets.overflow.entries().len(), model.len());
    }

    proptest! {
        #[test]
        fn entries_are_found_through_spills_splits_and_removals(steps in prop::collection::vec(step(), 1..600)) {
            let mut buckets = Buckets::new(1, 3, 1000).unwrap();
            let mut model = BTreeMap::new();
            for (slot, step) in (1..).zip(steps) {
                let hash_of = |slot: u32| model[&slot];
                match step {
                    Step::Insert(hash) => {
                        let room = buckets.has_room(hash);
                        let in_group = buckets.group_of(hash).count() < GROUP * WIDTH;
                        prop_assert_eq!(in_group || buckets.overflow.has_room(), room);
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
