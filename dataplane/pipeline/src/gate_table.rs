//! The filter table of a gate as workers search it, and how control changes it without stopping them.
//!
//! Control keeps two copies of each table (left and right): workers read one, control changes the other, publishes it,
//! and makes up for the changes in the first once every worker has let go of it. So a worker never waits for a change,
//! whatever that costs, and the cost of a change doesn't depend on how many filters there are.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_classify::{
    BoundedTable, Candidate, CompiledFilter, DagConfig, Entry, FilterId, FilterTable, LinearOracle,
    TupleSpace,
};
use millrace_packet::FlowKey;
use millrace_plugin::{Action, BindingId, BindingTable, PluginChange};
use millrace_units::GateId;

/// A filter table that any number of threads may search.
pub type SharedTable = dyn FilterTable<BindingId> + Send + Sync;

/// Packets that are looked up at once.
const AT_ONCE: usize = 64;

/// Which kind of filter table a gate has. All find the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableKind {
    /// The list that is searched from the front.
    Linear,
    /// Tuple space search.
    #[default]
    TupleSpace,
    /// The DAG of *Router Plugins* with this way of matching addresses; when it would get too large, tuple space search.
    Dag(PrefixMatchKind),
}

impl TableKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Linear,
        Self::TupleSpace,
        Self::Dag(PrefixMatchKind::BinarySearchOnLengths),
        Self::Dag(PrefixMatchKind::Patricia),
        Self::Dag(PrefixMatchKind::TreeBitmap),
    ];

    /// Its name in commands and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::TupleSpace => "tuple-space",
            Self::Dag(PrefixMatchKind::BinarySearchOnLengths) => "dag",
            Self::Dag(PrefixMatchKind::Patricia) => "dag-patricia",
            Self::Dag(PrefixMatchKind::TreeBitmap) => "dag-tree-bitmap",
        }
    }
}

impl FromStr for TableKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "auto" {
            return Ok(Self::default());
        }
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no filter table {name:?}: it is one of auto, {names}")
        })
    }
}

/// The filters of a gate, by the kind of its table.
enum Filters {
    Linear(LinearOracle<BindingId>),
    TupleSpace(Box<TupleSpace<BindingId>>),
    Dag(Box<BoundedTable<BindingId>>),
}

impl Filters {
    fn new(kind: TableKind) -> Self {
        match kind {
            TableKind::Linear => Self::Linear(LinearOracle::new()),
            TableKind::TupleSpace => Self::TupleSpace(Box::default()),
            TableKind::Dag(addresses) => {
                let config = DagConfig { addresses, ..DagConfig::default() };
                Self::Dag(Box::new(BoundedTable::new(config)))
            }
        }
    }

    fn table(&self) -> &SharedTable {
        match self {
            Self::Linear(table) => table,
            Self::TupleSpace(table) => &**table,
            Self::Dag(table) => &**table,
        }
    }

    fn table_mut(&mut self) -> &mut SharedTable {
        match self {
            Self::Linear(table) => table,
            Self::TupleSpace(table) => &mut **table,
            Self::Dag(table) => &mut **table,
        }
    }
}

/// The filters of a gate, each with its binding.
pub struct GateTable {
    kind: TableKind,
    filters: Filters,
    ids: HashMap<BindingId, FilterId>,
    touching: Touching,
    /// The filters that refuse packets by ports or flags, without the conditions on these.
    strict: TupleSpace<BindingId>,
    strict_ids: HashMap<BindingId, (FilterId, i32)>,
}

/// The filters with conditions on fields that vary inside a flow, without these: which flows they can touch.
#[derive(Default)]
struct Touching {
    flows: TupleSpace<()>,
    ids: HashMap<BindingId, (FilterId, u32)>,
    /// How many of the filters look at each bit of [`Candidate::varying`].
    bits: [u32; 32],
    mask: u32,
}

impl Touching {
    fn insert(&mut self, binding: BindingId, filter: &CompiledFilter) {
        let Some(steady) = filter.without_varying() else { return };
        let id = self.flows.insert(steady, 0, ());
        self.ids.insert(binding, (id, filter.varying_mask()));
        self.count(filter.varying_mask(), |count| *count += 1);
    }

    fn remove(&mut self, binding: BindingId) {
        let Some((id, mask)) = self.ids.remove(&binding) else { return };
        self.flows.remove(id);
        self.count(mask, |count| *count -= 1);
    }

    fn count(&mut self, mask: u32, change: impl Fn(&mut u32)) {
        let bits = self.bits.iter_mut().enumerate();
        bits.filter(|(bit, _)| mask >> bit & 1 == 1).for_each(|(_, count)| change(count));
        let used = self.bits.iter().enumerate().filter(|(_, count)| **count > 0);
        self.mask = used.fold(0, |mask, (bit, _)| mask | 1 << bit);
    }
}

impl Default for GateTable {
    fn default() -> Self {
        Self::new(TableKind::default())
    }
}

impl std::fmt::Debug for GateTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateTable").field("filters", &self.filters().len()).finish_non_exhaustive()
    }
}

impl GateTable {
    /// A table without filters.
    pub fn new(kind: TableKind) -> Self {
        Self {
            kind,
            filters: Filters::new(kind),
            ids: HashMap::new(),
            touching: Touching::default(),
            strict: TupleSpace::new(),
            strict_ids: HashMap::new(),
        }
    }

    /// The filters, to explain what they do.
    pub fn filters(&self) -> &SharedTable {
        self.filters.table()
    }

    /// Which kind of table was asked for.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Why the filters are in a table of another kind than was asked for, in a sentence; `None` where they are not.
    pub fn moved(&self) -> Option<String> {
        match &self.filters {
            Filters::Dag(table) => table.moved().map(ToString::to_string),
            Filters::Linear(_) | Filters::TupleSpace(_) => None,
        }
    }

    fn insert(&mut self, filter: CompiledFilter, priority: i32, binding: BindingId, refuses: bool) {
        let id = self.filters.table_mut().insert(filter, priority, binding);
        self.ids.insert(binding, id);
        self.touching.insert(binding, &filter);
        if refuses && let Some(any) = filter.without_transport() {
            let id = self.strict.insert(any, priority, binding);
            self.strict_ids.insert(binding, (id, priority));
        }
    }

    fn remove(&mut self, binding: BindingId) {
        if let Some(id) = self.ids.remove(&binding) {
            self.filters.table_mut().remove(id);
        }
        self.touching.remove(binding);
        if let Some((id, _)) = self.strict_ids.remove(&binding) {
            self.strict.remove(id);
        }
    }

    /// The binding that wins for a packet. Where a packet's transport header can't be read, a filter that would refuse
    /// it if its ports and flags were the right ones does so, unless one of higher priority matches.
    pub fn lookup(&self, candidate: &Candidate) -> Option<BindingId> {
        let found = self.filters().lookup(candidate);
        if self.strict.is_empty() || candidate.ports_known() {
            return found.map(|(_, binding)| *binding);
        }
        let Some((strict, refuses)) = self.refusal(candidate) else {
            return found.map(|(_, binding)| *binding);
        };
        let above = |id: FilterId| {
            let mut entries = self.filters().entries();
            entries.find(|entry| entry.id == id).is_some_and(|entry| entry.priority > strict)
        };
        match found {
            Some((id, binding)) if above(id) => Some(*binding),
            _ => Some(refuses),
        }
    }

    /// What [`lookup`](Self::lookup) finds for each of many packets.
    fn lookup_batch(&self, candidates: &[Candidate], found: &mut [Option<BindingId>]) {
        let pieces = candidates.chunks(AT_ONCE).zip(found.chunks_mut(AT_ONCE));
        for (candidates, found) in pieces {
            let mut winners = [None; AT_ONCE];
            self.filters().lookup_batch(candidates, &mut winners[..candidates.len()]);
            for ((candidate, found), winner) in candidates.iter().zip(found).zip(winners) {
                *found = if self.strict.is_empty() || candidate.ports_known() {
                    winner.map(|(_, binding)| *binding)
                } else {
                    self.lookup(candidate)
                };
            }
        }
    }

    /// The filter of the highest priority that would refuse a packet if its transport header were the right one.
    #[cold]
    fn refusal(&self, candidate: &Candidate) -> Option<(i32, BindingId)> {
        let refusals = Candidate::hidden_keys(&candidate.key).filter_map(|key| {
            let (_, refuses) = self.strict.lookup(&Candidate { key, ..*candidate })?;
            let (_, priority) = self.strict_ids.get(refuses)?;
            Some((*priority, *refuses))
        });
        // Of equal ones the first protocol's, so that it is always the same.
        refusals.reduce(|best, next| if next.0 > best.0 { next } else { best })
    }

    /// The bits of [`Candidate::varying`] that filters look at which some packet of the flow may match.
    #[inline]
    pub fn varying_mask(&self, key: &FlowKey) -> u32 {
        let unread = Candidate::unread_ports_mask(key);
        // A filter may refuse packets of the flow by ports that it doesn't have.
        let hides = || Candidate::hidden_keys(key).next().is_some();
        let touched = || self.touching.flows.lookup(&Candidate::plain(*key)).is_some();
        if self.touching.mask != 0 && (hides() || touched()) { unread | self.touching.mask } else { unread }
    }

    /// A table of that kind with the same filters, ids and ages.
    fn copy(&self, kind: TableKind) -> Self {
        let mut copy = Self::new(kind);
        let mut entries: Vec<_> = self.filters().entries().collect();
        entries.sort_by_key(|entry| entry.id);
        for entry in entries {
            let refuses = self.strict_ids.contains_key(&entry.value);
            copy.filters.table_mut().restore(Entry { ..*entry });
            copy.ids.insert(entry.value, entry.id);
            copy.touching.insert(entry.value, &entry.filter);
            if refuses && let Some(any) = entry.filter.without_transport() {
                let id = copy.strict.insert(any, entry.priority, entry.value);
                copy.strict_ids.insert(entry.value, (id, entry.priority));
            }
        }
        copy
    }
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

    fn lookup_batch(&self, candidates: &[Candidate], found: &mut [Option<BindingId>]) {
        self.0.lookup_batch(candidates, found);
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
            let copy = Arc::new(self.published.copy(self.published.kind));
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
    /// Says which kind of table a gate has. When that is another one than before, its filters are moved, and what is
    /// returned is what workers are to read from now on; until they do, they find the same in the old one.
    pub fn set_kind(&mut self, gate: GateId, kind: TableKind) -> Option<WorkerTable> {
        let twins = self.0.entry(gate).or_default();
        if twins.published.kind == kind {
            return None;
        }
        let copy = || Arc::new(twins.published.copy(kind));
        let (published, spare) = (copy(), copy());
        twins.retired.push(std::mem::replace(&mut twins.published, published));
        twins.retired.push(std::mem::replace(&mut twins.spare, spare));
        twins.behind.clear();
        Some(WorkerTable(twins.published.clone()))
    }

    /// Makes changes in the tables that they concern, and says what workers are to be told: all of it together, so
    /// that no packet sees a part.
    pub fn publish(&mut self, changes: Vec<PluginChange<CompiledFilter>>) -> Vec<PluginChange<Published>> {
        for change in &changes {
            match change {
                PluginChange::Bind { binding, gate, filter, priority, action, .. } => {
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

#[cfg(test)]
mod tests {
    use millrace_classify::Filter;
    use millrace_packet::Exceptions;
    use millrace_plugin::Terms;
    use millrace_units::{InstanceId, PortId};

    use super::*;

    fn compiled(text: &str) -> CompiledFilter {
        text.parse::<Filter>().unwrap().compile(|_| Some(PortId(1))).unwrap()
    }

    fn bind(binding: u32, filter: &str, action: Action) -> PluginChange<CompiledFilter> {
        let (binding, gate) = (BindingId(binding), GateId(2));
        PluginChange::Bind {
            binding,
            gate,
            filter: compiled(filter),
            priority: 0,
            action,
            terms: Terms::default(),
        }
    }

    fn unbind(binding: u32, filter: &str) -> PluginChange<CompiledFilter> {
        PluginChange::Unbind { binding: BindingId(binding), gate: GateId(2), filter: compiled(filter) }
    }

    fn instance() -> Action {
        Action::Instance(InstanceId(0))
    }

    fn table(changes: Vec<PluginChange<Published>>) -> Arc<GateTable> {
        match changes.into_iter().last() {
            Some(PluginChange::Bind { filter, .. } | PluginChange::Unbind { filter, .. }) => filter.table,
            _ => panic!("no table"),
        }
    }

    fn packet(destination_port: u16) -> Candidate {
        let addresses = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        Candidate::plain(FlowKey::v4(addresses[0], addresses[1], 6, (7, destination_port), PortId(1)))
    }

    #[test]
    fn workers_keep_what_they_read_while_control_goes_on() {
        for kind in TableKind::ALL {
            let mut tables = GateTables::default();
            tables.set_kind(GateId(2), kind);
            let first = table(tables.publish(vec![bind(0, "dport 80", instance())]));
            let second = table(tables.publish(vec![bind(1, "dport 81", instance())]));
            // A worker still has both: the third change needs a copy.
            let third = table(tables.publish(vec![unbind(0, "dport 80"), bind(2, "*", instance())]));
            let found =
                |table: &GateTable| [80, 81, 82].map(|port| table.lookup(&packet(port)).map(|id| id.0));
            assert_eq!(found(&first), [Some(0), None, None], "{kind:?}");
            assert_eq!(found(&second), [Some(0), Some(1), None]);
            assert_eq!(found(&third), [Some(2), Some(1), Some(2)]);
            drop((first, second, third));
            let fourth = table(tables.publish(vec![unbind(2, "*")]));
            assert_eq!(found(&fourth), [None, Some(1), None]);
            assert_eq!(tables.table(GateId(2)).map(GateTable::kind), Some(kind));
        }
    }

    #[test]
    fn a_gate_gets_another_kind_of_table_while_workers_read_the_old_one() {
        let mut tables = GateTables::default();
        let old = table(tables.publish(vec![bind(0, "dport 80", instance())]));
        let mut kinds = TableKind::ALL.into_iter().filter(|kind| *kind != TableKind::default());
        assert!(kinds.all(|kind| {
            let new = tables.set_kind(GateId(2), kind).unwrap();
            assert!(tables.set_kind(GateId(2), kind).is_none());
            new.kind() == kind && new.lookup(&packet(80)) == old.lookup(&packet(80))
        }));
        let last = table(tables.publish(vec![bind(1, "dport 81", instance())]));
        assert_eq!([80, 81].map(|port| last.lookup(&packet(port)).map(|id| id.0)), [Some(0), Some(1)]);
    }

    #[test]
    fn names_of_tables_are_read_as_they_are_written() {
        assert!(TableKind::ALL.iter().all(|kind| kind.name().parse() == Ok(*kind)));
        assert_eq!("auto".parse(), Ok(TableKind::default()));
        assert!("dagg".parse::<TableKind>().unwrap_err().contains("dag-patricia"));
    }

    #[test]
    fn a_packet_without_readable_ports_does_not_pass_a_filter_that_refuses_ports() {
        let mut tables = GateTables::default();
        let drops = vec![bind(0, "proto tcp dport 23", Action::Drop), bind(1, "proto tcp", instance())];
        let table = table(tables.publish(drops));
        let mut cut = Candidate { exceptions: Exceptions::CUT, ..packet(0) };
        cut.key.source_port = 0;
        assert_eq!(table.lookup(&packet(23)), Some(BindingId(0)));
        assert_eq!(table.lookup(&packet(24)), Some(BindingId(1)));
        assert_eq!(table.lookup(&cut), Some(BindingId(0)));
    }

    #[test]
    fn only_flows_that_such_filters_can_match_are_told_apart_by_varying_fields() {
        let mut tables = GateTables::default();
        let filters = vec![
            bind(0, "proto tcp dport 80 flags syn/syn+ack", instance()),
            bind(1, "dport 81", instance()),
        ];
        let one = table(tables.publish(filters));
        assert_eq!([80, 81].map(|port| one.varying_mask(&packet(port).key) != 0), [true, false]);
        let none = table(tables.publish(vec![unbind(0, "proto tcp dport 80 flags syn/syn+ack")]));
        assert_eq!(none.varying_mask(&packet(80).key), 0);
    }
}
