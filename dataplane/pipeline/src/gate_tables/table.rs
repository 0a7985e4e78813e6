//! Filter table of a gate: its filters in a search structure of a chosen kind, and additional indices.

use std::collections::HashMap;
use std::str::FromStr;

use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_classify::{
    BoundedTable, Candidate, CompiledFilter, CuttingTree, DagConfig, DagTable, Entry, FilterId, FilterTable,
    LinearOracle, Links, Moved, TupleSpace, VaryingBits,
};
use millrace_packet::FlowKey;
use millrace_plugin::BindingId;

/// Filter table that any number of threads may search.
pub type SharedTable = dyn FilterTable<BindingId> + Send + Sync;

/// Maximum number of packets looked up together in a table.
const AT_ONCE: usize = 64;

/// Kind of a gate's filter table. All kinds give the same results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableKind {
    /// Linear oracle: a sorted list, searched from the front.
    Linear,
    /// Tuple space search.
    #[default]
    TupleSpace,
    /// Cutting tree; tuple space search if the tree would get too large.
    CuttingTree,
    /// DAG with this kind of address match; tuple space search if the DAG would get too large.
    Dag(PrefixMatchKind),
}

impl TableKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Linear,
        Self::TupleSpace,
        Self::CuttingTree,
        Self::Dag(PrefixMatchKind::BinarySearchOnLengths),
        Self::Dag(PrefixMatchKind::Patricia),
        Self::Dag(PrefixMatchKind::TreeBitmap),
    ];

    /// Returns the name of the kind in commands and configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::TupleSpace => "tuple-space",
            Self::CuttingTree => "cutting-tree",
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

/// Filters of a gate, by the kind of its table.
enum Filters {
    Linear(LinearOracle<BindingId>),
    TupleSpace(Box<TupleSpace<BindingId>>),
    CuttingTree(Box<BoundedTable<BindingId, CuttingTree<BindingId>>>),
    Dag(Box<BoundedTable<BindingId>>),
}

impl Filters {
    fn new(kind: TableKind) -> Self {
        match kind {
            TableKind::Linear => Self::Linear(LinearOracle::new()),
            TableKind::TupleSpace => Self::TupleSpace(Box::default()),
            TableKind::CuttingTree => Self::CuttingTree(Box::default()),
            TableKind::Dag(addresses) => {
                let config = DagConfig { addresses, ..DagConfig::default() };
                Self::Dag(Box::new(BoundedTable::new(DagTable::new(config))))
            }
        }
    }

    fn table(&self) -> &SharedTable {
        match self {
            Self::Linear(table) => table,
            Self::TupleSpace(table) => &**table,
            Self::CuttingTree(table) => &**table,
            Self::Dag(table) => &**table,
        }
    }

    fn table_mut(&mut self) -> &mut SharedTable {
        match self {
            Self::Linear(table) => table,
            Self::TupleSpace(table) => &mut **table,
            Self::CuttingTree(table) => &mut **table,
            Self::Dag(table) => &mut **table,
        }
    }
}

/// Filter table of a gate, which returns the binding of the winning filter.
pub struct GateTable {
    kind: TableKind,
    /// Version stamp of the table, unique among all versions of tables with filters.
    stamp: u64,
    filters: Filters,
    /// Filters of each binding; most bindings have one.
    ids: HashMap<BindingId, Vec<FilterId>>,
    touching: Touching,
    /// Refusing filters: filters whose action is drop or reject, and that have conditions on transport ports
    /// or TCP flags. They are stored here without these conditions.
    strict: TupleSpace<BindingId>,
    strict_ids: HashMap<BindingId, (Vec<FilterId>, i32)>,
}

/// Filters with conditions on varying fields, stored here without these conditions. If a flow matches a
/// stored filter, some packets of the flow may match the original filter.
#[derive(Default)]
struct Touching {
    flows: TupleSpace<()>,
    ids: HashMap<BindingId, Vec<(FilterId, CompiledFilter)>>,
    /// Bits of [`Candidate::varying`] that the filters' conditions test.
    bits: VaryingBits,
}

impl Touching {
    fn insert(&mut self, binding: BindingId, filter: &CompiledFilter) {
        let Some(steady) = filter.without_varying() else { return };
        let id = self.flows.insert(steady, 0, ());
        self.ids.entry(binding).or_default().push((id, *filter));
        self.bits.add(filter);
    }

    fn remove(&mut self, binding: BindingId) {
        for (id, filter) in self.ids.remove(&binding).into_iter().flatten() {
            self.flows.remove(id);
            self.bits.remove(&filter);
        }
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
    /// Returns a table without filters.
    pub fn new(kind: TableKind) -> Self {
        Self {
            kind,
            stamp: 0,
            filters: Filters::new(kind),
            ids: HashMap::new(),
            touching: Touching::default(),
            strict: TupleSpace::new(),
            strict_ids: HashMap::new(),
        }
    }

    /// Returns the filters in their search structure.
    pub fn filters(&self) -> &SharedTable {
        self.filters.table()
    }

    /// Returns the version stamp of the table.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Sets the version stamp, which no other table version may have.
    pub(crate) fn set_stamp(&mut self, stamp: u64) {
        self.stamp = stamp;
    }

    /// Returns the configured kind of the table.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Returns the memory of the search structure, in bytes.
    pub fn memory(&self) -> usize {
        self.filters().memory() + self.touching.flows.memory() + self.strict.memory()
    }

    /// Returns the reason why the table's filters are in another search structure than configured, as a
    /// sentence; `None` if they are in the configured one.
    pub fn moved(&self) -> Option<String> {
        let moved = match &self.filters {
            Filters::Dag(table) => table.moved(),
            Filters::CuttingTree(table) => table.moved(),
            Filters::Linear(_) | Filters::TupleSpace(_) => None,
        };
        moved.map(Moved::to_string)
    }

    /// Adds the filters of a binding. `refuses`: the binding's action is drop or reject.
    pub(crate) fn insert(
        &mut self,
        filters: &[CompiledFilter],
        priority: i32,
        binding: BindingId,
        refuses: bool,
    ) {
        for filter in filters {
            let id = self.filters.table_mut().insert(*filter, priority, binding);
            self.note(id, filter, priority, binding, refuses);
        }
    }

    /// Adds a filter that is in the table to the additional indices.
    fn note(
        &mut self,
        id: FilterId,
        filter: &CompiledFilter,
        priority: i32,
        binding: BindingId,
        refuses: bool,
    ) {
        self.ids.entry(binding).or_default().push(id);
        self.touching.insert(binding, filter);
        if refuses && let Some(any) = filter.without_transport() {
            let id = self.strict.insert(any, priority, binding);
            self.strict_ids.entry(binding).or_insert((Vec::new(), priority)).0.push(id);
        }
    }

    /// Returns the number of filters of a binding.
    pub(crate) fn filters_of(&self, binding: BindingId) -> usize {
        self.ids.get(&binding).map_or(0, Vec::len)
    }

    /// Removes the filters of a binding, if it has any.
    pub(crate) fn remove(&mut self, binding: BindingId) {
        for id in self.ids.remove(&binding).into_iter().flatten() {
            self.filters.table_mut().remove(id);
        }
        self.touching.remove(binding);
        for id in self.strict_ids.remove(&binding).into_iter().flat_map(|(ids, _)| ids) {
            self.strict.remove(id);
        }
    }

    /// Returns the binding of the winning filter for a packet.
    ///
    /// The ports and flags of a packet with an unreadable transport header are unknown. A drop or reject
    /// filter on ports or flags then matches if all its other conditions match. A matching filter of higher
    /// priority still wins.
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

    /// Looks up many packets, each as by [`lookup`](Self::lookup).
    pub(crate) fn lookup_batch(&self, candidates: &[Candidate], found: &mut [Option<BindingId>]) {
        let pieces = candidates.chunks(AT_ONCE).zip(found.chunks_mut(AT_ONCE));
        for (candidates, found) in pieces {
            let mut winners = [None; AT_ONCE];
            let Some(winners) = winners.get_mut(..candidates.len()) else { break };
            self.filters().lookup_batch(candidates, winners);
            for ((candidate, found), winner) in candidates.iter().zip(found).zip(winners) {
                *found = if self.strict.is_empty() || candidate.ports_known() {
                    winner.map(|(_, binding)| *binding)
                } else {
                    self.lookup(candidate)
                };
            }
        }
    }

    /// Looks up many packets with the links from the previous gate. `before`: results of the lookup at that
    /// gate.
    pub(crate) fn lookup_batch_linked(
        &self,
        links: &Links,
        previous: &Self,
        before: &[Option<BindingId>],
        candidates: &[Candidate],
        found: &mut [Option<BindingId>],
    ) {
        let Some(dag) = self.dag() else { return self.lookup_batch(candidates, found) };
        let is_strict = !self.strict.is_empty() || !previous.strict.is_empty();
        for ((candidate, before), found) in candidates.iter().zip(before).zip(found) {
            // If the packet's ports are unreadable, a drop or reject filter on ports may win, which a search
            // by links doesn't find.
            let hides = is_strict && !candidate.ports_known();
            *found = match before {
                Some(before) if !hides => {
                    let found = dag.lookup_linked(links, Some(before.0 as usize), candidate);
                    found.map(|(_, binding)| *binding)
                }
                _ => self.lookup(candidate),
            };
        }
    }

    /// Returns priority and binding of the refusing filter with the highest priority whose conditions match,
    /// apart from those on ports and flags. `candidate`: packet with an unreadable transport header.
    #[cold]
    fn refusal(&self, candidate: &Candidate) -> Option<(i32, BindingId)> {
        let refusals = Candidate::hidden_keys(&candidate.key).filter_map(|key| {
            let (_, refuses) = self.strict.lookup(&Candidate { key, ..*candidate })?;
            let (_, priority) = self.strict_ids.get(refuses)?;
            Some((*priority, *refuses))
        });
        // Among equal priorities, the filter found for the first protocol wins, so that the result is always
        // the same.
        refusals.reduce(|best, next| if next.0 > best.0 { next } else { best })
    }

    /// Returns the bits of [`Candidate::varying`] that matter for a flow: those in the conditions of filters
    /// that some packet of the flow may match.
    #[inline]
    pub fn varying_mask(&self, key: &FlowKey) -> u32 {
        let unread = Candidate::unread_ports_mask(key);
        // A flow key without ports may belong to packets with unreadable ports, which a drop or reject filter
        // on ports also matches.
        let hides = || Candidate::hidden_keys(key).next().is_some();
        let touched = || self.touching.flows.lookup(&Candidate::plain(*key)).is_some();
        let mask = self.touching.bits.mask();
        if mask != 0 && (hides() || touched()) { unread | mask } else { unread }
    }

    /// Returns the DAG, if the table is one.
    pub(crate) fn dag(&self) -> Option<&DagTable<BindingId>> {
        match &self.filters {
            Filters::Dag(table) => table.bounded(),
            Filters::Linear(_) | Filters::TupleSpace(_) | Filters::CuttingTree(_) => None,
        }
    }

    /// Returns a table of another kind with the same filters, ids and ages.
    pub(crate) fn copy(&self, kind: TableKind) -> Self {
        let mut copy = Self::new(kind);
        let mut entries: Vec<_> = self.filters().entries().collect();
        entries.sort_by_key(|entry| entry.id);
        for entry in entries {
            let refuses = self.strict_ids.contains_key(&entry.value);
            copy.filters.table_mut().restore(Entry { ..*entry });
            copy.note(entry.id, &entry.filter, entry.priority, entry.value, refuses);
        }
        copy
    }
}
