//! Cutting tree: a filter table that cuts the space of all packets into parts until each part has few
//! filters.
//!
//! A filter is a box in that space, with a range in each dimension ([`point`]). A node cuts its region along
//! one dimension into up to 14 parts. It chooses the bounds of the parts freely, as *HyperSplit* does (Qi,
//! Xu, Yang, Xue, Li, INFOCOM 2009). It makes many cuts at once, as *HyperCuts* does (Singh, Baboescu,
//! Varghese, Wang, SIGCOMM 2003): the part that contains a packet is found by comparing one value with all
//! bounds in a cache line at once. So a tree of 10,000 filters has a depth of three or four nodes.
//!
//! A filter that spans several parts is copied to each of them, and many such copies make trees explode.
//! Therefore *EffiCuts* (Vamanan, Voskuilen, Vijaykumar, SIGCOMM 2010) separates filters that are wide in a
//! dimension where others are narrow. Here any node may put such filters into a *rest*, which is cut along
//! other dimensions. Each node either copies a filter or puts it into the rest, whichever makes the expected
//! lookup shorter ([`plan`]). The total number of copies is limited.
//!
//! A lookup descends to one leaf. Then it searches the rests of the nodes on its path. It skips a rest whose
//! best filter is worse than the match found so far.
//!
//! A change updates the affected leaves. If the number of filters in a subtree has doubled since the subtree
//! was built, or has fallen to a quarter, the tree rebuilds the subtree. That costs about two microseconds
//! per filter. While filters are added, the whole tree is rebuilt at each doubling.

mod node;
mod plan;
mod point;
mod search;
#[cfg(test)]
mod tests;
mod tree;

use foldhash::HashMap;
use millrace_memory::{Portable, with_widest};
use millrace_packet::Family;

use self::search::BatchSearch;
use self::tree::Tree;
use super::batch::{by_family, find_some};
use super::groups::Found;
use super::key::{Condition, Key, V4, V6};
use super::memory_bound::{MemoryBound, OverMemory};
use super::varying::VaryingBits;
use super::{Entry, FilterId, FilterTable};
use crate::prefix_match::{Count, NotCounted};
use crate::{Candidate, CompiledFilter};

/// Filter table with a cutting tree for each address family.
#[derive(Clone, Debug)]
pub struct CuttingTree<T> {
    v4: Tree<V4>,
    v6: Tree<V6>,
    /// Filters by slot.
    entries: Vec<Option<Entry<T>>>,
    unused: Vec<u32>,
    slots: HashMap<FilterId, u32>,
    next: u64,
    varying: VaryingBits,
    max_bytes: usize,
}

impl<T> Default for CuttingTree<T> {
    fn default() -> Self {
        Self::new(128 << 20)
    }
}

impl<T> CuttingTree<T> {
    /// Returns an empty table with a memory limit of `max_bytes` bytes; the default is 128 MiB.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            v4: Tree::default(),
            v6: Tree::default(),
            entries: Vec::new(),
            unused: Vec::new(),
            slots: HashMap::default(),
            next: 0,
            varying: VaryingBits::default(),
            max_bytes,
        }
    }

    /// Does a [`lookup`](FilterTable::lookup), and counts the cache lines that it reads.
    pub fn lookup_counted(&self, candidate: &Candidate, count: &mut impl Count) -> Option<(FilterId, &T)> {
        let found = match candidate.key.family() {
            Family::V4 => self.v4.find(Portable, &Key::of(candidate), count),
            Family::V6 => self.v6.find(Portable, &Key::of(candidate), count),
        };
        let found = self.result(&found);
        if let Some((_, value)) = &found {
            count.read(*value);
        }
        found
    }

    /// Returns the number of nodes of both trees.
    pub fn nodes(&self) -> usize {
        self.v4.nodes.len() + self.v6.nodes.len()
    }

    #[inline(always)]
    fn result(&self, found: &Found) -> Option<(FilterId, &T)> {
        let entry = self.entries.get(found.slot as usize)?.as_ref()?;
        Some((found.id, &entry.value))
    }

    fn add_to_trees(&mut self, filter: &CompiledFilter, rank: super::Rank, slot: u32) {
        if let Some(condition) = Condition::of(filter) {
            self.v4.insert(&condition, rank, slot);
        }
        if let Some(condition) = Condition::of(filter) {
            self.v6.insert(&condition, rank, slot);
        }
    }

    fn take(&mut self, id: FilterId) -> Option<Entry<T>> {
        let slot = self.slots.remove(&id)?;
        self.unused.push(slot);
        let entry = self.entries[slot as usize].take()?;
        if let Some(condition) = Condition::of(&entry.filter) {
            self.v4.remove(&condition, slot);
        }
        if let Some(condition) = Condition::of(&entry.filter) {
            self.v6.remove(&condition, slot);
        }
        self.varying.remove(&entry.filter);
        Some(entry)
    }
}

impl<T> MemoryBound<T> for CuttingTree<T> {
    const NAME: &'static str = "cutting tree";

    fn try_restore(&mut self, entry: &mut Option<Entry<T>>) -> Result<bool, OverMemory> {
        let (bytes, filters, next) = (self.memory(), self.len(), self.next);
        let Some(new) = entry.take() else { return Ok(false) };
        let id = new.id;
        if self.slots.contains_key(&id) {
            *entry = Some(new);
            return Ok(false);
        }
        self.restore(new);
        if self.memory() <= self.max_bytes {
            return Ok(true);
        }
        *entry = self.take(id);
        self.next = next;
        Err(OverMemory { bytes, limit: self.max_bytes, filters })
    }

    fn into_entries(self) -> Vec<Entry<T>> {
        let Self { entries, .. } = self;
        let mut entries: Vec<_> = entries.into_iter().flatten().collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        entries
    }
}

/// Only [`MemoryBound`] enforces the memory limit: [`insert`](FilterTable::insert) and
/// [`restore`](FilterTable::restore) always add the filter.
impl<T> FilterTable<T> for CuttingTree<T> {
    fn restore(&mut self, entry: Entry<T>) -> bool {
        if self.slots.contains_key(&entry.id) {
            return false;
        }
        let (id, filter, rank) = (entry.id, entry.filter, entry.rank());
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.next = self.next.max(id.0 + 1);
        self.slots.insert(id, slot);
        self.entries[slot as usize] = Some(entry);
        self.add_to_trees(&filter, rank, slot);
        self.varying.add(&filter);
        true
    }

    fn next_id(&self) -> FilterId {
        FilterId(self.next)
    }

    fn remove(&mut self, id: FilterId) -> Option<T> {
        self.take(id).map(|entry| entry.value)
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)> {
        self.lookup_counted(candidate, &mut NotCounted)
    }

    fn lookup_batch<'a>(&'a self, candidates: &[Candidate], found: &mut [Option<(FilterId, &'a T)>]) {
        let result = |found: &Found| self.result(found);
        by_family(candidates, found, |family, candidates, found, numbers| match family {
            Family::V4 => {
                find_some(
                    candidates,
                    found,
                    numbers,
                    |keys, found| with_widest(BatchSearch { tree: &self.v4, keys, found }),
                    result,
                );
            }
            Family::V6 => {
                find_some(
                    candidates,
                    found,
                    numbers,
                    |keys, found| with_widest(BatchSearch { tree: &self.v6, keys, found }),
                    result,
                );
            }
        });
    }

    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_> {
        Box::new(self.entries.iter().flatten())
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    fn memory(&self) -> usize {
        // A hash map keeps one slot in eight free, and has a control byte per slot.
        let slots = self.slots.capacity() * 8 / 7 * (size_of::<(FilterId, u32)>() + 1);
        let entries = self.entries.capacity() * size_of::<Option<Entry<T>>>();
        let unused = self.unused.capacity() * size_of::<u32>();
        size_of::<Self>() + self.v4.memory() + self.v6.memory() + entries + unused + slots
    }

    fn varying_mask(&self) -> u32 {
        self.varying.mask()
    }
}
