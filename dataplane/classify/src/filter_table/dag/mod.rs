//! The filter table of *Router Plugins* (Decasper, Dittia, Parulkar and Plattner 1998, section 5.1): a DAG with a level
//! per field, a set-pruning trie whose equal parts are shared.
//!
//! Source, destination, protocol, source port, destination port and incoming port are looked up one after the other,
//! each by a match function of its own: longest prefix match of a kind that can be chosen, ranges, or one value or a
//! wildcard. Tag and DSCP are levels as well. The paper's table finds the most specific filter field by field; here
//! priority comes first, so what a way leads to is not one filter but all that can still match, in the order in which
//! they win. Each is checked as a whole, in one cache line, which is also where flags and exceptions are looked at; see
//! [`rule`]. How nodes are made, shared and collapsed: [`graph`].
//!
//! A lookup takes a number of accesses to memory that does not depend on how many filters there are, but memory may
//! grow with the product of filters that overlap without one containing the other (*ambiguous* ones). So it has a bound:
//! [`MemoryBound`].

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

/// How a [`DagTable`] is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DagConfig {
    /// How the levels of addresses find the longest prefix. By default binary search on lengths.
    pub addresses: PrefixMatchKind,
    /// Bytes that the table may take. By default 128 MiB.
    pub max_bytes: usize,
    /// So many filters and fewer are not parted by further levels, but tried one after the other. More of them take less
    /// memory and more time. At least 1, by default 4.
    pub leaf_filters: usize,
}

impl Default for DagConfig {
    fn default() -> Self {
        Self { addresses: PrefixMatchKind::default(), max_bytes: 128 << 20, leaf_filters: 4 }
    }
}

/// Filters in a DAG.
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
    /// An empty table.
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

    /// A filter and what belongs to it.
    pub fn get(&self, id: FilterId) -> Option<&Entry<T>> {
        self.entries[*self.slots.get(&id)? as usize].as_ref()
    }

    /// What belongs to a filter: the paper's opaque state of a filter, which its plugin fills in.
    pub fn value_mut(&mut self, id: FilterId) -> Option<&mut T> {
        let slot = *self.slots.get(&id)?;
        self.entries[slot as usize].as_mut().map(|entry| &mut entry.value)
    }

    /// [`lookup`](FilterTable::lookup) that tells of each access to memory that depends on one before. An access is one
    /// to a node, to the matcher of a level of addresses, to an edge, to a filter, or a hash probe.
    #[inline]
    pub fn lookup_counted(&self, candidate: &Candidate, count: &mut impl Count) -> Option<(FilterId, &T)> {
        let slot = self.graph.find(self.graph.root, &Seen::new(candidate), count)?;
        count.read(&self.entries[slot as usize]);
        self.found(slot)
    }

    /// How many nodes the DAG has.
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

    /// A slot that holds what the DAG needs of the filter.
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

/// The bound is for those that can hear of it: [`insert`](FilterTable::insert) and [`restore`](FilterTable::restore)
/// add filters whatever they take.
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
        // A slot of the table and a control byte; of the slots, seven in eight may be in use.
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
