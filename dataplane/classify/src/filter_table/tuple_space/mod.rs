//! Tuple space search, the default filter table. It has few hash tables, and a lookup skips most of them.
//!
//! Each address family has a few hash tables. The key of a hash table is the bits of its *tuple*: some source
//! bits, some destination bits, perhaps protocol and ports (Srinivasan, Suri, Varghese: *Packet
//! Classification using Tuple Space Search*, SIGCOMM 1999). As in *TupleMerge* (Daly et al., IEEE/ACM ToN
//! 2019), a filter may go to any table whose tuple has no more bits than the filter's conditions. Prefix
//! lengths are rounded down to the nearest of a few fixed lengths. When most of the 64 tables are in use, or
//! too many filters share a key, the filter gets a coarser or finer tuple. A lookup reads few of the tables:
//!
//! - *Pruning*: maps of prefixes of both addresses show which tables can match at all ([`pruning`]).
//! - *Order*: tables are sorted by the rank of their best filter. A lookup ends at the first table whose best
//!   filter can't beat the match found so far (*priority sorting* of Open vSwitch).
//! - *Fingerprints*: reading 16 bytes usually shows that a table has no filter for a packet ([`directory`]).
//! - *Batches*: a lookup prefetches its memory while other lookups run.
//!
//! An added or removed filter changes its group of filters with the same key, and its entries in the maps.
//! From time to time a change rebuilds a hash table or the maps, in time proportional to the number of
//! filters. One case is slow: many filters that differ only in port ranges share a key, and the search tries
//! them one after the other.

mod directory;
mod pruning;
mod space;

#[cfg(test)]
mod tests;

use foldhash::HashMap;
use millrace_packet::Family;

use self::space::Space;
use super::batch::{by_family, find_some};
use super::groups::Found;
use super::key::{Condition, Key, V4, V6};
use super::varying::VaryingBits;
use super::{Entry, FilterId, FilterTable};
use crate::Candidate;
use crate::prefix_match::{Count, NotCounted};

/// Filter table with a hash table for each tuple. The time of lookups and changes hardly depends on the
/// number of filters.
#[derive(Clone, Debug)]
pub struct TupleSpace<T> {
    v4: Space<V4>,
    v6: Space<V6>,
    /// Filters by slot.
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
    /// Returns an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does a [`lookup`](FilterTable::lookup), and counts the cache lines that it reads.
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
        let result = |found: &Found| self.result(found);
        by_family(candidates, found, |family, candidates, found, numbers| match family {
            Family::V4 => {
                find_some(candidates, found, numbers, |keys, slots| self.v4.find_batch(keys, slots), result);
            }
            Family::V6 => {
                find_some(candidates, found, numbers, |keys, slots| self.v6.find_batch(keys, slots), result);
            }
        });
    }

    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_> {
        Box::new(self.entries.iter())
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn memory(&self) -> usize {
        // A hash map keeps one slot in eight free, and has a control byte per slot.
        let slots = self.slots.capacity() * 8 / 7 * (size_of::<(FilterId, u32)>() + 1);
        let entries = self.entries.capacity() * size_of::<Entry<T>>();
        size_of::<Self>() + self.v4.memory() + self.v6.memory() + entries + slots
    }

    fn varying_mask(&self) -> u32 {
        self.varying.mask()
    }
}
