//! The filter tables of gates as workers search them, and how control changes them without stopping anybody.
//!
//! Control keeps two copies of each table (left and right): workers read one, control changes the other, publishes it,
//! and makes up for the changes in the first once every worker has let go of it. So a worker never waits for a change,
//! whatever that costs, and the cost of a change doesn't depend on how many filters there are.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_classify::{Candidate, CompiledExpression, CompiledFilter};
use millrace_plugin::{Action, BindingId, BindingTable, PluginChange};
use millrace_units::GateId;

use crate::gate_links::GateLinks;
use crate::gate_table::{GateTable, TableKind};

/// Filters that changed together, and the table of their gate after the change.
#[derive(Clone, Debug)]
pub struct Published {
    /// Filter of the binding.
    pub filter: CompiledExpression,
    /// The table.
    pub table: Arc<GateTable>,
}

/// The table of a gate at a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerTable {
    table: Arc<GateTable>,
    /// They may be of a state before.
    links: Option<Arc<GateLinks>>,
}

impl std::ops::Deref for WorkerTable {
    type Target = GateTable;

    fn deref(&self) -> &GateTable {
        &self.table
    }
}

impl BindingTable for WorkerTable {
    type Filter = Published;
    type Candidate = Candidate;

    fn insert(&mut self, filter: Published, _priority: i32, _binding: BindingId) {
        self.table = filter.table;
    }

    fn names_transport(filter: &Published) -> bool {
        filter.filter.alternatives().iter().any(CompiledFilter::names_transport)
    }

    fn remove(&mut self, filter: Published, _binding: BindingId) {
        self.table = filter.table;
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<BindingId> {
        self.table.lookup(candidate)
    }

    fn lookup_batch(&self, candidates: &[Candidate], found: &mut [Option<BindingId>]) {
        self.table.lookup_batch(candidates, found);
    }

    fn lookup_batch_behind(
        &self,
        previous: &Self,
        before: &[Option<BindingId>],
        candidates: &[Candidate],
        found: &mut [Option<BindingId>],
    ) {
        match &self.links {
            Some(links) if links.are_of(&previous.table, &self.table) => {
                self.table.lookup_batch_linked(links.links(), &previous.table, before, candidates, found);
            }
            _ => self.table.lookup_batch(candidates, found),
        }
    }
}

/// A change of a table, kept until both copies have seen it.
#[derive(Clone)]
enum Change {
    Insert { filter: CompiledExpression, priority: i32, binding: BindingId, refuses: bool },
    Remove(BindingId),
}

impl Change {
    fn make(&self, table: &mut GateTable) {
        match self {
            Self::Insert { filter, priority, binding, refuses } => {
                table.insert(filter.alternatives(), *priority, *binding, *refuses);
            }
            Self::Remove(binding) => table.remove(*binding),
        }
    }
}

/// The two copies of a table.
#[derive(Default)]
struct Twins {
    /// What workers read, or are about to.
    published: Arc<GateTable>,
    /// What they read before.
    spare: Arc<GateTable>,
    /// What the published one has seen and the spare one has not.
    behind: Vec<Change>,
    /// What the spare one has seen and the published one has not.
    changed: Vec<Change>,
    /// Tables that a worker was still reading when they should have been changed: dropped here, not by the worker.
    retired: Vec<Arc<GateTable>>,
}

impl Twins {
    /// Makes a change in the copy that workers don't read, which gets a stamp.
    fn change(&mut self, change: Change, stamp: u64) {
        self.retired.retain(|table| Arc::strong_count(table) > 1);
        if Arc::get_mut(&mut self.spare).is_none() {
            // A worker still reads it: it has not yet come to the change before.
            let copy = Arc::new(self.published.copy(self.published.kind()));
            self.retired.push(std::mem::replace(&mut self.spare, copy));
            self.behind.clear();
        }
        if let Some(spare) = Arc::get_mut(&mut self.spare) {
            self.behind.drain(..).chain([change.clone()]).for_each(|change| change.make(spare));
            spare.set_stamp(stamp);
        }
        self.changed.push(change);
    }

    /// The copy with all changes, for workers to read; the other one is now behind.
    fn publish(&mut self) -> Arc<GateTable> {
        if !self.changed.is_empty() {
            std::mem::swap(&mut self.published, &mut self.spare);
            self.behind = std::mem::take(&mut self.changed);
        }
        self.published.clone()
    }
}

/// The tables of all gates, on the side of control.
#[derive(Default)]
pub struct GateTables {
    gates: HashMap<GateId, Twins>,
    /// By the gate into whose DAG they lead.
    links: HashMap<GateId, Arc<GateLinks>>,
    /// Links that a worker may still read: dropped here, not by the worker.
    retired: Vec<Arc<GateLinks>>,
    /// Stamps that were given.
    stamps: u64,
}

impl std::fmt::Debug for GateTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GateTables").field(&self.gates.len()).finish()
    }
}

impl GateTables {
    /// Says which kind of table a gate has. When that is another one than before, its filters are moved, and what is
    /// returned is what workers are to read from now on; until they do, they find the same in the old one.
    pub fn set_kind(&mut self, gate: GateId, kind: TableKind) -> Option<WorkerTable> {
        let twins = self.gates.entry(gate).or_default();
        if twins.published.kind() == kind {
            return None;
        }
        let mut copy = || {
            self.stamps += 1;
            let mut copy = twins.published.copy(kind);
            copy.set_stamp(self.stamps);
            Arc::new(copy)
        };
        let (published, spare) = (copy(), copy());
        twins.retired.push(std::mem::replace(&mut twins.published, published));
        twins.retired.push(std::mem::replace(&mut twins.spare, spare));
        twins.behind.clear();
        self.retired.extend(self.links.remove(&gate));
        Some(WorkerTable { table: twins.published.clone(), links: None })
    }

    fn change(&mut self, gate: GateId, change: Change) {
        self.stamps += 1;
        self.gates.entry(gate).or_default().change(change, self.stamps);
    }

    /// Links the DAGs of neighbouring gates anew where filters have changed; `order` are all gates as packets pass them.
    /// What is returned is what workers are to read from now on; until they do, they find the same, by longer ways.
    pub fn link(&mut self, order: &[GateId]) -> Vec<(GateId, WorkerTable)> {
        self.retired.retain(|links| Arc::strong_count(links) > 1);
        let filled: Vec<(GateId, &Arc<GateTable>)> = order
            .iter()
            .filter_map(|gate| Some((*gate, &self.gates.get(gate)?.published)))
            .filter(|(_, table)| !table.filters().is_empty())
            .collect();
        let mut linked = Vec::new();
        for pair in filled.windows(2) {
            let [(previous, before), (gate, after)] = *pair else { continue };
            let known = self.links.get(&gate).is_some_and(|links| links.are_of(before, after));
            if !known && let Some(links) = GateLinks::new((previous, before), after) {
                let links = Arc::new(links);
                linked.push((gate, WorkerTable { table: after.clone(), links: Some(links.clone()) }));
                self.retired.extend(self.links.insert(gate, links));
            }
        }
        linked
    }

    /// The links into the DAG of a gate, if they are of the tables as these are.
    pub fn links(&self, gate: GateId) -> Option<&GateLinks> {
        let links = self.links.get(&gate)?;
        links.are_of(self.table(links.previous())?, self.table(gate)?).then_some(links)
    }

    /// Makes changes in the tables that they concern, and says what workers are to be told: all of it together, so
    /// that no packet sees a part.
    pub fn publish(
        &mut self,
        changes: Vec<PluginChange<CompiledExpression>>,
    ) -> Vec<PluginChange<Published>> {
        for change in &changes {
            match change {
                PluginChange::Bind { binding, gate, filter, priority, action, .. } => {
                    let refuses = matches!(action, Action::Drop | Action::Reject);
                    let (filter, priority, binding) = (filter.clone(), *priority, *binding);
                    let insert = Change::Insert { filter, priority, binding, refuses };
                    self.change(*gate, insert);
                }
                PluginChange::Unbind { binding, gate, .. } => {
                    self.change(*gate, Change::Remove(*binding));
                }
                _ => {}
            }
        }
        let publish = |change: PluginChange<CompiledExpression>| {
            if let PluginChange::RemoveGate { gate } = &change {
                self.gates.remove(gate);
                self.retired.extend(self.links.remove(gate));
            }
            change.map(|gate, filter| Published {
                filter,
                table: self.gates.entry(gate).or_default().publish(),
            })
        };
        changes.into_iter().map(publish).collect()
    }

    /// The table of a gate, as workers read it.
    pub fn table(&self, gate: GateId) -> Option<&GateTable> {
        self.gates.get(&gate).map(|twins| &*twins.published)
    }
}

#[cfg(test)]
mod tests;
