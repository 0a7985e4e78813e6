//! Worker side of plugins: gates, instances and bindings, and the passage of packets through them.

mod connections;
mod offload_steps;
mod run;

use std::fmt;

use millrace_packet::DropReason;
use millrace_plugin_abi::{Backlogs, FlowEnd, FlowStates, Message, Position, Progress, StateScope};
use millrace_units::{InstanceId, Instant, PathId, PortId, PrincipalId, QueueAccount, QueueId};

use crate::execution::bindings::{Bindings, NewBinding};
use crate::execution::calls::{Calls, Resumption, Stop};
use crate::execution::classify::{Classified, Classifier, GateResult, results};
use crate::execution::instances::{ContextKey, Instances};
use crate::execution::succession::{Successed, Successor};
use crate::execution::waiting::{Answers, Asked, Errand, Released, each_answer};
use crate::flow_state::FlowStateBlocks;
use crate::path::{EMPTY_PATH, Part, Paths, Refusal, Stage, Step, parts};
use crate::{
    Action, BindingId, BindingTable, CallLimits, Health, OnFault, PluginChange, ProcessorWait, Remains,
};

pub use connections::ConnectionKeepers;

/// Treatment of packets by a binding, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingTreatment {
    /// An instance handles the packets.
    Instance {
        /// Health of the instance.
        health: Health,
        /// Treatment of packets while the instance pauses or is in quarantine.
        on_fault: OnFault,
        /// Wait for the processor before the instance; `None` if the worker calls it at once.
        wait: Option<ProcessorWait>,
        /// Principal that is charged for the calls, which run in line.
        charged: Option<PrincipalId>,
        /// Queue of the packets that have none yet; 0 for none.
        link_queue: QueueId,
    },
    /// The filter drops or rejects the packets.
    Refuse(Refusal),
    /// The filter selects the queue of the packets.
    Queue(QueueId),
    /// The filter gives the path this principal. Packets without a queue get this queue; 0 for none.
    Principal(PrincipalId, QueueId),
    /// The filter's token bucket drops the excess packets.
    Police {
        /// Rate in bits per second.
        rate: u64,
        /// Burst in bytes.
        burst: u32,
    },
    /// The binding lets the packets pass. If the binding has an action, the flow's route or the stage that
    /// makes copies carries out the action.
    Count,
}

/// Gates, instances and bindings of a worker. `T` is the type of the gates' filter tables.
pub struct WorkerPlugins<T> {
    /// Gates and bindings.
    pub bindings: Bindings<T>,
    /// Paths of flows.
    pub paths: Paths,
    pub(crate) calls: Calls,
    classifier: Classifier,
}

impl<T> fmt::Debug for WorkerPlugins<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPlugins")
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
    /// Creates an empty worker side. The default gates are missing, too: control adds them by changes.
    pub fn new() -> Self {
        Self {
            bindings: Bindings::new(),
            paths: Paths::default(),
            calls: Calls::default(),
            classifier: Classifier::default(),
        }
    }

    /// Sets the limits of errands (calls without packets); 10 ms by default.
    #[must_use]
    pub fn with_errands(mut self, call_limits: CallLimits) -> Self {
        self.calls.errands = call_limits;
        self
    }

    /// Returns the instances.
    #[inline]
    pub fn instances(&self) -> &Instances {
        &self.calls.instances
    }

    /// Returns the instances, for their outputs, counts and limits.
    #[inline]
    pub fn instances_mut(&mut self) -> &mut Instances {
        &mut self.calls.instances
    }

    /// Returns the flow states.
    #[inline]
    pub fn flow_states(&self) -> &FlowStateBlocks {
        &self.calls.states
    }

    /// Whether any instance keeps flow state, or has kept it.
    #[inline]
    pub fn keeps_states(&self) -> bool {
        self.calls.states.is_used()
    }

    /// Whether the path has stages at a position.
    #[inline]
    pub fn has_stages(&self, path: PathId, position: Position) -> bool {
        !self.paths.stages_at(path, position).is_empty()
    }

    /// Applies a change between two batches. Control has checked the change.
    ///
    /// Paths found before the change stay valid: they skip removed bindings and instances, and don't contain
    /// new ones. A binding that changes in place stays on them.
    pub fn apply(&mut self, change: PluginChange<T::Filter>) -> Remains<T> {
        let Self { bindings, calls, .. } = self;
        let Calls { instances, states, connections, .. } = calls;
        match change {
            PluginChange::AddGate { gate, position, order } => bindings.add_gate(gate, position, order),
            PluginChange::GiveStates { id, states: given } => connections.give(id.0.into(), given),
            PluginChange::RemoveGate { gate } => {
                let removed = bindings.remove_gate(gate, |binding| calls.note_binding(&binding, false));
                return removed.map_or(Remains::Nothing, Remains::Table);
            }
            PluginChange::AddInstance { id, instance } => {
                let tracks = instance.state_scope() == StateScope::Connection;
                let bytes = instance.flow_state();
                states.expect(if tracks { 0 } else { bytes });
                let old = connections.put(id.0.into(), tracks.then_some(bytes));
                return Remains::of(instances.add(id, instance), Vec::from_iter(old));
            }
            PluginChange::AddContext { id, instance } => {
                return Remains::of(instances.add_context(id, instance), Vec::new());
            }
            PluginChange::Quarantine { id, why } => instances.quarantine(id, &why),
            PluginChange::RemoveInstance { id } => {
                return Remains::of(instances.remove(id), connections.remove(id.0.into()));
            }
            PluginChange::Bind { binding, gate, filter, priority, action, call_limits } => {
                let instance = action.instance().and_then(|id| instances.bound(id));
                bindings.bind(binding, NewBinding { gate, filter, priority, action, call_limits }, instance);
                if let Some((_, binding)) = bindings.at(binding) {
                    calls.note_binding(binding, true);
                }
            }
            PluginChange::Rebind { binding, filter, priority, call_limits, .. } => {
                let id = bindings.action(binding).and_then(Action::instance);
                let instance = id.and_then(|id| instances.bound(id));
                let before = bindings.renew(binding, (filter, priority), call_limits, instance);
                if let Some((before, (_, after))) = before.zip(bindings.at(binding)) {
                    // In this order, a principal that pays as before keeps its pace.
                    calls.note_binding(after, true);
                    calls.note_binding(&before, false);
                }
            }
            PluginChange::Unbind { binding, filter, .. } => {
                if let Some(binding) = bindings.unbind(binding, filter) {
                    calls.note_binding(&binding, false);
                }
            }
        }
        Remains::Nothing
    }

    /// Sets whether a port exists. A verdict that names a port which doesn't exist is a fault.
    pub fn set_port(&mut self, port: PortId, is_there: bool) {
        self.calls.ports.set(port, is_there);
    }

    /// Sends a control message to each context of an instance. `answer` receives the replies in the order of
    /// the contexts, now or after the contexts' current calls. It receives `None` if the instance doesn't exist.
    pub fn control(&mut self, id: InstanceId, message: &Message, now: Instant, answer: Answers) {
        let Some(instance) = self.calls.instances.key(id) else { return answer(None) };
        let answers = each_answer(self.calls.instances.contexts(instance), answer);
        for (number, answer) in (0..).zip(answers) {
            let context = ContextKey { instance, number };
            if self.calls.waiting.is_busy(context) {
                self.calls.waiting.ask(context, Asked::Message(message.clone(), answer));
            } else if let Some(errand) = self.calls.begin_control(context, message, now, answer) {
                self.calls.waiting.suspend_errand(context, errand);
            }
        }
    }

    /// Sends each context of an instance a message of its host companion, now or after its current call. If a
    /// context pauses or too many messages wait, its message is lost and counted as lost.
    pub fn message(&mut self, id: InstanceId, bytes: Vec<u8>, now: Instant) {
        let Some(instance) = self.calls.instances.key(id) else { return };
        for number in 0..self.calls.instances.contexts(instance) {
            let context = ContextKey { instance, number };
            if !self.calls.waiting.is_busy(context) {
                if self.calls.tell(context, &bytes, now) != Progress::Done {
                    self.calls.waiting.suspend_errand(context, Errand::Own);
                }
            } else if !self.calls.waiting.ask(context, Asked::Tell(bytes.clone())) {
                self.calls.instances.count_messages(id, |messages| messages.lost += 1);
            }
        }
    }

    /// Replaces an instance by a successor: now, or as soon as none of its contexts has a running call. `told`
    /// receives the result, with the copies that are no longer needed. It must pass them to another thread,
    /// because dropping them may take long.
    pub fn succeed(&mut self, id: InstanceId, successor: Successor, now: Instant, told: Successed) {
        self.calls.succeed(id, successor, &mut self.bindings, now, told);
    }

    /// Classifies a packet's flow: selects the winning binding at each gate that has bindings.
    ///
    /// Call this for the first packet of a flow, and again when a change concerns the flow. `route` is the
    /// priority of the flow's route, if it has one. At gates of the position `route`, an action other than an
    /// instance takes effect only if its priority is at least `route`.
    pub fn classify(&mut self, candidate: &T::Candidate, route: Option<i32>) -> Classified {
        self.classifier.classify(&self.bindings, &mut self.paths, candidate, route)
    }

    /// Classifies many packets. Replaces the contents of `classified` by one result for each packet.
    pub fn classify_batch(
        &mut self,
        candidates: &[T::Candidate],
        routes: &[Option<i32>],
        classified: &mut Vec<Classified>,
    ) {
        let Self { bindings, paths, classifier, .. } = self;
        classifier.classify_batch(bindings, paths, (candidates, routes), classified);
    }

    /// Returns the winning binding of each gate for a packet's flow, as [`classify`](Self::classify) selects
    /// it. Creates no path.
    pub fn gate_results(&self, candidate: &T::Candidate, route: Option<i32>) -> Vec<GateResult> {
        results(&self.bindings, candidate, route)
    }

    /// Returns the treatment of packets by the winning binding of a gate at the time `now`; `None` if the
    /// binding has no effect.
    pub fn treatment(&self, result: &GateResult, now: Instant) -> Option<BindingTreatment> {
        let stage = result.stage?;
        let binding = self.bindings.get(stage.binding)?;
        Some(match stage.step {
            Step::Instance(_) | Step::HandOver(_) => {
                let key = self.calls.instances.key(binding.action.instance()?)?;
                let health = self.calls.instances.get(key)?.health(now);
                let limits = binding.call_limits;
                let payer = self.bindings.payer(&stage).filter(|_| self.calls.is_scheduled);
                let (wait, charged) = (self.calls.wait(payer, binding), self.calls.charged(payer, binding));
                let CallLimits { on_fault, link_queue, .. } = limits;
                BindingTreatment::Instance { health, on_fault, wait, charged, link_queue }
            }
            Step::Refuse(refusal) => BindingTreatment::Refuse(refusal),
            Step::Queue(queue) => BindingTreatment::Queue(queue),
            Step::Principal(queue) => match binding.action {
                Action::Principal(principal) => BindingTreatment::Principal(principal, queue),
                _ => BindingTreatment::Count,
            },
            Step::Police => match &binding.action {
                Action::Police(policer) => {
                    BindingTreatment::Police { rate: policer.rate(), burst: policer.burst() }
                }
                _ => BindingTreatment::Count,
            },
            Step::Count => BindingTreatment::Count,
        })
    }

    /// Returns the stages of a path, without removed bindings.
    pub fn stages(&self, path: PathId) -> impl Iterator<Item = Stop> + '_ {
        self.paths.stages(path).iter().filter_map(|stage| {
            let binding = self.bindings.get(stage.binding)?;
            let payer = self.bindings.payer(stage).filter(|_| self.calls.is_scheduled);
            Some(Stop::of(stage, binding, self.calls.charged(payer, binding)))
        })
    }

    /// Returns the bindings of a path that may have dropped a packet for `reason`. If `reason` means a drop
    /// by a filter, returns only the first binding that drops or rejects. If the table of connections refused the packet,
    /// returns the first binding with an instance that needs connections.
    pub fn may_drop(&self, path: PathId, reason: DropReason) -> impl Iterator<Item = BindingId> + '_ {
        let by_filter = reason == DropReason::Filter;
        let by_policer = reason == DropReason::Policer;
        let by_instance = matches!(
            reason,
            DropReason::Plugin | DropReason::PluginBusy | DropReason::PluginFailed | DropReason::PluginLoop
        );
        let by_table = matches!(reason, DropReason::ConnectionTableFull | DropReason::ConnectionSourceFull);
        let drops = move |stage: &&Stage| match stage.step {
            Step::Instance(_) => by_instance || by_table && stage.tracks,
            Step::Refuse(_) => by_filter,
            Step::Count => {
                let action = self.bindings.get(stage.binding).map(|binding| &binding.action);
                by_filter && matches!(action, Some(Action::Drop | Action::Reject))
            }
            Step::Police => by_policer,
            Step::Queue(_) | Step::Principal(_) | Step::HandOver(_) => false,
        };
        let stages = self.paths.stages(path).iter().filter(drops);
        stages.map(|stage| BindingId(stage.binding.slot)).take(if by_filter || by_table {
            1
        } else {
            usize::MAX
        })
    }

    /// Returns the actions of a path's bindings at `position`. Each action comes with the key of its binding,
    /// as a number.
    pub fn actions_at(&self, path: PathId, position: Position) -> impl Iterator<Item = (u64, &Action)> + '_ {
        let stages = self.paths.stages_at(path, position).iter();
        stages.filter_map(|stage| Some((stage.binding.to_word(), &self.bindings.get(stage.binding)?.action)))
    }

    /// Calls `count` with the queue account of each binding on the accounting path `account`.
    #[inline]
    pub fn count(&mut self, account: PathId, count: impl Fn(&mut QueueAccount)) {
        let Self { paths, bindings, .. } = self;
        for stage in paths.stages(account) {
            if let Some(binding) = bindings.get_mut(stage.binding) {
                count(&mut binding.counts.queues);
            }
        }
    }

    /// Frees some of the unused paths. Call this once in each iteration. `waiting`: paths of the packets that
    /// wait outside, such as for the processor.
    #[inline]
    pub fn collect_paths(&mut self, waiting: impl Iterator<Item = PathId>, now: Instant) {
        if self.paths.wants_collection(now) {
            self.paths.collect(now, self.calls.waiting.paths().chain(waiting));
        }
    }

    /// Allocates the state block of a flow on `path`. Returns its number, or 0 if the path needs no state, no
    /// memory is left, or no principal that pays for a part has any left.
    pub fn begin_state(&mut self, path: PathId) -> u32 {
        let Self { paths, calls: Calls { states, memory, .. }, .. } = self;
        let bytes = paths.state(path);
        if bytes == 0 {
            return 0;
        }
        let parts = parts(paths.stages(path));
        if !memory.charge(parts.clone()) {
            states.refuse();
            return 0;
        }
        let number = states.take(bytes);
        if number == 0 {
            memory.release(parts);
        }
        number
    }

    /// Notifies each subscribed instance of the path once that the flow has ended, and releases the flow's
    /// state block `state`.
    pub fn flow_ended(&mut self, path: PathId, flow: &FlowEnd, state: u32) {
        self.flow_moved((path, state), EMPTY_PATH, flow);
    }

    /// Moves a flow from the path `old` to the path `new`, and returns the number of its new state block.
    ///
    /// Subscribed instances on `old` but not on `new` are notified that the flow has ended. The state of
    /// instances on both paths moves to the new block. If all parts keep their places, the block stays.
    pub fn flow_moved(&mut self, (old, state): (PathId, u32), new: PathId, flow: &FlowEnd) -> u32 {
        let Self { paths, calls: Calls { instances, states, waiting, .. }, .. } = self;
        let (hearing, stages) = (paths.hearing(old), paths.stages(new));
        for (index, stage) in hearing.iter().enumerate() {
            let is_same = |other: &Stage| other.step == stage.step;
            if stage.hears
                && let Step::Instance(key) = stage.step
                && !hearing.iter().take(index).any(is_same)
                && !stages.iter().any(is_same)
                && let context = instances.context_of(key, &flow.key)
                && let Some((hosted, news)) = instances.get_mut(context)
            {
                let part = stage.part.range();
                let kept = states.block(state).and_then(|block| block.get(part)).unwrap_or_default();
                if waiting.hands_over(key) {
                    // The state may be saved already.
                    waiting.keep_end(context, *flow, kept);
                    continue;
                }
                if hosted.call(|instance| instance.flow_ended(flow, kept)) != Progress::Done {
                    waiting.suspend_errand(context, Errand::Own);
                }
                hosted.take_outputs(news);
            }
        }
        if state != 0 {
            let Self { paths, calls: Calls { states, memory, .. }, .. } = self;
            let (before, after) = (paths.stages(old), paths.stages(new));
            memory.release(parts(before));
            if kept_parts(before).eq(kept_parts(after)) {
                // Waiting packets of the flow find the block.
                if memory.charge(parts(after)) {
                    return state;
                }
                states.refuse();
                states.give_back(state);
                return 0;
            }
        }
        let moved = self.begin_state(new);
        let Self { paths, calls: Calls { states, .. }, .. } = self;
        if state != 0 && moved != 0 {
            move_parts(states, (paths.stages(old), state), (paths.stages(new), moved));
        }
        states.give_back(state);
        moved
    }

    /// Runs each suspended call of the running principal for a slice, and moves its packets into `released`.
    /// During core work, also calls instances whose timer is due, and releases packets whose wait is over.
    /// `queues` reports queue backlogs.
    pub fn resume(&mut self, now: Instant, queues: &dyn Backlogs, released: &mut Vec<Released>) {
        let Self { bindings, paths, calls, .. } = self;
        Resumption { calls, paths, bindings, queues, released, now }.run();
    }

    /// Releases the packets held for a removed instance or binding. Call this once after changes and before
    /// the next batch; otherwise packets of the next batch, which no longer wait, would overtake the held
    /// packets.
    pub fn release_orphans(&mut self) {
        let Self { bindings, paths, calls: Calls { waiting, instances, .. }, .. } = self;
        waiting.held.let_go(|holder, place| {
            let stage = place.before().and_then(|held_at| {
                paths.stages_at(held_at.path, held_at.position).get(usize::from(held_at.stage))
            });
            let is_bound = stage.is_some_and(|stage| bindings.get(stage.binding).is_some());
            !is_bound || instances.key(InstanceId(holder as u16)).is_none()
        });
    }

    /// Returns the time at which the worker must act next: now if a call is suspended or a process runs the call of a
    /// shadow, otherwise the earliest time of a held packet, a timer or the end of a pause. `None` if nothing is
    /// pending.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let Calls { instances, waiting, .. } = &self.calls;
        let shadow = instances.awaits().then_some(now);
        instances.next_event().into_iter().chain(waiting.next_event(now)).chain(shadow).min()
    }

    /// Returns the number of waiting packets.
    pub fn waiting(&self) -> usize {
        self.calls.waiting.len()
    }

    /// Whether no packet waits, no instance has timers or a pause, and no process runs the call of a shadow.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.calls.waiting.is_empty() && self.calls.instances.is_idle()
    }
}

/// Returns the instances of stages that keep state for a flow, with the places of their parts.
fn kept_parts(stages: &[Stage]) -> impl Iterator<Item = (Step, std::ops::Range<usize>)> {
    let kept = stages.iter().filter(|stage| stage.part.bytes > 0);
    kept.map(|stage| (stage.step, stage.part.range()))
}

/// Copies the flow state of each instance that is on both paths, from block `from` to block `to`.
fn move_parts(states: &mut FlowStateBlocks, (old, from): (&[Stage], u32), (new, to): (&[Stage], u32)) {
    for stage in new.iter().filter(|stage| stage.part.bytes > 0) {
        if let Some(before) = old.iter().find(|other| other.step == stage.step && other.part.bytes > 0) {
            let bytes = Part::HEADER + usize::from(stage.part.bytes.min(before.part.bytes));
            let start = |part: Part| usize::from(part.offset) - Part::HEADER;
            states.copy((from, start(before.part)), (to, start(stage.part)), bytes);
        }
    }
}

#[cfg(test)]
mod tests;
