//! The filter table of a gate as workers search it, and how control changes it without stopping them.
//!
//! Control keeps two copies of each table (left and right): workers read one, control changes the other, publishes it,
//! and makes up for the changes in the first once every worker has let go of it. So a worker never waits for a change,
//! whatever that costs, and the cost of a change doesn't depend on how many filters there are.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_classify::{Candidate, CompiledFilter, Entry, FilterId, FilterTable, LinearOracle};
use millrace_packet::FlowKey;
use millrace_plugin::{Action, BindingId, BindingTable, PluginChange};
use millrace_units::GateId;

/// A filter table that any number of threads may search.
pub type SharedTable = dyn FilterTable<BindingId> + Send + Sync;

/// The filters of a gate, each with its binding.
pub struct GateTable {
    filters: Box<SharedTable>,
    ids: HashMap<BindingId, FilterId>,
    /// The filters with conditions on fields that vary inside a flow, without these.
    touching: LinearOracle<u32>,
    touching_ids: HashMap<BindingId, FilterId>,
    /// The filters that refuse packets by their ports, without the conditions on ports.
    strict: LinearOracle<BindingId>,
    strict_ids: HashMap<BindingId, FilterId>,
}

impl Default for GateTable {
    fn default() -> Self {
        Self {
            filters: Box::new(LinearOracle::new()),
            ids: HashMap::new(),
            touching: LinearOracle::new(),
            touching_ids: HashMap::new(),
            strict: LinearOracle::new(),
            strict_ids: HashMap::new(),
        }
    }
}

impl std::fmt::Debug for GateTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateTable").field("filters", &self.filters.len()).finish_non_exhaustive()
    }
}

impl GateTable {
    /// The filters, to explain what they do.
    pub fn filters(&self) -> &SharedTable {
        &*self.filters
    }

    fn insert(&mut self, filter: CompiledFilter, priority: i32, binding: BindingId, refuses: bool) {
        let id = self.filters.insert(filter, priority, binding);
        self.ids.insert(binding, id);
        if let Some(steady) = filter.without_varying() {
            let id = self.touching.insert(steady, priority, filter.varying_mask());
            self.touching_ids.insert(binding, id);
        }
        if refuses && let Some(any) = filter.without_ports() {
            let id = self.strict.insert(any, priority, binding);
            self.strict_ids.insert(binding, id);
        }
    }

    fn remove(&mut self, binding: BindingId) {
        if let Some(id) = self.ids.remove(&binding) {
            self.filters.remove(id);
        }
        if let Some(id) = self.touching_ids.remove(&binding) {
            self.touching.remove(id);
        }
        if let Some(id) = self.strict_ids.remove(&binding) {
            self.strict.remove(id);
        }
    }

    /// The binding that wins for a packet. Where a packet's ports can't be read, a filter that would refuse it if they
    /// were the right ones does so, unless one of higher priority lets it pass.
    pub fn lookup(&self, candidate: &Candidate) -> Option<BindingId> {
        let found = self.filters.lookup(candidate);
        if self.strict.is_empty() || candidate.ports_known() || !has_ports(&candidate.key) {
            return found.map(|(_, binding)| *binding);
        }
        let priority = |table: &SharedTable, id: FilterId| {
            table.entries().find(|entry| entry.id == id).map_or(i32::MIN, |entry| entry.priority)
        };
        match (found, self.strict.lookup(candidate)) {
            (Some((id, binding)), Some((strict, refuses))) => {
                let wins = priority(&*self.filters, id) > priority(&self.strict, strict);
                Some(if wins { *binding } else { *refuses })
            }
            (found, strict) => found.or(strict).map(|(_, binding)| *binding),
        }
    }

    /// The bits of [`Candidate::varying`] that filters look at which some packet of the flow may match.
    pub fn varying_mask(&self, key: &FlowKey) -> u32 {
        if self.touching.is_empty() {
            return 0;
        }
        let touching = self.touching.iter().filter(|entry| entry.filter.may_match_flow(key));
        touching.fold(0, |mask, entry| mask | entry.value)
    }

    /// A table with the same filters, ids and ages.
    fn copy(&self) -> Self {
        let mut copy = Self {
            ids: self.ids.clone(),
            touching: self.touching.clone(),
            touching_ids: self.touching_ids.clone(),
            strict: self.strict.clone(),
            strict_ids: self.strict_ids.clone(),
            ..Self::default()
        };
        for entry in self.filters.entries() {
            copy.filters.restore(Entry { ..*entry });
        }
        copy
    }
}

fn has_ports(key: &FlowKey) -> bool {
    millrace_wire::Protocol(key.protocol).has_ports()
}

/// A filter that changed, and the table of its gate after the change.
#[derive(Clone, Debug)]
pub struct Published {
    /// The filter.
    pub filter: CompiledFilter,
    /// The table.
    pub table: Arc<GateTable>,
}

/// The table of a gate at a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerTable(Arc<GateTable>);

impl std::ops::Deref for WorkerTable {
    type Target = GateTable;

    fn deref(&self) -> &GateTable {
        &self.0
    }
}

impl BindingTable for WorkerTable {
    type Filter = Published;
    type Candidate = Candidate;

    fn insert(&mut self, filter: Published, _priority: i32, _binding: BindingId) {
        self.0 = filter.table;
    }

    fn remove(&mut self, filter: Published, _binding: BindingId) {
        self.0 = filter.table;
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<BindingId> {
        self.0.lookup(candidate)
    }
}

/// A change of a table, kept until both copies have seen it.
#[derive(Clone)]
enum Change {
    Insert { filter: CompiledFilter, priority: i32, binding: BindingId, refuses: bool },
    Remove(BindingId),
}

impl Change {
    fn make(&self, table: &mut GateTable) {
        match self {
            Self::Insert { filter, priority, binding, refuses } => {
                table.insert(*filter, *priority, *binding, *refuses);
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
    /// Makes a change in the copy that workers don't read.
    fn change(&mut self, change: Change) {
        self.retired.retain(|table| Arc::strong_count(table) > 1);
        if Arc::get_mut(&mut self.spare).is_none() {
            // A worker still reads it: it has not yet come to the change before.
            let copy = Arc::new(self.published.copy());
            self.retired.push(std::mem::replace(&mut self.spare, copy));
            self.behind.clear();
        }
        if let Some(spare) = Arc::get_mut(&mut self.spare) {
            self.behind.drain(..).chain([change.clone()]).for_each(|change| change.make(spare));
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
pub struct GateTables(HashMap<GateId, Twins>);

impl std::fmt::Debug for GateTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GateTables").field(&self.0.len()).finish()
    }
}

impl GateTables {
    /// Makes changes in the tables that they concern, and says what workers are to be told: all of it together, so
    /// that no packet sees a part.
    pub fn publish(&mut self, changes: Vec<PluginChange<CompiledFilter>>) -> Vec<PluginChange<Published>> {
        for change in &changes {
            match change {
                PluginChange::Bind { binding, gate, filter, priority, action } => {
                    let refuses = matches!(action, Action::Drop | Action::Reject);
                    let (filter, priority, binding) = (*filter, *priority, *binding);
                    let insert = Change::Insert { filter, priority, binding, refuses };
                    self.0.entry(*gate).or_default().change(insert);
                }
                PluginChange::Unbind { binding, gate, .. } => {
                    self.0.entry(*gate).or_default().change(Change::Remove(*binding));
                }
                _ => {}
            }
        }
        let publish = |change: PluginChange<CompiledFilter>| {
            if let PluginChange::RemoveGate { gate } = &change {
                self.0.remove(gate);
            }
            change.map(|gate, filter| Published { filter, table: self.0.entry(gate).or_default().publish() })
        };
        changes.into_iter().map(publish).collect()
    }

    /// The table of a gate, as workers read it.
    pub fn table(&self, gate: GateId) -> Option<&GateTable> {
        self.0.get(&gate).map(|twins| &*twins.published)
    }
}
