//! Pointers from one gate's leaves into the next gate's DAG (*Router Plugins*, section 5.1.2).
//!
//! Gates often have the same filters, or similar ones. A packet that a filter of one gate has matched is known to lie in
//! that filter's region; where the next gate's DAG leads all packets of the region the same way, that way need not be
//! walked again. So each filter points to the place in the next gate's DAG up to which its packets go together: for a
//! flow filter that is the way's end, for one of all packets the root. Where nothing matched, the next gate's walk
//! begins at the root.

use crate::prefix_match::{Count, NotCounted};
use crate::{Candidate, Entry, FilterId, FilterTable};

use super::edges::Target;
use super::graph::Graph;
use super::rule::Seen;
use super::{DagConfig, DagTable, OverMemory};

/// The filter tables of gates that a packet passes one after the other.
///
/// A change at a gate takes the pointers there away, and lookups walk that gate's DAG from the root, until
/// [`link`](Self::link) makes them anew.
#[derive(Clone, Debug)]
pub struct LinkedGates<T> {
    gates: Vec<Gate<T>>,
}

#[derive(Clone, Debug)]
struct Gate<T> {
    table: DagTable<T>,
    /// Where to begin, by the slot of the filter that was found at the gate before; empty while not linked.
    starts: Vec<Target>,
}

impl<T> LinkedGates<T> {
    /// So many gates, each with an empty table of its own.
    pub fn new(gates: usize, config: DagConfig) -> Self {
        let gate = || Gate { table: DagTable::new(config), starts: Vec::new() };
        Self { gates: std::iter::repeat_with(gate).take(gates).collect() }
    }

    /// How many gates there are.
    pub fn len(&self) -> usize {
        self.gates.len()
    }

    /// Whether there is no gate.
    pub fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// The table of a gate.
    ///
    /// # Panics
    /// When there is no such gate; so do the others that take one.
    pub fn table(&self, gate: usize) -> &DagTable<T> {
        &self.gates[gate].table
    }

    /// Adds a filter to the table of a gate, as [`DagTable::try_restore`] does.
    ///
    /// # Errors
    /// [`OverMemory`] when the gate's table would take more than its bound.
    pub fn try_restore(&mut self, gate: usize, entry: &mut Option<Entry<T>>) -> Result<bool, OverMemory> {
        self.unlink(gate);
        self.gates[gate].table.try_restore(entry)
    }

    /// Removes a filter from the table of a gate, as [`FilterTable::remove`] does.
    pub fn remove(&mut self, gate: usize, id: FilterId) -> Option<T> {
        self.unlink(gate);
        self.gates[gate].table.remove(id)
    }

    /// Takes away the pointers into a gate's DAG, and those of its filters into the next.
    fn unlink(&mut self, gate: usize) {
        for gate in self.gates.iter_mut().skip(gate).take(2) {
            gate.starts = Vec::new();
        }
    }

    /// Makes the pointers that are missing. It takes a short walk for each filter of the gate before.
    pub fn link(&mut self) {
        for gate in 1..self.gates.len() {
            if self.gates[gate].starts.is_empty() {
                let (before, after) = (&self.gates[gate - 1].table, &self.gates[gate].table.graph);
                self.gates[gate].starts = starts(before, after);
            }
        }
    }

    /// Looks a packet up at all gates: hands on each gate's number with what was found there.
    pub fn lookup<'a>(&'a self, candidate: &Candidate, found: impl FnMut(usize, Option<(FilterId, &'a T)>)) {
        self.lookup_counted(candidate, found, &mut NotCounted);
    }

    /// [`lookup`](Self::lookup) that tells of each access to memory, as [`DagTable::lookup_counted`] does; one to a
    /// pointer is one.
    pub fn lookup_counted<'a>(
        &'a self,
        candidate: &Candidate,
        mut found: impl FnMut(usize, Option<(FilterId, &'a T)>),
        count: &mut impl Count,
    ) {
        let seen = Seen::new(candidate);
        let mut before = None;
        for (number, Gate { table, starts }) in self.gates.iter().enumerate() {
            let start = before.and_then(|slot: u32| starts.get(slot as usize));
            if start.is_some() {
                count.access(1);
            }
            before = table.graph.find(start.copied().unwrap_or(table.graph.root), &seen, count);
            if before.is_some() {
                count.access(1);
            }
            found(number, before.and_then(|slot| table.found(slot)));
        }
    }

    /// Bytes of all tables and pointers.
    pub fn memory(&self) -> usize {
        let gate = |gate: &Gate<T>| gate.table.memory() + gate.starts.capacity() * size_of::<Target>();
        self.gates.iter().map(gate).sum()
    }
}

/// By the slots of the filters before: how far their packets get together in the DAG after.
fn starts<T>(before: &DagTable<T>, after: &Graph) -> Vec<Target> {
    let slots = before.graph.rules.iter().zip(&before.entries);
    slots.map(|(rule, entry)| if entry.is_some() { after.reach(rule) } else { after.root }).collect()
}
