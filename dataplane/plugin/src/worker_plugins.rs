//! The worker's side: its gates, instances and bindings, and the way of packets through them.

mod driver_forms;
mod hot_swap;
mod resume;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod run;

pub use run::{Group, Stop, Watch};

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_packet::{BATCH_SIZE, DropReason};
use millrace_plugin_abi::{Fault, Message, Position, Progress, Verdict};
use millrace_units::{GateId, InstanceId, Instant, PathId, PortId};

use crate::fault::FaultKind;
use crate::flow_state::{FlowStateBlocks, FlowStateCounts};
use crate::health::Health;
use crate::instances::{Failure, Given, Hosted, Instances, MessageCounts, News};
use crate::path::{Paths, Refusal, Stage, Step};
use crate::pulse::Pulse;
use crate::slab::{Key, Slab};
use crate::waiting::{Answer, Asked, Errand, WaitingRoom};
use crate::{
    Action, BindingCounts, BindingCountsPage, BindingId, BindingTable, CallLimits, GateOrder, Limits,
    PluginChange, Remains,
};

/// Bindings of which none is moved when others come: packets would have to wait for that.
const BINDINGS: usize = 1 << 16;

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

/// Decisions of a binding that a packet could evade by hiding its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// None.
    None,
    /// Its filter names protocol, ports or flags: a packet could choose another queue, port or copy.
    Steers,
    /// It may end a packet: it drops, rejects or polices, or is an instance that does not only get copies.
    Refuses,
}

#[derive(Debug)]
pub(crate) struct Binding {
    pub gate: GateId,
    pub action: Action,
    pub priority: i32,
    /// `None` when the instance was not there: the binding has no effect then.
    pub step: Option<Step>,
    /// Whether it is an instance that is told of the ends of flows.
    pub hears: bool,
    /// Which of its decisions a packet could evade by what it hides.
    pub judgement: Judgement,
    /// Bytes of state that the instance keeps for each flow.
    pub state: u16,
    pub call_limits: CallLimits,
    pub counts: BindingCounts,
}

impl Binding {
    /// Whether a route of that priority, if there is one, counts more.
    pub fn loses_against(&self, route: Option<i32>) -> bool {
        route.is_some_and(|route| self.priority < route)
    }
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

/// What an instance did so far, and how it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstanceReport {
    /// How it is.
    pub health: Health,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened last, in a sentence; empty when nothing did.
    pub last_fault: String,
    /// Slices after which it was stopped in the middle.
    pub suspensions: u64,
    /// Packets that it dropped, by its own reasons.
    pub drops: BTreeMap<u8, u64>,
    /// Its plugin's own counters, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Messages between the halves of its plugin.
    pub messages: MessageCounts,
}

impl InstanceReport {
    fn of(hosted: &Hosted) -> Self {
        let drops = (0..).zip(hosted.drops.iter().copied()).filter(|(_, count)| *count > 0);
        Self {
            health: hosted.record.health,
            faults: hosted.faults.clone(),
            last_fault: hosted.last_fault.clone(),
            suspensions: hosted.suspensions,
            drops: drops.collect(),
            counters: hosted.counters(),
            messages: hosted.messages,
        }
    }

    /// Adds that of the instance at another worker.
    pub fn add(&mut self, other: Self) {
        self.health = self.health.max(other.health);
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if self.last_fault.is_empty() {
            self.last_fault = other.last_fault;
        }
        self.suspensions += other.suspensions;
        self.messages.heard += other.messages.heard;
        self.messages.lost += other.messages.lost;
        self.messages.sent += other.messages.sent;
        self.messages.unsent += other.messages.unsent;
        for (reason, count) in other.drops {
            *self.drops.entry(reason).or_default() += count;
        }
        for (name, count) in other.counters {
            let sum = self.counters.entry(name).or_default();
            *sum = sum.wrapping_add(count);
        }
    }
}

/// The gates, instances and bindings of a worker. `T` is the kind of filter table at each gate.
pub struct WorkerPlugins<T> {
    /// In the order in which packets meet them.
    pub(crate) gates: Vec<WorkerGate<T>>,
    pub(crate) instances: Instances,
    pub(crate) bindings: Slab<Binding>,
    /// Number of bindings that refuse or steer packets.
    pub(crate) judging: usize,
    /// Number of bindings that refuse packets.
    pub(crate) refusing: usize,
    pub(crate) paths: Paths,
    /// Kept for its memory.
    pub(crate) found: Vec<Stage>,
    /// The same.
    pub(crate) winners: Vec<Option<BindingId>>,
    /// The same.
    pub(crate) positions: Vec<Position>,
    pub(crate) waiting: WaitingRoom,
    /// Room for the verdicts of calls that go on.
    pub(crate) verdicts: Vec<Verdict>,
    /// State of flows.
    pub(crate) states: FlowStateBlocks,
    /// Whether any instance has ever kept some.
    pub(crate) keeps_states: bool,
    /// Instances that do something from time to time.
    pub(crate) timed: Vec<Key>,
    /// Whether paths that were found so far may be others now.
    pub(crate) reclassify: bool,
    /// Ports that there are, by number.
    pub(crate) ports: Vec<bool>,
    pub(crate) news: News,
    /// Lists of members, kept for their memory.
    pub(crate) spare: Vec<Vec<u16>>,
    /// How long instances may take for what is no packets.
    pub(crate) errands: CallLimits,
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
            bindings: Slab::with_room(BINDINGS),
            judging: 0,
            refusing: 0,
            paths: Paths::default(),
            found: Vec::new(),
            winners: Vec::new(),
            positions: Vec::new(),
            waiting: WaitingRoom::default(),
            verdicts: vec![Verdict::Pass; BATCH_SIZE],
            states: FlowStateBlocks::default(),
            keeps_states: false,
            timed: Vec::new(),
            reclassify: false,
            ports: Vec::new(),
            news: News::default(),
            spare: Vec::new(),
            errands: CallLimits::OF_ERRANDS,
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
                let has_timers = instance.has_timers();
                self.keeps_states |= instance.flow_state() > 0;
                let old = self.instances.add(id, instance);
                self.timed.extend(self.instances.key(id).filter(|_| has_timers));
                return old.map_or(Remains::Nothing, Remains::Instance);
            }
            PluginChange::Quarantine { id, why } => {
                if let Some(hosted) = self.instances.key(id).and_then(|key| self.instances.get_mut(key)) {
                    hosted.quarantine(why);
                }
            }
            PluginChange::RemoveInstance { id } => {
                return self.instances.remove(id).map_or(Remains::Nothing, Remains::Instance);
            }
            PluginChange::Bind { binding, gate, filter, priority, action, call_limits } => {
                let names_transport = T::names_transport(&filter);
                let insert = |table: &mut T| table.insert(filter, priority, binding);
                self.bind(binding, gate, (priority, call_limits, names_transport), action, insert);
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
            self.take_binding(slot);
        }
        Remains::Table(self.gates.remove(place).table)
    }

    fn bind(
        &mut self,
        id: BindingId,
        gate: GateId,
        (priority, call_limits, names_transport): (i32, CallLimits, bool),
        action: Action,
        insert: impl FnOnce(&mut T),
    ) {
        let Some(found) = self.gates.iter_mut().find(|found| found.id == gate) else { return };
        insert(&mut found.table);
        found.bindings += 1;
        let position = found.position;
        let step = match &action {
            Action::Instance(instance) => self.instances.key(*instance).map(Step::Instance),
            // At the position of the route, the route itself says so.
            Action::Drop if found.position != Position::Route => Some(Step::Refuse(Refusal::Drop)),
            Action::Reject if found.position != Position::Route => Some(Step::Refuse(Refusal::Reject)),
            Action::Queue(queue) => Some(Step::Queue(*queue)),
            Action::Police(_) => Some(Step::Police),
            _ => Some(Step::Count),
        };
        let instance = match step {
            Some(Step::Instance(key)) => self.instances.get_mut(key).map(|hosted| &hosted.instance),
            _ => None,
        };
        let hears = instance.is_some_and(|instance| instance.hears_flow_ends());
        let state = instance.map_or(0, |instance| instance.flow_state().min(u16::MAX.into()) as u16);
        let counts = BindingCounts::default();
        let refuses = match action {
            Action::Drop | Action::Reject | Action::Police(_) => true,
            // What an instance does to copies ends no packet.
            Action::Instance(_) => position != Position::Copy,
            _ => false,
        };
        let judgement = match (refuses, names_transport) {
            (true, _) => Judgement::Refuses,
            (false, true) => Judgement::Steers,
            (false, false) => Judgement::None,
        };
        self.judging += usize::from(judgement != Judgement::None);
        self.refusing += usize::from(judgement == Judgement::Refuses);
        self.bindings.put(
            id.0,
            Binding { gate, action, priority, step, hears, judgement, state, call_limits, counts },
        );
    }

    fn take_binding(&mut self, slot: u32) -> Option<Binding> {
        let binding = self.bindings.take(slot)?;
        self.judging -= usize::from(binding.judgement != Judgement::None);
        self.refusing -= usize::from(binding.judgement == Judgement::Refuses);
        Some(binding)
    }

    fn unbind(&mut self, id: BindingId, filter: T::Filter) {
        let Some(binding) = self.take_binding(id.0) else { return };
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

    /// Hands a control message to an instance. The answer is given to `answer`, now or when the instance has come to it:
    /// `None` when there is no such instance.
    pub fn control(&mut self, instance: InstanceId, message: &Message, now: Instant, answer: Answer) {
        let Self { instances, waiting, news, .. } = self;
        let key = instances.key(instance);
        let Some((key, hosted)) = key.and_then(|key| Some((key, instances.get_mut(key)?))) else {
            return answer(None);
        };
        if waiting.is_busy(key) {
            waiting.ask(key, Asked::Message(message.clone(), answer));
            return;
        }
        match hosted.call(|instance| instance.begin_control(message)) {
            Some(reply) => {
                hosted.has_failed(now, news);
                answer(Some(reply));
            }
            None => waiting.suspend_errand(key, Errand::Control(answer)),
        }
    }

    /// Where the worker says whose code it runs.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.instances.pulse()
    }

    /// Hands an instance a message of the other half of its plugin, now or when it has ended what it is at. What comes to
    /// one that pauses, or for which too many wait, is lost and counted.
    pub fn message(&mut self, instance: InstanceId, bytes: Vec<u8>, now: Instant) {
        let Some(key) = self.instances.key(instance) else { return };
        let taken = match self.waiting.is_busy(key) {
            true => self.waiting.ask(key, Asked::Tell(bytes)),
            false => self.tell(key, &bytes, now),
        };
        if !taken {
            self.count_messages(instance, |messages| messages.lost += 1);
        }
    }

    /// Hands a message to an instance that isn't busy; whether it took it.
    pub(crate) fn tell(&mut self, key: Key, bytes: &[u8], now: Instant) -> bool {
        let Self { instances, waiting, news, .. } = self;
        let Some(hosted) = instances.get_mut(key) else { return false };
        if !hosted.is_well(now, news) {
            return false;
        }
        hosted.messages.heard += 1;
        match hosted.call(|instance| instance.message(bytes)) {
            Progress::Suspended => waiting.suspend_errand(key, Errand::Own),
            Progress::Done => _ = hosted.has_failed(now, news),
        }
        true
    }

    /// Counts messages of an instance.
    pub fn count_messages(&mut self, instance: InstanceId, count: impl FnOnce(&mut MessageCounts)) {
        if let Some(hosted) = self.instances.key(instance).and_then(|key| self.instances.get_mut(key)) {
            count(&mut hosted.messages);
        }
    }

    /// How long instances may take for what is no packets; 10 ms unless it is said otherwise.
    #[must_use]
    pub fn with_errands(mut self, call_limits: CallLimits) -> Self {
        self.errands = call_limits;
        self
    }

    /// What the instances did so far, and how they are.
    pub fn reports(&self) -> impl Iterator<Item = (InstanceId, InstanceReport)> + '_ {
        self.instances.iter().map(|hosted| (hosted.id, InstanceReport::of(hosted)))
    }

    /// A failure of an instance that was not told before.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.news.pop()
    }

    /// Something that an instance gave beside verdicts, the oldest first.
    #[inline]
    pub fn take_given(&mut self) -> Option<Given> {
        self.news.pop_given()
    }

    /// An instance made a packet for a port that there isn't, which is its fault.
    #[cold]
    pub fn fail_for_port(&mut self, instance: InstanceId, port: PortId, now: Instant) {
        let Self { instances, news, .. } = self;
        if let Some(hosted) = instances.key(instance).and_then(|key| instances.get_mut(key)) {
            let text = format!("it made a packet that came in by port {port}, which there isn't");
            hosted.fail(Fault { kind: FaultKind::UnknownPort.name(), text }, now, news);
        }
    }

    /// Says whether there is a port of that number: sending packets to one that there isn't is a fault.
    pub fn set_port(&mut self, port: PortId, is_there: bool) {
        let index = usize::from(port.0);
        if self.ports.len() <= index {
            self.ports.resize(index + 1, false);
        }
        if let Some(port) = self.ports.get_mut(index) {
            *port = is_there;
        }
    }

    /// The state that instances keep for flows.
    pub fn state_counts(&self) -> FlowStateCounts {
        self.states.counts()
    }

    /// What went through a binding; `None` when there is no such binding.
    pub fn counts(&self, binding: BindingId) -> Option<BindingCounts> {
        Some(self.bindings.get(self.bindings.key(binding.0)?)?.counts)
    }

    /// What went through bindings from one on, in the order of their ids: of so many ids at most, and where the next ones begin.
    pub fn counts_from(&self, from: BindingId, most: usize) -> BindingCountsPage {
        let end = self.bindings.end().min(from.0.saturating_add(most as u32));
        let counts = |slot| Some((BindingId(slot), self.bindings.at(slot)?.1.counts));
        let next = (end < self.bindings.end()).then_some(BindingId(end));
        BindingCountsPage { counts: (from.0..end).filter_map(counts).collect(), next }
    }

    /// Has these limits hold for instances from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.instances.set_limits(limits);
    }

    /// Counts from zero what goes through bindings from one on: of so many ids at most. Returns where the next ones begin.
    pub fn clear_counts(&mut self, from: BindingId, most: usize) -> Option<BindingId> {
        let end = self.bindings.end().min(from.0.saturating_add(most as u32));
        for slot in from.0..end {
            let Some(binding) = self.bindings.key(slot).and_then(|key| self.bindings.get_mut(key)) else {
                continue;
            };
            let mut queues = binding.counts.queues;
            queues.clear();
            binding.counts = BindingCounts { queues, ..BindingCounts::default() };
        }
        (end < self.bindings.end()).then_some(BindingId(end))
    }

    /// Counts from zero what instances drop and count.
    pub fn clear_instances(&mut self) {
        self.instances.iter_mut().for_each(Hosted::clear_counts);
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

    /// The bindings of a path that may have dropped a packet for a reason: the first that refuses packets, or the instances.
    pub fn may_drop(&self, path: PathId, reason: DropReason) -> impl Iterator<Item = BindingId> + '_ {
        let by_filter = reason == DropReason::Filter;
        let by_policer = reason == DropReason::Policer;
        let by_instance = matches!(
            reason,
            DropReason::Plugin | DropReason::PluginBusy | DropReason::PluginFailed | DropReason::PluginLoop
        );
        let drops = move |stage: &&Stage| match stage.step {
            Step::Instance(_) => by_instance,
            Step::Refuse(_) => by_filter,
            Step::Count => {
                let action = self.bindings.get(stage.binding).map(|binding| &binding.action);
                by_filter && matches!(action, Some(Action::Drop | Action::Reject))
            }
            Step::Police => by_policer,
            Step::Queue(_) => false,
        };
        let stages = self.paths.stages(path).iter().filter(drops);
        stages.map(|stage| BindingId(stage.binding.slot)).take(if by_filter { 1 } else { usize::MAX })
    }

    /// How many different paths are remembered. Changes leave some behind that no flow uses any more.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }
}

#[cfg(test)]
mod tests;
