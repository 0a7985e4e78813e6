//! Filter tables of gates: search by workers, and changes by control without interruption of the workers.
//!
//! Control keeps two copies of each table (left and right). Workers read one copy. Control changes the other,
//! publishes it, and repeats the changes in the first copy once every worker has released it. So a worker
//! never waits for a change, and the cost of a change doesn't depend on the number of filters.

pub(crate) mod links;
pub(crate) mod table;

use std::collections::HashMap;
use std::sync::Arc;

use millrace_classify::{Candidate, CompiledExpression, CompiledFilter};
use millrace_plugin::{Action, BindingId, BindingTable, PluginChange};
use millrace_units::GateId;

use crate::gate_tables::links::GateLinks;
use crate::gate_tables::table::{GateTable, TableKind};

/// Filter of a new, changed or removed binding, and the table of its gate after all changes.
#[derive(Clone, Debug)]
pub struct Published {
    /// Filter of the binding.
    pub filter: CompiledExpression,
    /// Table of the gate.
    pub table: Arc<GateTable>,
}

/// Filter table of a gate as sent to a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerTable {
    table: Arc<GateTable>,
    /// Links from the previous gate. The worker ignores them if they were made from other versions of the
    /// tables.
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

/// Change of a gate's filter table, kept until it is applied to both copies of the table.
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

/// Left and right copy of a filter table.
#[derive(Default)]
struct Twins {
    /// Copy that workers read, or will read next.
    published: Arc<GateTable>,
    /// Copy that workers read before.
    spare: Arc<GateTable>,
    /// Changes applied to `published` but not yet to `spare`.
    behind: Vec<Change>,
    /// Changes applied to `spare` but not yet published.
    changed: Vec<Change>,
    /// Tables that a worker may still read. Control keeps them, so that control and not the worker frees
    /// their memory.
    retired: Vec<Arc<GateTable>>,
}

impl Twins {
    /// Applies a change to the spare copy, and gives that copy the version `stamp`.
    fn change(&mut self, change: Change, stamp: u64) {
        self.retired.retain(|table| Arc::strong_count(table) > 1);
        if Arc::get_mut(&mut self.spare).is_none() {
            // A worker still reads the spare copy, because it has not carried out the previous command yet.
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

    /// Publishes the spare copy with all its changes, and returns it. The other copy becomes the spare, and
    /// still lacks these changes.
    fn publish(&mut self) -> Arc<GateTable> {
        if !self.changed.is_empty() {
            std::mem::swap(&mut self.published, &mut self.spare);
            self.behind = std::mem::take(&mut self.changed);
        }
        self.published.clone()
    }
}

/// Filter tables of all gates, in control.
#[derive(Default)]
pub struct GateTables {
    gates: HashMap<GateId, Twins>,
    /// Links, by the gate into whose DAG they lead.
    links: HashMap<GateId, Arc<GateLinks>>,
    /// Links that a worker may still read. Control keeps them, so that control and not the worker frees their
    /// memory.
    retired: Vec<Arc<GateLinks>>,
    /// Last version stamp given to a copy of a table. Links are valid only for the versions that they were
    /// made from.
    stamps: u64,
}

impl std::fmt::Debug for GateTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GateTables").field(&self.gates.len()).finish()
    }
}

impl GateTables {
    /// Sets the kind of a gate's table. If the kind changes, copies the filters into a new table, and returns
    /// it for the workers. Until a worker has the new table, its old one gives the same results.
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

    /// Makes new links between the DAGs of successive gates after changes of filters. `order`: all gates in
    /// the order that packets pass them. Returns the tables for the workers. Until a worker has them, its old
    /// tables give the same results, with longer searches.
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

    /// Returns the links into the DAG of a gate, if they are valid for the current versions of both tables.
    pub fn links(&self, gate: GateId) -> Option<&GateLinks> {
        let links = self.links.get(&gate)?;
        links.are_of(self.table(links.previous())?, self.table(gate)?).then_some(links)
    }

    /// Applies changes to the tables of their gates. Returns the changes for the workers. Control sends them
    /// in one command, so that a packet meets either all of them or none.
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
                PluginChange::Rebind { binding, gate, filter, priority, .. } => {
                    self.change(*gate, Change::Remove(*binding));
                    let (filter, priority, binding) = (filter.clone(), *priority, *binding);
                    self.change(*gate, Change::Insert { filter, priority, binding, refuses: false });
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

    /// Returns the published table of a gate.
    pub fn table(&self, gate: GateId) -> Option<&GateTable> {
        self.gates.get(&gate).map(|twins| &*twins.published)
    }
}

#[cfg(test)]
mod tests;
