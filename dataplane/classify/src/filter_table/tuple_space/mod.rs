//! The table for every day: tuple space search with few tuples, most of which are never looked at.
//!
//! The filters of an address family are spread over a few hash tables, each keyed by the bits of its *tuple*: so many of
//! the source, so many of the destination, perhaps protocol and ports (Srinivasan, Suri, Varghese: *Packet
//! Classification using Tuple Space Search*, SIGCOMM 1999). As in *TupleMerge* (Daly et al., IEEE/ACM ToN 2019) a filter
//! may stand in any table whose tuple asks for no more than the filter does: prefix lengths are rounded down to a short
//! ladder, and when most of the 64 tables are in use, or too many filters share a key, a coarser or finer tuple is
//! taken. A lookup reads few of the tables:
//!
//! - *Pruning*: maps of prefixes of both addresses say which tables can match at all ([`pruning`]).
//! - *Order*: tables are sorted by the best rank in them, and a lookup ends at the first that can't be better than what
//!   was found (*priority sorting* of Open vSwitch).
//! - *Fingerprints*: that a table has nothing for a packet is seen in 16 bytes ([`directory`]).
//! - *Batches*: the memory that a lookup will read is asked for while others are looked up.
//!
//! Changing a filter touches its group and its entries in the maps; now and then a hash table or the maps are made
//! anew, which takes time in proportion to the filters. What it does badly: many filters that differ in nothing but
//! ranges of ports share a key, and are searched one after the other.

mod directory;
mod pruning;
mod space;

#[cfg(test)]
mod tests;

use foldhash::HashMap;
use millrace_packet::Family;

use self::space::Space;
use super::batch::{LANES, by_family};
use super::groups::Found;
use super::key::{Condition, Key, V4, V6};
use super::varying::VaryingBits;
use super::{Entry, FilterId, FilterTable};
use crate::Candidate;
use crate::prefix_match::{Count, NotCounted};

/// Filters in hash tables by tuples: lookups and changes take time that hardly depends on how many filters there are.
#[derive(Clone, Debug)]
pub struct TupleSpace<T> {
    v4: Space<V4>,
    v6: Space<V6>,
    /// By slot.
    entries: Vec<Entry<T>>,
    slots: HashMap<FilterId, u32>,
    next: u64,
    varying: VaryingBits,
}

impl<T> Default for TupleSpace<T> {
    fn default() -> Self {
        let (v4, v6) = (Space::default(), Space::default());
        Self {
            v4,
            v6,
            entries: Vec::new(),
            slots: HashMap::default(),
            next: 0,
            varying: VaryingBits::default(),
        }
    }
}

impl<T> TupleSpace<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// [`lookup`](FilterTable::lookup) that tells how many cache lines of the table it reads.
    pub fn lookup_counted(&self, candidate: &Candidate, count: &mut impl Count) -> Option<(FilterId, &T)> {
        let found = match candidate.key.family() {
            Family::V4 => self.v4.find(&Key::of(candidate), count),
            Family::V6 => self.v6.find(&Key::of(candidate), count),
        };
        let found = self.result(&found);
        if let Some((_, value)) = &found {
            count.read(*value);
        }
        found
    }

    #[inline(always)]
    fn result(&self, found: &Found) -> Option<(FilterId, &T)> {
        let entry = self.entries.get(found.slot as usize)?;
        Some((found.id, &entry.value))
    }

    /// Looks up the packets of one family, which have the numbers `numbers` in the batch.
    fn find_some<'a, const W: usize>(
        &'a self,
        space: &Space<W>,
        candidates: &[Candidate],
        found: &mut [Option<(FilterId, &'a T)>],
        numbers: &[u8],
    ) {
        let mut keys = [Key::ZERO; LANES];
        let mut slots = [Found::NONE; LANES];
        let count = numbers.len();
        for (key, number) in keys.iter_mut().zip(numbers) {
            *key = Key::of(&candidates[usize::from(*number)]);
        }
        space.find_batch(&keys[..count], &mut slots[..count]);
        for (slot, number) in slots.iter().zip(numbers) {
            found[usize::from(*number)] = self.result(slot);
        }
    }
}

impl<T> FilterTable<T> for TupleSpace<T> {
    fn restore(&mut self, entry: Entry<T>) -> bool {
        if self.slots.contains_key(&entry.id) {
            return false;
        }
        let (filter, rank, slot) = (entry.filter, entry.rank(), self.entries.len() as u32);
        self.next = self.next.max(entry.id.0 + 1);
        self.slots.insert(entry.id, slot);
        self.entries.push(entry);
        if let Some(condition) = Condition::of(&filter) {
            self.v4.insert(&condition, rank, slot);
        }
        if let Some(condition) = Condition::of(&filter) {
            self.v6.insert(&condition, rank, slot);
        }
        self.varying.add(&filter);
        true
    }

    fn next_id(&self) -> FilterId {
        FilterId(self.next)
    }

    fn remove(&mut self, id: FilterId) -> Option<T> {
        let slot = self.slots.remove(&id)?;
        let entry = self.entries.swap_remove(slot as usize);
        if let Some(condition) = Condition::of(&entry.filter) {
            self.v4.remove(&condition, entry.rank(), slot);
        }
        if let Some(condition) = Condition::of(&entry.filter) {
            self.v6.remove(&condition, entry.rank(), slot);
        }
        if let Some(moved) = self.entries.get(slot as usize) {
            let before = self.entries.len() as u32;
            if let Some(condition) = Condition::of(&moved.filter) {
                self.v4.renumber(&condition, before, slot);
            }
            if let Some(condition) = Condition::of(&moved.filter) {
                self.v6.renumber(&condition, before, slot);
            }
            self.slots.insert(moved.id, slot);
        }
        self.varying.remove(&entry.filter);
        Some(entry.value)
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)> {
        self.lookup_counted(candidate, &mut NotCounted)
    }

    fn lookup_batch<'a>(&'a self, candidates: &[Candidate], found: &mut [Option<(FilterId, &'a T)>]) {
        by_family(candidates, found, |family, candidates, found, numbers| match family {
            Family::V4 => self.find_some(&self.v4, candidates, found, numbers),
            Family::V6 => self.find_some(&self.v6, candidates, found, numbers),
        });
    }

    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_> {
        Box::new(self.entries.iter())
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn memory(&self) -> usize {
        // A hash map keeps an eighth of its places free, and a byte beside each.
        let slots = self.slots.capacity() * 8 / 7 * (size_of::<(FilterId, u32)>() + 1);
        let entries = self.entries.capacity() * size_of::<Entry<T>>();
        size_of::<Self>() + self.v4.memory() + self.v6.memory() + entries + slots
    }

    fn varying_mask(&self) -> u32 {
        self.varying.mask()
    }
}
