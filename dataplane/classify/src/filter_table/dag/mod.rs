//! DAG: the filter table of *Router Plugins* (Decasper, Dittia, Parulkar and Plattner 1998, section 5.1). It
//! has a level per field, and is a set-pruning trie whose equal parts are shared.
//!
//! A lookup matches source, destination, protocol, source port, destination port and ingress port in turn.
//! Each level has its own match function. Addresses are matched by longest prefix match of a configurable
//! kind, ports by ranges, other fields by exact value or wildcard. Tag and DSCP are levels as well.
//!
//! The paper's table finds the most specific filter field by field. Here priority comes first: a path leads
//! to all filters that can still match, sorted by rank. The lookup checks each of them as a whole, in one
//! cache line, including flags and exceptions; see [`rule`]. [`graph`] describes how nodes are created,
//! shared and collapsed.
//!
//! The number of memory accesses of a lookup does not depend on the number of filters. But memory may grow
//! with the product of filters that overlap although neither covers the other (*ambiguous* filters).
//! Therefore the table has a memory limit ([`MemoryBound`]).

mod addresses;
mod branch;
mod edges;
mod graph;
mod leaf;
mod linked;
mod nodes;
mod ranges;
mod rule;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::Candidate;
use crate::prefix_match::{Count, NotCounted, PrefixMatchKind};

use super::{Entry, FilterId, FilterTable, MemoryBound, OverMemory};
use graph::{Full, Graph};
pub use linked::Links;
use rule::{Rule, Seen};

/// Configuration of a [`DagTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DagConfig {
    /// Algorithm of longest prefix match at the address levels; by default, binary search on prefix lengths.
    pub addresses: PrefixMatchKind,
    /// Memory limit of the table in bytes; 128 MiB by default.
    pub max_bytes: usize,
    /// Maximum number of filters in a leaf, at least 1; 4 by default. A lookup tries the filters of a leaf
    /// one after the other. So a larger number takes less memory, but more time.
    pub leaf_filters: usize,
}

impl Default for DagConfig {
    fn default() -> Self {
        Self { addresses: PrefixMatchKind::default(), max_bytes: 128 << 20, leaf_filters: 4 }
    }
}

/// Filter table with a DAG.
#[derive(Clone, Debug)]
pub struct DagTable<T> {
    graph: Graph,
    entries: Vec<Option<Entry<T>>>,
    unused: Vec<u32>,
    slots: HashMap<FilterId, u32, FixedState>,
    next: u64,
    max_bytes: usize,
}

impl<T> Default for DagTable<T> {
    fn default() -> Self {
        Self::new(DagConfig::default())
    }
}

impl<T> DagTable<T> {
    /// Returns an empty table.
    pub fn new(config: DagConfig) -> Self {
        Self {
            graph: Graph::new(config.addresses, config.leaf_filters),
            entries: Vec::new(),
            unused: Vec::new(),
            slots: HashMap::default(),
            next: 0,
            max_bytes: config.max_bytes,
        }
    }

    /// Returns the filter of this id, with priority and value; `None` for an unknown id.
    pub fn get(&self, id: FilterId) -> Option<&Entry<T>> {
        self.entries[*self.slots.get(&id)? as usize].as_ref()
    }

    /// Does a [`lookup`](FilterTable::lookup), and counts its dependent memory accesses. An access reads a
    /// node, the matcher of an address level, an edge or a filter, or probes a hash table.
    #[inline]
    pub fn lookup_counted(&self, candidate: &Candidate, count: &mut impl Count) -> Option<(FilterId, &T)> {
        let slot = self.graph.find(self.graph.root, &Seen::new(candidate), count)?;
        count.read(&self.entries[slot as usize]);
        self.found(slot)
    }

    /// Returns the number of nodes of the DAG.
    pub fn nodes(&self) -> usize {
        self.graph.nodes.len()
    }

    #[inline]
    fn found(&self, slot: u32) -> Option<(FilterId, &T)> {
        self.entries[slot as usize].as_ref().map(|entry| (entry.id, &entry.value))
    }

    fn add(&mut self, from: &mut Option<Entry<T>>, max_bytes: usize) -> Result<bool, OverMemory> {
        let Some(entry) = from.as_ref().filter(|entry| !self.slots.contains_key(&entry.id)) else {
            return Ok(false);
        };
        let (id, slot) = (entry.id, self.slot_for(entry));
        self.slots.reserve(1);
        let beside = self.memory() - self.graph.nodes.memory();
        let bytes = max_bytes.checked_sub(beside);
        if bytes.is_none_or(|bytes| self.graph.insert(slot, bytes) == Err(Full)) {
            self.unused.push(slot);
            return Err(OverMemory { bytes: self.memory(), limit: max_bytes, filters: self.len() });
        }
        self.next = self.next.max(id.0 + 1);
        self.slots.insert(id, slot);
        self.entries[slot as usize] = from.take();
        Ok(true)
    }

    /// Stores rule and rank of a filter in a slot, and returns the slot.
    fn slot_for(&mut self, entry: &Entry<T>) -> u32 {
        let (rule, rank) = (Rule::new(entry.id, &entry.filter), entry.rank());
        if let Some(slot) = self.unused.pop() {
            self.graph.rules[slot as usize] = rule;
            self.graph.ranks[slot as usize] = rank;
            return slot;
        }
        self.graph.rules.push(rule);
        self.graph.ranks.push(rank);
        self.entries.push(None);
        self.entries.len() as u32 - 1
    }
}

impl<T> MemoryBound<T> for DagTable<T> {
    const NAME: &'static str = "DAG";

    fn try_restore(&mut self, entry: &mut Option<Entry<T>>) -> Result<bool, OverMemory> {
        self.add(entry, self.max_bytes)
    }

    fn into_entries(self) -> Vec<Entry<T>> {
        drop(self.graph);
        let mut entries: Vec<_> = self.entries.into_iter().flatten().collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        entries
    }
}

/// Only [`MemoryBound`] enforces the memory limit: [`insert`](FilterTable::insert) and
/// [`restore`](FilterTable::restore) always add the filter.
impl<T> FilterTable<T> for DagTable<T> {
    fn restore(&mut self, entry: Entry<T>) -> bool {
        self.add(&mut Some(entry), usize::MAX).unwrap_or(false)
    }

    fn next_id(&self) -> FilterId {
        FilterId(self.next)
    }

    fn remove(&mut self, id: FilterId) -> Option<T> {
        let slot = self.slots.remove(&id)?;
        self.graph.remove(slot);
        self.unused.push(slot);
        self.entries[slot as usize].take().map(|entry| entry.value)
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)> {
        self.lookup_counted(candidate, &mut NotCounted)
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
        size_of::<Self>()
            + self.graph.memory()
            + self.entries.capacity() * size_of::<Option<Entry<T>>>()
            + self.unused.capacity() * size_of::<u32>()
            + slots
    }

    fn varying_mask(&self) -> u32 {
        self.entries().fold(0, |mask, entry| mask | entry.filter.varying_mask())
    }
}
