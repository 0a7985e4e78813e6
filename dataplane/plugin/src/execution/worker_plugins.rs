//! Worker side of plugins: gates, instances and bindings, and the run of packets through them.

mod counts;
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

use millrace_packet::BATCH_SIZE;
use millrace_plugin_abi::{Fault, Message, Position, Progress, Verdict};
use millrace_units::{GateId, InstanceId, Instant, PortId};

use crate::execution::health::Health;
use crate::execution::instances::{Failure, Given, Hosted, Instances, MessageCounts, News};
use crate::execution::pulse::Pulse;
use crate::execution::waiting::{Answer, Asked, Errand, WaitingRoom};
use crate::fault::FaultKind;
use crate::flow_state::FlowStateBlocks;
use crate::path::{Paths, Refusal, Stage, Step};
use crate::slab::{Key, Slab};
use crate::{
    Action, BindingCounts, BindingId, BindingTable, CallLimits, GateOrder, Limits, PluginChange, Remains,
};

/// Number of bindings for which memory is reserved. More bindings would move the memory, which delays
/// packets.
const BINDINGS: usize = 1 << 16;

/// Gate with its filter table.
#[derive(Debug)]
pub struct WorkerGate<T> {
    id: GateId,
    position: Position,
    order: GateOrder,
    bindings: u32,
    table: T,
}

impl<T> WorkerGate<T> {
    /// Returns the id of the gate.
    pub fn id(&self) -> GateId {
        self.id
    }

    /// Returns the position of the gate in the journey.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the number of bindings at the gate.
    pub fn bindings(&self) -> u32 {
        self.bindings
    }

    /// Returns the filter table.
    pub fn table(&self) -> &T {
        &self.table
    }
}

/// Effect of a binding that a packet could evade by hiding its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// No such effect.
    None,
    /// The filter names protocol, ports or flags: a packet could choose another queue, port or copy.
    Steers,
    /// The binding may end a packet: it drops, rejects or polices, or is an instance outside copy gates.
    Refuses,
}

#[derive(Debug)]
pub(crate) struct Binding {
    pub gate: GateId,
    pub action: Action,
    pub priority: i32,
    /// Step of the binding; `None` if its instance did not exist when it was bound. It then has no effect.
    pub step: Option<Step>,
    /// Whether the binding's instance subscribes to the ends of flows.
    pub hears: bool,
    /// Effect of the binding that a packet could evade by hiding its transport header.
    pub judgement: Judgement,
    /// Bytes of state that the instance keeps for each flow.
    pub state: u16,
    pub call_limits: CallLimits,
    pub counts: BindingCounts,
}

impl Binding {
    /// Whether the route's priority `route`, if any, exceeds the binding's.
    pub fn loses_against(&self, route: Option<i32>) -> bool {
        route.is_some_and(|route| self.priority < route)
    }
}

/// Stage of a path, for explanations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageOfPath {
    /// Gate of the stage.
    pub gate: GateId,
    /// Winning binding at the gate.
    pub binding: BindingId,
    /// Instance of the binding, if its action is one.
    pub instance: Option<InstanceId>,
}

/// Counters and health of an instance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstanceReport {
    /// Health of the instance.
    pub health: Health,
    /// Number of faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Text of the latest fault; empty without a fault.
    pub last_fault: String,
    /// Number of slices after which the instance was suspended.
    pub suspensions: u64,
    /// Number of packets that the instance dropped, by its own drop reasons.
    pub drops: BTreeMap<u8, u64>,
    /// Counters of its plugin, by name.
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

    /// Adds the report of the instance at another worker.
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

/// Gates, instances and bindings of a worker. `T` is the type of the gates' filter tables.
pub struct WorkerPlugins<T> {
    /// Gates in the order in which packets pass them.
    pub(crate) gates: Vec<WorkerGate<T>>,
    pub(crate) instances: Instances,
    pub(crate) bindings: Slab<Binding>,
    /// Number of bindings that refuse or steer packets.
    pub(crate) judging: usize,
    /// Number of bindings that refuse packets.
    pub(crate) refusing: usize,
    /// Paths of flows.
    pub paths: Paths,
    /// Reused buffer of found stages.
    pub(crate) found: Vec<Stage>,
    /// Reused buffer of winning bindings.
    pub(crate) winners: Vec<Option<BindingId>>,
    /// Reused buffer of positions.
    pub(crate) positions: Vec<Position>,
    pub(crate) waiting: WaitingRoom,
    /// Buffer for the verdicts of resumed calls.
    pub(crate) verdicts: Vec<Verdict>,
    /// Flow states.
    pub(crate) states: FlowStateBlocks,
    /// Whether any instance has ever kept flow state.
    pub(crate) keeps_states: bool,
    /// Instances with timers.
    pub(crate) timed: Vec<Key>,
    /// Whether a change may have altered the paths of known flows.
    pub(crate) reclassify: bool,
    /// Existence of each port, by port number.
    pub(crate) ports: Vec<bool>,
    pub(crate) news: News,
    /// Reused lists of members.
    pub(crate) spare: Vec<Vec<u16>>,
    /// Limits of calls without packets.
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
    /// Creates a worker side without gates and instances: even the default gates arrive as changes.
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

    /// Applies a change that the control side has checked, between two batches.
    ///
    /// Paths found before the change stay valid: they skip removed bindings and instances, and don't contain
    /// new ones.
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
            // At the position `route`, the route itself drops or rejects.
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
            // An instance at a copy gate handles copies only, and so ends no packet.
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

    /// Replaces the table of a gate by an equivalent table, and returns the old one.
    pub fn set_table(&mut self, gate: GateId, table: T) -> T {
        match self.gates.iter_mut().find(|found| found.id == gate) {
            Some(found) => std::mem::replace(&mut found.table, table),
            None => table,
        }
    }

    /// Sends a control message to an instance. `answer` receives the reply, now or after the instance's
    /// current call. It receives `None` if the instance doesn't exist.
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

    /// Returns the words in which the worker publishes the instance that it runs.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.instances.pulse()
    }

    /// Sends an instance a message of the other half of its plugin, now or after its current call. A message
    /// is lost and counted if the instance pauses or too many messages wait.
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

    /// Sends a message to an idle instance. Returns whether the instance took it.
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

    /// Updates the message counters of an instance.
    pub fn count_messages(&mut self, instance: InstanceId, count: impl FnOnce(&mut MessageCounts)) {
        if let Some(hosted) = self.instances.key(instance).and_then(|key| self.instances.get_mut(key)) {
            count(&mut hosted.messages);
        }
    }

    /// Sets the limits of calls without packets; 10 ms by default.
    #[must_use]
    pub fn with_errands(mut self, call_limits: CallLimits) -> Self {
        self.errands = call_limits;
        self
    }

    /// Returns the reports of all instances.
    pub fn reports(&self) -> impl Iterator<Item = (InstanceId, InstanceReport)> + '_ {
        self.instances.iter().map(|hosted| (hosted.id, InstanceReport::of(hosted)))
    }

    /// Removes and returns the latest failure of an instance.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.news.pop()
    }

    /// Removes and returns the earliest output of an instance.
    #[inline]
    pub fn take_given(&mut self) -> Option<Given> {
        self.news.pop_given()
    }

    /// Records the fault that an instance made a packet with an unknown incoming port.
    #[cold]
    pub fn fail_for_port(&mut self, instance: InstanceId, port: PortId, now: Instant) {
        let Self { instances, news, .. } = self;
        if let Some(hosted) = instances.key(instance).and_then(|key| instances.get_mut(key)) {
            let text = format!("the instance made a packet with the unknown ingress port {port}");
            hosted.fail(Fault { kind: FaultKind::UnknownPort.name(), text }, now, news);
        }
    }

    /// Sets whether a port exists: sending a packet to an unknown port is a fault.
    pub fn set_port(&mut self, port: PortId, is_there: bool) {
        let index = usize::from(port.0);
        if self.ports.len() <= index {
            self.ports.resize(index + 1, false);
        }
        if let Some(port) = self.ports.get_mut(index) {
            *port = is_there;
        }
    }

    /// Sets the limits of all present and future instances.
    pub fn set_limits(&mut self, limits: Limits) {
        self.instances.set_limits(limits);
    }

    /// Returns the gates, in the order in which packets pass them.
    pub fn gates(&self) -> &[WorkerGate<T>] {
        &self.gates
    }
}

#[cfg(test)]
mod tests;
