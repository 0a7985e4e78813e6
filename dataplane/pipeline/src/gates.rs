//! Stages classify and gates: which instances a packet's flow is bound to, and their work on it.

use millrace_classify::{Candidate, CompiledFilter, FilterId, FilterTable, LinearOracle};
use millrace_packet::{BATCH_SIZE, Batch, DropReason, FlowKey, Pool};
use millrace_plugin::{BindingId, BindingTable, EMPTY_PATH, Group, WorkerPlugins};
use millrace_plugin_abi::{Position, Verdict};
use millrace_units::{Instant, PathId};

use crate::parse::Parsed;
use crate::work::{Fate, Work};

/// The filter table of a gate.
#[derive(Debug, Default)]
pub struct GateTable {
    filters: LinearOracle<BindingId>,
    ids: Vec<(BindingId, FilterId)>,
}

impl GateTable {
    /// The filters, to explain what they do.
    pub fn filters(&self) -> &LinearOracle<BindingId> {
        &self.filters
    }
}

impl BindingTable for GateTable {
    type Filter = CompiledFilter;
    type Candidate = Candidate;

    fn insert(&mut self, filter: CompiledFilter, priority: i32, binding: BindingId) {
        let id = self.filters.insert(filter, priority, binding);
        self.ids.push((binding, id));
    }

    fn remove(&mut self, binding: BindingId) {
        if let Some(place) = self.ids.iter().position(|(own, _)| *own == binding) {
            let (_, id) = self.ids.swap_remove(place);
            self.filters.remove(id);
        }
    }

    fn lookup(&self, candidate: &Candidate) -> Option<BindingId> {
        self.filters.lookup(candidate).map(|(_, binding)| *binding)
    }
}

/// The gates of a worker, and the memory in which a batch is sorted by path.
#[derive(Debug)]
pub struct Gates {
    plugins: WorkerPlugins<GateTable>,
    bound: bool,
    groups: Vec<(PathId, Vec<u16>)>,
    spare: Vec<Vec<u16>>,
    asked: Vec<u16>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            plugins: WorkerPlugins::new(),
            bound: false,
            groups: Vec::new(),
            spare: Vec::new(),
            asked: Vec::new(),
        }
    }
}

impl Gates {
    /// The gates, instances and bindings.
    pub fn plugins(&self) -> &WorkerPlugins<GateTable> {
        &self.plugins
    }

    /// The gates, instances and bindings, to send messages.
    pub fn plugins_mut(&mut self) -> &mut WorkerPlugins<GateTable> {
        &mut self.plugins
    }

    /// Makes a change that control has checked.
    pub fn apply(&mut self, change: millrace_plugin::PluginChange<CompiledFilter>) {
        drop(self.plugins.apply(change));
        self.bound = self.plugins.gates().iter().any(|gate| gate.bindings() > 0);
    }

    /// Finds the path of a packet.
    #[inline]
    pub fn classify(&mut self, parsed: &Parsed, packet: &millrace_packet::Packet) -> PathId {
        if self.bound { self.plugins.path_of(&parsed.candidate(packet)) } else { EMPTY_PATH }
    }

    /// Sorts the open packets of a batch by path, those bound to nothing left out.
    pub fn group(&mut self, work: &Work) {
        self.spare.extend(self.groups.drain(..).map(|(_, mut members)| {
            members.clear();
            members
        }));
        if !self.bound {
            return;
        }
        for index in 0..work.packets.len() {
            let path = work.paths[index];
            if path == EMPTY_PATH || !work.fates[index].is_open() {
                continue;
            }
            let group = match self.groups.iter().position(|(own, _)| *own == path) {
                Some(group) => group,
                None => {
                    let members = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BATCH_SIZE));
                    self.groups.push((path, members));
                    self.groups.len() - 1
                }
            };
            self.groups[group].1.push(index as u16);
        }
    }

    /// Runs the instances at a position over the batch that was grouped last.
    pub fn run(&mut self, position: Position, work: &mut Work, now: Instant) {
        for (path, members) in &mut self.groups {
            members.retain(|member| work.fates[usize::from(*member)].is_open());
            if members.is_empty() || !self.plugins.has_stages(*path, position) {
                continue;
            }
            self.asked.clone_from(members);
            for member in &self.asked {
                work.verdicts[usize::from(*member)] = Verdict::Pass;
            }
            let Work { packets, keys, verdicts, fates, .. } = work;
            self.plugins.run(*path, position, &mut Group { packets, keys, verdicts, members }, now);
            for member in &self.asked {
                fates[usize::from(*member)] = fate(verdicts[usize::from(*member)]);
            }
        }
    }

    /// Hands copies of the packets that are bound at copy gates to the instances there. Returns how many copies were
    /// made; all of them are used up when this returns.
    pub fn run_copies(&mut self, work: &Work, copies: &mut Copies, pool: &Pool, now: Instant) -> u64 {
        let mut made = 0;
        for (path, members) in &self.groups {
            if !self.plugins.has_stages(*path, Position::Copy) {
                continue;
            }
            for member in
                members.iter().map(|member| usize::from(*member)).filter(|at| work.fates[*at].is_open())
            {
                if let Some(copy) = work.packets[member].copy(pool)
                    && copies.packets.push(copy).is_ok()
                {
                    copies.keys.push(work.keys[member]);
                    copies.members.push(copies.members.len() as u16);
                    made += 1;
                }
            }
            copies.hand_over(&mut self.plugins, *path, now);
        }
        made
    }
}

/// The memory in which copies for the copy gates live during a call.
#[derive(Debug, Default)]
pub struct Copies {
    packets: Batch,
    keys: Vec<FlowKey>,
    verdicts: Vec<Verdict>,
    members: Vec<u16>,
}

impl Copies {
    fn hand_over(&mut self, plugins: &mut WorkerPlugins<GateTable>, path: PathId, now: Instant) {
        self.verdicts.clear();
        self.verdicts.resize(self.packets.len(), Verdict::Pass);
        let Self { packets, keys, verdicts, members } = self;
        plugins.run(path, Position::Copy, &mut Group { packets, keys, verdicts, members }, now);
        packets.clear();
        keys.clear();
        members.clear();
    }
}

/// The fate that a verdict means.
#[inline]
fn fate(verdict: Verdict) -> Fate {
    match verdict {
        Verdict::Pass => Fate::Forward,
        Verdict::Drop => Fate::Drop(DropReason::Plugin),
        Verdict::Consume => Fate::Consumed,
    }
}
