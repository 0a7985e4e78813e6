//! The worker's side: its gates, instances and bindings, and the way of packets through them.

use std::collections::BTreeMap;

use millrace_packet::{BATCH_SIZE, DropReason, FlowKey, Packet};
use millrace_plugin_abi::{Fault, FlowEnd, Message, Packets, Position, Progress, Reply, Verdict};
use millrace_units::{GateId, InstanceId, Instant, PathId};

use crate::health::Health;
use crate::instances::{Hosted, Instances};
use crate::path::{EMPTY_PATH, Paths, Refusal, Stage, Step};
use crate::slab::Slab;
use crate::waiting::{Backlog, Call, End, Place, Released, Taken, Ticket, WaitingRoom};
use crate::{Action, BindingCounts, BindingId, BindingTable, GateOrder, PluginChange, Remains};

/// Slices that a call may take: with 50 µs each, 10 ms.
const MOST_SLICES: u32 = 200;
/// Calls of an instance, with packets that waited for it, in one round.
const CALLS: usize = 16;
/// Packets of a call that goes on: a whole batch, at most.
const MOST_WAITING: usize = BATCH_SIZE;

/// A gate with its filter table.
#[derive(Debug)]
pub struct WorkerGate<T> {
    id: GateId,
    position: Position,
    order: GateOrder,
    bindings: u32,
    table: T,
}

impl<T> WorkerGate<T> {
    /// Its id.
    pub fn id(&self) -> GateId {
        self.id
    }

    /// Where in the journey it stands.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many bindings there are at it.
    pub fn bindings(&self) -> u32 {
        self.bindings
    }

    /// Its filter table.
    pub fn table(&self) -> &T {
        &self.table
    }
}

#[derive(Debug)]
struct Binding {
    gate: GateId,
    action: Action,
    priority: i32,
    /// `None` when the instance was not there: the binding has no effect then.
    step: Option<Step>,
    /// Whether it is an instance that is told of the ends of flows.
    hears: bool,
    counts: BindingCounts,
}

impl Binding {
    /// Whether a route of that priority, if there is one, counts more.
    fn loses_against(&self, route: Option<i32>) -> bool {
        route.is_some_and(|route| self.priority < route)
    }
}

/// The treatment of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classified {
    /// The path.
    pub path: PathId,
    /// The binding, of an action that is no instance, that takes the place of the flow's route.
    pub primary: Option<BindingId>,
}

/// One stage of a path, for those who explain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageOfPath {
    /// The gate.
    pub gate: GateId,
    /// The binding that won there.
    pub binding: BindingId,
    /// Its instance, if it is bound to one.
    pub instance: Option<InstanceId>,
}

/// What an instance did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faults {
    /// How it is.
    pub health: Health,
    /// Faults by kind.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// What happened last, in a sentence.
    pub last: String,
}

impl Faults {
    /// Adds those of the instance at another worker.
    pub fn add(&mut self, other: Self) {
        self.health = self.health.max(other.health);
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
    }
}

/// Packets of a batch that are on the same path.
#[derive(Debug)]
pub struct Group<'a> {
    /// The packets of the batch.
    pub packets: &'a mut [Packet],
    /// Their flow keys, by the same indices.
    pub keys: &'a [FlowKey],
    /// Room for verdicts, by the same indices: [`Verdict::Pass`], before and after.
    pub verdicts: &'a mut [Verdict],
    /// Indices of the packets that are on the path. Those that don't pass are taken out; the others keep their order.
    pub members: &'a mut Vec<u16>,
    /// Those that were taken out, with the reason, are added here.
    pub taken: &'a mut Vec<(u16, Taken)>,
}

/// The gates, instances and bindings of a worker. `T` is the kind of filter table at each gate.
pub struct WorkerPlugins<T> {
    /// In the order in which packets meet them.
    gates: Vec<WorkerGate<T>>,
    instances: Instances,
    bindings: Slab<Binding>,
    paths: Paths,
    /// Kept for its memory.
    found: Vec<Stage>,
    /// The same.
    winners: Vec<Option<BindingId>>,
    waiting: WaitingRoom,
    /// Room for the verdicts of calls that go on.
    verdicts: Vec<Verdict>,
}

impl<T> std::fmt::Debug for WorkerPlugins<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerPlugins")
            .field("gates", &self.gates.len())
            .field("bindings", &self.bindings)
            .field("paths", &self.paths.len())
            .finish_non_exhaustive()
    }
}

impl<T: BindingTable> Default for WorkerPlugins<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: BindingTable> WorkerPlugins<T> {
    /// No gates and no instances: even the default gates come as changes.
    pub fn new() -> Self {
        Self {
            gates: Vec::new(),
            instances: Instances::default(),
            bindings: Slab::default(),
            paths: Paths::default(),
            found: Vec::new(),
            winners: Vec::new(),
            waiting: WaitingRoom::default(),
            verdicts: vec![Verdict::Pass; BATCH_SIZE],
        }
    }

    /// Makes a change that the control side has checked, between two batches.
    ///
    /// Paths found before it stay valid: they skip bindings and instances that are gone, and don't know new ones.
    pub fn apply(&mut self, change: PluginChange<T::Filter>) -> Remains<T> {
        match change {
            PluginChange::AddGate { gate, position, order } => self.add_gate(gate, position, order),
            PluginChange::RemoveGate { gate } => return self.remove_gate(gate),
            PluginChange::AddInstance { id, instance } => {
                return self.instances.add(id, instance).map_or(Remains::Nothing, Remains::Instance);
            }
            PluginChange::RemoveInstance { id } => {
                return self.instances.remove(id).map_or(Remains::Nothing, Remains::Instance);
            }
            PluginChange::Bind { binding, gate, filter, priority, action } => {
                let insert = |table: &mut T| table.insert(filter, priority, binding);
                self.bind(binding, gate, priority, action, insert);
            }
            PluginChange::Unbind { binding, filter, .. } => self.unbind(binding, filter),
        }
        Remains::Nothing
    }

    fn add_gate(&mut self, id: GateId, position: Position, order: GateOrder) {
        let place = self.gates.partition_point(|gate| (gate.position, gate.order) <= (position, order));
        self.gates.insert(place, WorkerGate { id, position, order, bindings: 0, table: T::default() });
    }

    fn remove_gate(&mut self, id: GateId) -> Remains<T> {
        let Some(place) = self.gates.iter().position(|gate| gate.id == id) else { return Remains::Nothing };
        let orphans: Vec<_> =
            self.bindings.iter().filter(|(_, binding)| binding.gate == id).map(|(slot, _)| slot).collect();
        for slot in orphans {
            self.bindings.take(slot);
        }
        Remains::Table(self.gates.remove(place).table)
    }

    fn bind(
        &mut self,
        id: BindingId,
        gate: GateId,
        priority: i32,
        action: Action,
        insert: impl FnOnce(&mut T),
    ) {
        let Some(found) = self.gates.iter_mut().find(|found| found.id == gate) else { return };
        insert(&mut found.table);
        found.bindings += 1;
        let step = match &action {
            Action::Instance(instance) => self.instances.key(*instance).map(Step::Instance),
            // At the position of the route, the route itself says so.
            Action::Drop if found.position != Position::Route => Some(Step::Refuse(Refusal::Drop)),
            Action::Reject if found.position != Position::Route => Some(Step::Refuse(Refusal::Reject)),
            _ => Some(Step::Count),
        };
        let hears = match step {
            Some(Step::Instance(key)) => {
                self.instances.get_mut(key).is_some_and(|hosted| hosted.instance.hears_flow_ends())
            }
            _ => false,
        };
        let counts = BindingCounts::default();
        self.bindings.put(id.0, Binding { gate, action, priority, step, hears, counts });
    }

    fn unbind(&mut self, id: BindingId, filter: T::Filter) {
        let Some(binding) = self.bindings.take(id.0) else { return };
        if let Some(gate) = self.gates.iter_mut().find(|gate| gate.id == binding.gate) {
            gate.table.remove(filter, id);
            gate.bindings -= 1;
        }
    }

    /// Gives a gate another table, which is to find the same as the one it had. Returns the one that is out of use.
    pub fn set_table(&mut self, gate: GateId, table: T) -> T {
        match self.gates.iter_mut().find(|found| found.id == gate) {
            Some(found) => std::mem::replace(&mut found.table, table),
            None => table,
        }
    }

    /// The treatment of a packet's flow: at each gate with bindings the one that wins for it. To be called for the first
    /// packet of a flow, and again when a change concerns it. At gates of the position `route`, an action that is no
    /// instance counts only where its priority is at least `route`, the priority of the flow's route, if it has one.
    pub fn classify(&mut self, candidate: &T::Candidate, route: Option<i32>) -> Classified {
        if self.bindings.is_empty() {
            return Classified { path: EMPTY_PATH, primary: None };
        }
        let Self { gates, bindings, paths, found, .. } = self;
        let bound = gates.iter().filter(|gate| gate.bindings > 0);
        let winners = bound.map(|gate| (gate.position, gate.table.lookup(candidate)));
        let primary = select(winners, bindings, route, found);
        Classified { path: paths.intern(found), primary }
    }

    /// The same for many packets, one result each in `classified`, which need not be empty before.
    pub fn classify_batch(
        &mut self,
        candidates: &[T::Candidate],
        routes: &[Option<i32>],
        classified: &mut Vec<Classified>,
    ) {
        classified.clear();
        let Self { gates, bindings, paths, found, winners, .. } = self;
        let count = candidates.len();
        let bound = || gates.iter().filter(|gate| gate.bindings > 0);
        winners.clear();
        winners.resize(bound().count() * count, None);
        for (gate, winners) in bound().zip(winners.chunks_mut(count.max(1))) {
            gate.table.lookup_batch(candidates, winners);
        }
        for (packet, route) in routes.iter().enumerate() {
            let of_packet = winners.iter().skip(packet).step_by(count.max(1));
            let positions = bound().map(|gate| gate.position);
            let primary = select(positions.zip(of_packet.copied()), bindings, *route, found);
            classified.push(Classified { path: paths.intern(found), primary });
        }
    }

    /// What [`classify`](Self::classify) goes by: each gate at which something is bound, with the binding that wins
    /// there, and whether it loses against the flow's route.
    pub fn winners(
        &self,
        candidate: &T::Candidate,
        route: Option<i32>,
    ) -> impl Iterator<Item = (&WorkerGate<T>, Option<(BindingId, bool)>)> {
        self.gates.iter().filter(|gate| gate.bindings > 0).map(move |gate| {
            let found = gate.table.lookup(candidate).and_then(|id| {
                let binding = self.bindings.get(self.bindings.key(id.0)?)?;
                let beside_route = gate.position == Position::Route && binding.action.instance().is_none();
                Some((id, beside_route && binding.loses_against(route)))
            });
            (gate, found)
        })
    }

    /// What is done by a binding; `None` when there is no such binding.
    pub fn action(&self, binding: BindingId) -> Option<&Action> {
        Some(&self.bindings.get(self.bindings.key(binding.0)?)?.action)
    }

    /// The actions of a path's bindings at a position.
    pub fn actions_at(&self, path: PathId, position: Position) -> impl Iterator<Item = &Action> + '_ {
        let stages = self.paths.stages_at(path, position).iter();
        stages.filter_map(|stage| Some(&self.bindings.get(stage.binding)?.action))
    }

    /// Whether any instance of a path wants to be told of the ends of flows.
    #[inline]
    pub fn hears_flow_ends(&self, path: PathId) -> bool {
        !self.paths.hearing(path).is_empty()
    }

    /// Tells the instances of a path that a flow of theirs has ended: each once, at however many gates it stands.
    pub fn flow_ended(&mut self, path: PathId, flow: &FlowEnd) {
        self.flow_moved(path, EMPTY_PATH, flow);
    }

    /// Tells the instances that are on the path `old` and not on `new` that the flow has ended for them.
    pub fn flow_moved(&mut self, old: PathId, new: PathId, flow: &FlowEnd) {
        let (old, new) = (self.paths.hearing(old), self.paths.stages(new));
        for (index, stage) in old.iter().enumerate() {
            let is_same = |other: &Stage| other.step == stage.step;
            if stage.hears
                && let Step::Instance(key) = stage.step
                && !old[..index].iter().any(is_same)
                && !new.iter().any(is_same)
                && let Some(hosted) = self.instances.get_mut(key)
            {
                hosted.instance.flow_ended(flow);
            }
        }
    }

    /// Whether the path has anything to do at a position.
    #[inline]
    pub fn has_stages(&self, path: PathId, position: Position) -> bool {
        !self.paths.stages_at(path, position).is_empty()
    }

    /// Hands packets to the instances of their path at a position, from a place on, one after the other; each gets those that
    /// the one before let pass. When a filter refuses packets, those that were left are still members of the group when
    /// this returns, and how is what it returns.
    #[inline]
    pub fn run(&mut self, from: Place, group: &mut Group<'_>, now: Instant) -> Option<Refusal> {
        let mut bytes = None;
        let stages = self.paths.stages_at(from.path, from.position);
        for (number, stage) in (0..).zip(stages).skip(from.stage.into()) {
            if group.members.is_empty() {
                return None;
            }
            let Some(binding) = self.bindings.get_mut(stage.binding) else { continue };
            binding.counts.packets += group.members.len() as u64;
            binding.counts.bytes += *bytes.get_or_insert_with(|| {
                let length = |member: &u16| group.packets[usize::from(*member)].len() as u64;
                group.members.iter().map(length).sum::<u64>()
            });
            let key = match stage.step {
                Step::Instance(key) => key,
                Step::Refuse(refusal) => {
                    binding.counts.drops += group.members.len() as u64;
                    return Some(refusal);
                }
                Step::Count => continue,
            };
            let Some(hosted) = self.instances.get_mut(key) else { continue };
            let place = Place { stage: number, ..from };
            if self.waiting.is_busy(key) {
                group.take_all(Taken::Keep(self.waiting.queue(key, place)));
                return None;
            }
            match call(hosted, group, now) {
                Outcome::Untouched => continue,
                Outcome::Suspended => group.take_all(Taken::Keep(self.waiting.suspend(key, place))),
                Outcome::Failed => {
                    binding.counts.drops += group.members.len() as u64;
                    group.take_all(Taken::End(End::Drop(DropReason::PluginFailed)));
                }
                Outcome::Decided => group.part(&mut binding.counts, &mut self.waiting, place),
            }
            bytes = None;
        }
        None
    }

    /// Takes a packet that was taken out of its group to be kept; `room` says whether there is packet memory for it to
    /// wait. Gives back one that finds no room, to be dropped as [`DropReason::PluginBusy`].
    pub fn keep(
        &mut self,
        ticket: Ticket,
        room: bool,
        packet: Packet,
        key: FlowKey,
        destination: [u8; 6],
    ) -> Option<Packet> {
        self.waiting.keep(ticket, room, packet, key, destination)
    }

    /// To be said when all packets of a batch with tickets were handed over.
    pub fn end_of_batch(&mut self) {
        self.waiting.end_of_batch();
    }

    /// Gives suspended calls time, and puts packets that wait no longer into `released`.
    pub fn go_on(&mut self, now: Instant, released: &mut Vec<Released>) {
        while let Some(waiting) = self.waiting.due(now) {
            released.push(Released { waiting, end: None });
        }
        let mut number = 0;
        while let Some(mut backlog) = self.waiting.take_backlog(number) {
            if self.go_on_with(&mut backlog, now, released) {
                self.waiting.put_backlog(number, backlog);
                number += 1;
            }
        }
    }

    /// Whether anything is left.
    fn go_on_with(&mut self, backlog: &mut Backlog, now: Instant, released: &mut Vec<Released>) -> bool {
        for _ in 0..CALLS {
            if backlog.call.place.is_none() && !backlog.begin_call() {
                return false;
            }
            let Some(place) = backlog.call.place else { return false };
            let Some(hosted) = self.instances.get_mut(backlog.instance) else {
                // The instance is gone: what it had goes on without it.
                backlog
                    .call
                    .finish(place.next(), |_, waiting| released.push(Released { waiting, end: None }));
                continue;
            };
            let verdicts = &mut self.verdicts;
            let outcome = go_on_calling(hosted, &mut backlog.call, verdicts, now);
            if outcome == Outcome::Suspended {
                return true;
            }
            let stage = self.paths.stages_at(place.path, place.position).get(usize::from(place.stage));
            let binding = stage.and_then(|stage| self.bindings.get_mut(stage.binding));
            let mut nobody = BindingCounts::default();
            let counts = binding.map_or(&mut nobody, |binding| &mut binding.counts);
            let room = &mut self.waiting;
            backlog.call.finish(place.next(), |number, waiting| {
                let verdict = std::mem::take(&mut verdicts[number]);
                let end = match verdict {
                    _ if outcome == Outcome::Failed => Some(End::Drop(DropReason::PluginFailed)),
                    Verdict::Pass => None,
                    Verdict::Drop => Some(End::Drop(DropReason::Plugin)),
                    Verdict::Consume => Some(End::Consume),
                    Verdict::Hold(until) => return room.hold_packet(until, waiting),
                };
                counts.end(end);
                released.push(Released { waiting, end });
            });
        }
        true
    }

    /// When packets that wait want to go on.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        self.waiting.next_event(now)
    }

    /// How many packets wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no packet waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Hands a control message to an instance; `None` when there is no such instance.
    pub fn control(&mut self, instance: InstanceId, message: &Message, now: Instant) -> Option<Reply> {
        self.instances.control(instance, message, now)
    }

    /// How the instances are that ever failed, and what they did wrong.
    pub fn all_faults(&self) -> impl Iterator<Item = (InstanceId, Faults)> + '_ {
        let faults = |hosted: &Hosted| Faults {
            health: hosted.record.health,
            by_kind: hosted.faults.clone(),
            last: hosted.last_fault.clone(),
        };
        let failed = self.instances.iter().filter(|(_, hosted)| !hosted.faults.is_empty());
        failed.map(move |(id, hosted)| (id, faults(hosted)))
    }

    /// What went through a binding; `None` when there is no such binding.
    pub fn counts(&self, binding: BindingId) -> Option<BindingCounts> {
        Some(self.bindings.get(self.bindings.key(binding.0)?)?.counts)
    }

    /// All bindings with what went through them.
    pub fn all_counts(&self) -> impl Iterator<Item = (BindingId, BindingCounts)> + '_ {
        self.bindings.iter().map(|(slot, binding)| (BindingId(slot), binding.counts))
    }

    /// The gates, in the order in which packets meet them.
    pub fn gates(&self) -> &[WorkerGate<T>] {
        &self.gates
    }

    /// What a path consists of, without the stages that are gone.
    pub fn stages(&self, path: PathId) -> impl Iterator<Item = StageOfPath> + '_ {
        self.paths.stages(path).iter().filter_map(|stage| {
            let binding = self.bindings.get(stage.binding)?;
            let id = BindingId(stage.binding.slot);
            Some(StageOfPath { gate: binding.gate, binding: id, instance: binding.action.instance() })
        })
    }

    /// How many different paths are remembered. Changes leave some behind that no flow uses any more.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// Forgets the paths that are not in use; their ids will stand for others. Not for every batch: it looks at all.
    pub fn collect_paths(&mut self, in_use: impl Fn(PathId) -> bool) {
        self.paths.collect(in_use);
    }
}

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Every packet passes, and was not looked at.
    Untouched,
    /// Verdicts are written.
    Decided,
    /// It goes on later.
    Suspended,
    /// The instance failed, or has failed before.
    Failed,
}

/// Calls an instance with the members of a group.
#[inline]
fn call(hosted: &mut Hosted, group: &mut Group<'_>, now: Instant) -> Outcome {
    if !hosted.is_well(now) {
        return Outcome::Failed;
    }
    let mut packets = Packets::new(group.packets, group.keys, group.members, group.verdicts);
    match hosted.instance.process(&mut packets, now) {
        Progress::Suspended => Outcome::Suspended,
        Progress::Done if packets.is_untouched() => Outcome::Untouched,
        Progress::Done => judged(hosted, now),
    }
}

/// Begins a call with packets that waited, or goes on with it.
fn go_on_calling(hosted: &mut Hosted, call: &mut Call, verdicts: &mut [Verdict], now: Instant) -> Outcome {
    if !hosted.is_well(now) {
        return Outcome::Failed;
    }
    let members: [u16; MOST_WAITING] = std::array::from_fn(|number| number as u16);
    let members = &members[..call.packets.len().min(MOST_WAITING)];
    let mut packets = Packets::new(&mut call.packets, &call.keys, members, verdicts);
    let progress = match call.slices {
        0 => hosted.instance.process(&mut packets, now),
        _ => hosted.instance.resume(&mut packets, now),
    };
    call.slices += 1;
    match progress {
        Progress::Suspended if call.slices > MOST_SLICES => {
            hosted.instance.abort();
            let text = format!("a call took more than {MOST_SLICES} slices");
            hosted.fail(Fault { kind: "overrun", text }, now);
            Outcome::Failed
        }
        Progress::Suspended => Outcome::Suspended,
        Progress::Done => judged(hosted, now),
    }
}

#[inline]
fn judged(hosted: &mut Hosted, now: Instant) -> Outcome {
    match hosted.instance.take_fault() {
        None => Outcome::Decided,
        Some(fault) => {
            hosted.fail(fault, now);
            Outcome::Failed
        }
    }
}

impl Group<'_> {
    /// Takes all members out.
    fn take_all(&mut self, why: Taken) {
        for member in self.members.drain(..) {
            self.verdicts[usize::from(member)] = Verdict::Pass;
            self.taken.push((member, why));
        }
    }

    /// Takes out the members that don't pass.
    fn part(&mut self, counts: &mut BindingCounts, room: &mut WaitingRoom, place: Place) {
        let Self { verdicts, members, taken, .. } = self;
        members.retain(|member| {
            let why = match std::mem::take(&mut verdicts[usize::from(*member)]) {
                Verdict::Pass => return true,
                Verdict::Drop => Taken::End(End::Drop(DropReason::Plugin)),
                Verdict::Consume => Taken::End(End::Consume),
                Verdict::Hold(until) => Taken::Keep(room.hold(until, place)),
            };
            if let Taken::End(end) = why {
                counts.end(Some(end));
            }
            taken.push((*member, why));
            false
        });
    }
}

/// Puts the stages of the path that the winners at the gates make into `found`; returns the binding that takes the place
/// of the route.
fn select(
    winners: impl Iterator<Item = (Position, Option<BindingId>)>,
    bindings: &Slab<Binding>,
    route: Option<i32>,
    found: &mut Vec<Stage>,
) -> Option<BindingId> {
    found.clear();
    let mut primary = None;
    for (position, winner) in winners {
        let Some(id) = winner else { continue };
        let Some(key) = bindings.key(id.0) else { continue };
        let Some(binding) = bindings.get(key) else { continue };
        let Some(step) = binding.step else { continue };
        if position == Position::Route && binding.action.instance().is_none() {
            if primary.is_some() || binding.loses_against(route) {
                continue;
            }
            primary = Some(id);
        }
        found.push(Stage { position, binding: key, step, hears: binding.hears });
    }
    primary
}

#[cfg(test)]
mod tests;
