//! Stages classify and gates: which instances a packet's flow is bound to, and their work on it.

use millrace_classify::Candidate;
use millrace_forward::IcmpError;
use millrace_packet::{BATCH_SIZE, Batch, DropReason, FlowKey, Packet, Pool};
use millrace_plugin::{
    Action, Classified, EMPTY_PATH, End, Group, Place, PluginChange, Refusal, Taken, WorkerPlugins,
};
use millrace_plugin_abi::{FlowEnd, Position, Verdict};
use millrace_units::{Instant, NextHopIndex, PathId};

use crate::filter_route::FilterRoutes;
use crate::gate_table::{Published, WorkerTable};
use crate::work::{Fate, Work};

/// The gates of a worker, and the memory in which a batch is sorted by path.
#[derive(Debug)]
pub struct Gates {
    plugins: WorkerPlugins<WorkerTable>,
    bound: bool,
    /// Whether some binding sends copies by ports.
    copying: bool,
    routes: FilterRoutes,
    groups: Vec<(PathId, Vec<u16>)>,
    spare: Vec<Vec<u16>>,
    /// Of each path, by number: the batch in which it was last seen, and its group there.
    group_of: Vec<(u32, u32)>,
    /// How many batches were grouped, from 1 on.
    batches: u32,
    taken: Vec<(u16, Taken)>,
    /// Kept for its memory.
    classified: Vec<Classified>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            plugins: WorkerPlugins::new(),
            bound: false,
            copying: false,
            routes: FilterRoutes::default(),
            groups: Vec::new(),
            spare: Vec::new(),
            group_of: Vec::new(),
            batches: 0,
            taken: Vec::with_capacity(BATCH_SIZE),
            classified: Vec::with_capacity(BATCH_SIZE),
        }
    }
}

impl Gates {
    /// The gates, instances and bindings.
    pub fn plugins(&self) -> &WorkerPlugins<WorkerTable> {
        &self.plugins
    }

    /// The gates, instances and bindings, to send messages.
    pub fn plugins_mut(&mut self) -> &mut WorkerPlugins<WorkerTable> {
        &mut self.plugins
    }

    /// Makes a change that control has checked.
    pub fn apply(&mut self, change: PluginChange<Published>) {
        if let PluginChange::Bind { action: Action::Send(ways) | Action::Copy(ways), .. } = &change {
            ways.iter().for_each(|way| self.routes.add(*way));
            self.copying = true;
        }
        drop(self.plugins.apply(change));
        self.bound = self.plugins.gates().iter().any(|gate| gate.bindings() > 0);
    }

    /// Whether any filter stands at any gate.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// The routes that filters prescribe.
    pub fn routes(&self) -> &FilterRoutes {
        &self.routes
    }

    /// The path of a flow by one of its packets, the route that a filter prescribes for it, and the bits of
    /// [`Candidate::varying`] under which packets of the flow may be treated differently. `route` is the priority of
    /// the flow's route, if it has one.
    pub fn classify(&mut self, candidate: &Candidate, route: Option<i32>) -> Treatment {
        if !self.bound {
            return Treatment { path: EMPTY_PATH, route: None, varying_mask: 0 };
        }
        let classified = self.plugins.classify(candidate, route);
        self.treatment(candidate, classified)
    }

    /// The same for many packets; `routes` go by the same indices, and `treatments` need not be empty before.
    pub fn classify_batch(
        &mut self,
        candidates: &[Candidate],
        routes: &[Option<i32>],
        treatments: &mut Vec<Treatment>,
    ) {
        let mut classified = std::mem::take(&mut self.classified);
        self.plugins.classify_batch(candidates, routes, &mut classified);
        treatments.clear();
        let both = candidates.iter().zip(&classified);
        treatments.extend(both.map(|(candidate, classified)| self.treatment(candidate, *classified)));
        self.classified = classified;
    }

    fn treatment(&self, candidate: &Candidate, classified: Classified) -> Treatment {
        let gates = self.plugins.gates().iter().filter(|gate| gate.bindings() > 0);
        let varying_mask = gates.fold(0, |mask, gate| mask | gate.table().varying_mask(&candidate.key));
        let action = classified.primary.and_then(|primary| self.plugins.action(primary));
        Treatment {
            path: classified.path,
            route: action.and_then(|action| self.routes.index(action)),
            varying_mask,
        }
    }

    /// Tells the instances of a path that a flow of theirs has ended.
    pub fn flow_ended(&mut self, path: PathId, end: &FlowEnd) {
        self.plugins.flow_ended(path, end);
    }

    /// Tells the instances of the path `old` that are not on `new` that the flow has ended for them.
    pub fn flow_moved(&mut self, old: PathId, new: PathId, end: &FlowEnd) {
        self.plugins.flow_moved(old, new, end);
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
        self.batches = self.batches.checked_add(1).unwrap_or_else(|| {
            self.group_of.clear();
            1
        });
        for index in 0..work.packets.len() {
            let path = work.paths[index];
            if path == EMPTY_PATH || !work.fates[index].is_open() {
                continue;
            }
            let group = match self.group_of.get(path.index()) {
                Some((batch, group)) if *batch == self.batches => *group as usize,
                _ => self.begin_group(path),
            };
            self.groups[group].1.push(index as u16);
        }
    }

    /// A group without members for a path that the batch has not had before.
    fn begin_group(&mut self, path: PathId) -> usize {
        let group = self.groups.len();
        let members = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BATCH_SIZE));
        self.groups.push((path, members));
        if self.group_of.len() <= path.index() {
            self.group_of.resize(path.index() + 1, (0, 0));
        }
        self.group_of[path.index()] = (self.batches, group as u32);
        group
    }

    /// Runs the instances at a position over the batch that was grouped last, from the stage of that number on.
    pub fn run(&mut self, position: Position, from: u16, work: &mut Work, now: Instant) {
        for (path, members) in &mut self.groups {
            if !self.plugins.has_stages(*path, position) {
                continue;
            }
            members.retain(|member| work.fates[usize::from(*member)].is_open());
            let Work { packets, keys, verdicts, fates, .. } = work;
            let taken = &mut self.taken;
            let mut group = Group { packets, keys, verdicts, members, taken };
            let place = Place { path: *path, position, stage: from };
            let refused = self.plugins.run(place, &mut group, now);
            for (member, why) in taken.drain(..) {
                fates[usize::from(member)] = fate(why);
            }
            let filtered = match refused {
                None => continue,
                Some(Refusal::Drop) => Fate::Drop(DropReason::Filter),
                Some(Refusal::Reject) => Fate::Refuse(IcmpError::AdminProhibited, DropReason::Filter),
            };
            members.drain(..).for_each(|member| fates[usize::from(member)] = filtered);
        }
    }

    /// Puts the copies that filters want sent by ports into `made`, each with its route noted on it.
    pub fn replicate(&self, work: &Work, pool: &Pool, made: &mut Vec<Packet>) -> u64 {
        if !self.copying {
            return 0;
        }
        let before = made.len();
        for (path, members) in &self.groups {
            let further = self.plugins.actions_at(*path, Position::Route).filter_map(|action| match action {
                Action::Send(ways) => ways.get(1..),
                _ => None,
            });
            let copies = self.plugins.actions_at(*path, Position::Copy).filter_map(|action| match action {
                Action::Copy(ways) => Some(&**ways),
                _ => None,
            });
            for way in further.chain(copies).flatten() {
                let open = members.iter().map(|at| usize::from(*at)).filter(|at| work.fates[*at].is_open());
                made.extend(open.filter_map(|at| {
                    let mut copy = work.packets[at].copy(pool)?;
                    copy.next_hop = self.routes.for_copies(*way)?;
                    Some(copy)
                }));
            }
        }
        (made.len() - before) as u64
    }

    /// Hands copies of the packets that are bound at copy gates to the instances there. Copies that don't wait are used up
    /// when this returns.
    pub fn run_copies(&mut self, work: &Work, copies: &mut Copies, pool: &Pool, now: Instant) -> CopyCounts {
        let mut counts = CopyCounts::default();
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
                    counts.made += 1;
                }
            }
            counts.kept += copies.hand_over(&mut self.plugins, *path, now);
        }
        counts
    }
}

/// What became of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyCounts {
    /// Copies that were made.
    pub made: u64,
    /// Those of them that wait for an instance; the others are used up.
    pub kept: u64,
}

/// What filters say of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Treatment {
    /// Its path.
    pub path: PathId,
    /// The number of the route that a filter prescribes.
    pub route: Option<NextHopIndex>,
    /// The bits of [`Candidate::varying`] that matter to it.
    pub varying_mask: u32,
}

/// The memory in which copies for the copy gates live during a call.
#[derive(Debug, Default)]
pub struct Copies {
    packets: Batch,
    keys: Vec<FlowKey>,
    verdicts: Vec<Verdict>,
    members: Vec<u16>,
    taken: Vec<(u16, Taken)>,
}

impl Copies {
    /// Returns how many copies wait.
    fn hand_over(&mut self, plugins: &mut WorkerPlugins<WorkerTable>, path: PathId, now: Instant) -> u64 {
        self.verdicts.clear();
        self.verdicts.resize(self.packets.len(), Verdict::Pass);
        let Self { packets, keys, verdicts, members, taken } = self;
        let place = Place { path, position: Position::Copy, stage: 0 };
        plugins.run(place, &mut Group { packets, keys, verdicts, members, taken }, now);
        let kept = taken.drain(..).filter_map(|(member, why)| match why {
            Taken::Keep(ticket) => Some((member, ticket)),
            Taken::End(_) => None,
        });
        let mut kept = kept.peekable();
        let mut count = 0;
        for (member, packet) in (0..).zip(packets.drain()) {
            if let Some((_, ticket)) = kept.next_if(|(next, _)| *next == member) {
                let refused = plugins.keep(ticket, true, packet, keys[usize::from(member)], [0; 6]);
                count += u64::from(refused.is_none());
            }
        }
        drop(kept);
        keys.clear();
        members.clear();
        count
    }
}

/// The fate of a packet that an instance has taken out.
#[inline]
pub(crate) fn fate(why: Taken) -> Fate {
    match why {
        Taken::End(End::Drop(reason)) => Fate::Drop(reason),
        Taken::End(End::Consume) => Fate::Consumed,
        Taken::Keep(ticket) => Fate::Kept(ticket),
    }
}
