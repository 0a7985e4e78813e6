//! Gates of a worker, and their bindings.

use std::fmt;
use std::sync::Arc;

use millrace_plugin_abi::Position;
use millrace_units::{Cycles, GateId, PrincipalId};

use crate::execution::instances::BoundInstance;
use crate::offload_steps::OffloadSteps;
use crate::path::{Refusal, Stage, Step};
use crate::policer::Policer;
use crate::slab::{Key, Slab};
use crate::{Action, BindingCounts, BindingCountsPage, BindingId, BindingTable, CallLimits, GateOrder};

/// Number of bindings for which memory is reserved. A binding beyond this number makes the worker move all
/// bindings to larger memory, which delays packets.
const BINDINGS: usize = 1 << 16;

/// Number of calls in line in a row that may take much longer than their bound.
const MOST_BEYOND: u8 = 8;
/// Cycles that a call may take beyond its bound, because the worker has slept before it.
const AFTER_SLEEP: u64 = 50_000;

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

    /// Returns the position of the gate in the pipeline.
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

/// Influence of a binding on packets. A packet could evade this influence by hiding its transport header, for
/// example by fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The binding has no influence that a packet could evade in this way.
    None,
    /// The binding's filter names protocol, ports or flags. By hiding these fields, a packet could get
    /// another queue, port or copy.
    Steers,
    /// The binding may end a packet: it drops, rejects or polices, or is an instance outside copy gates.
    Refuses,
}

#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub gate: GateId,
    pub action: Action,
    pub priority: i32,
    /// Step of the binding in paths. `None` if its instance didn't exist when the binding was added; the
    /// binding then has no effect.
    pub step: Option<Step>,
    /// Whether the binding's instance subscribes to ends of flows.
    pub hears: bool,
    /// Influence of the binding on packets that could hide their transport header.
    pub judgement: Judgement,
    /// Bytes of state that the instance keeps for each flow.
    pub state: u16,
    /// Whether the state of the instance belongs to connections.
    pub tracks: bool,
    pub call_limits: CallLimits,
    pub counts: BindingCounts,
    /// Place of the gate in the order of all gates.
    pub order: u32,
    /// Moving average of the cycles of a packet that a principal paid for; 0 before the first.
    pub cost: u64,
    /// Number of latest calls in line that took much longer than their bound. At [`MOST_BEYOND`], packets wait
    /// until the binding is made anew or changed.
    pub beyond: u8,
}

impl Binding {
    /// Whether the calls of the instance run in line, whoever pays.
    #[inline]
    pub fn runs_in_line(&self) -> bool {
        self.call_limits.in_line.is_some() && self.beyond < MOST_BEYOND
    }

    /// Notes the cycles of `packets` packets that have waited for the processor.
    #[inline]
    pub fn note_cost(&mut self, used: u64, packets: u64) {
        let cost = (used / packets.max(1)).max(1);
        self.cost = match self.cost {
            0 => cost,
            before => (before.saturating_mul(7).saturating_add(cost) / 8).max(1),
        };
    }

    /// Notes the cycles of a call in line with `packets` packets.
    #[inline]
    pub fn note_in_line(&mut self, used: u64, packets: u64) {
        if let Some(most) = self.call_limits.in_line.filter(|_| self.beyond < MOST_BEYOND) {
            // The system may have given the processor to others during one call, but hardly during each of several.
            let is_beyond = used > AFTER_SLEEP + CallLimits::BOUNDS * u64::from(most) * packets.max(1);
            self.beyond = if is_beyond { self.beyond + 1 } else { 0 };
        }
    }

    /// Returns the instance of the binding at this worker; `None` without one. After an upgrade, the stages of earlier
    /// paths may name another one.
    #[inline]
    pub fn instance(&self) -> Option<Key> {
        match self.step {
            Some(Step::Instance(key)) => Some(key),
            _ => None,
        }
    }

    /// Returns the instance of the binding, with the principal that pays for its calls; `None` without an instance.
    pub fn paid_instance(&self) -> Option<(Key, Option<PrincipalId>)> {
        Some((self.instance()?, self.call_limits.principal))
    }
}

impl Judgement {
    /// Returns the influence of a binding with this action at a position. `names_transport` states whether
    /// the binding's filter names protocol, ports or flags.
    fn of(action: &Action, position: Position, names_transport: bool) -> Self {
        let refuses = match action {
            Action::Drop | Action::Reject | Action::Police(_) => true,
            // An instance at a copy gate handles copies only, and so ends no packet.
            Action::Instance(_) => position != Position::Copy,
            _ => false,
        };
        match (refuses, names_transport) {
            (true, _) => Self::Refuses,
            (false, true) => Self::Steers,
            (false, false) => Self::None,
        }
    }
}

/// Gates of a worker in the order in which packets pass them, and the bindings at them. `T` is the type of
/// the gates' filter tables.
pub struct Bindings<T> {
    gates: Vec<WorkerGate<T>>,
    slab: Slab<Binding>,
    /// Number of bindings whose judgement is `Refuses` or `Steers`.
    judging: usize,
    /// Number of bindings whose judgement is `Refuses`.
    refusing: usize,
    /// Whether a change may have altered the paths of known flows.
    reclassify: bool,
    /// Number of this worker.
    worker: u16,
    /// Number of bindings whose packets another worker must take.
    handing: usize,
}

impl<T> fmt::Debug for Bindings<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings")
            .field("gates", &self.gates.len())
            .field("bindings", &self.slab)
            .finish_non_exhaustive()
    }
}

/// Gate, filter, priority, action and call limits of a new binding.
pub(crate) struct NewBinding<F> {
    pub gate: GateId,
    pub filter: F,
    pub priority: i32,
    pub action: Action,
    pub call_limits: CallLimits,
}

impl<T: BindingTable> Bindings<T> {
    pub(crate) fn new() -> Self {
        let slab = Slab::with_room(BINDINGS);
        Self { gates: Vec::new(), slab, judging: 0, refusing: 0, reclassify: false, worker: 0, handing: 0 }
    }

    /// Sets the number of this worker. To be called before the first binding.
    pub fn set_worker(&mut self, number: u16) {
        self.worker = number;
    }

    /// Whether there is a binding whose packets another worker must take.
    #[inline]
    pub fn hands_over(&self) -> bool {
        self.handing > 0
    }

    /// Returns the gates, in the order in which packets pass them.
    pub fn gates(&self) -> &[WorkerGate<T>] {
        &self.gates
    }

    /// Replaces the table of a gate by an equivalent table, and returns the old one.
    pub fn set_table(&mut self, gate: GateId, table: T) -> T {
        match self.gates.iter_mut().find(|found| found.id == gate) {
            Some(found) => std::mem::replace(&mut found.table, table),
            None => table,
        }
    }

    /// Whether there is a binding that a packet could evade by hiding its transport header.
    ///
    /// Such a binding drops, rejects or polices, is an instance outside copy gates, or has a filter on
    /// protocol, ports or flags.
    pub fn judges(&self) -> bool {
        self.judging > 0
    }

    /// Whether there is a binding that may end packets: it drops, rejects or polices, or is an instance
    /// outside copy gates.
    pub fn refuses(&self) -> bool {
        self.refusing > 0
    }

    /// Whether a change may have altered the paths of known flows. Resets the answer to `false`: call it once
    /// after each change.
    pub fn take_reclassify(&mut self) -> bool {
        std::mem::take(&mut self.reclassify)
    }

    /// Returns the action of a binding; `None` if the binding doesn't exist.
    pub fn action(&self, binding: BindingId) -> Option<&Action> {
        Some(&self.slab.at(binding.0)?.1.action)
    }

    /// Returns the token bucket that an offloaded path polices with; `None` if it has none, or if the binding
    /// no longer exists.
    pub fn offload_policer(&self, steps: &OffloadSteps) -> Option<&Arc<Policer>> {
        let word = *steps.bindings.get(usize::from(steps.polices_at?))?;
        match &self.get(Key::from_word(word))?.action {
            Action::Police(policer) => Some(policer),
            _ => None,
        }
    }

    /// Returns the counts of a binding; `None` if the binding doesn't exist.
    pub fn counts(&self, binding: BindingId) -> Option<BindingCounts> {
        Some(self.slab.get(self.slab.key(binding.0)?)?.counts)
    }

    /// Returns a page of binding counts: those of all bindings among the `most` ids that begin at `from`.
    pub fn counts_from(&self, from: BindingId, most: usize) -> BindingCountsPage {
        let end = self.slab.end().min(from.0.saturating_add(most as u32));
        let counts = |slot| Some((BindingId(slot), self.slab.at(slot)?.1.counts));
        let next = (end < self.slab.end()).then_some(BindingId(end));
        BindingCountsPage { counts: (from.0..end).filter_map(counts).collect(), next }
    }

    /// Resets the counts of all bindings among the `most` ids that begin at `from`. Returns the id at which
    /// to continue; `None` after the last binding.
    pub fn clear_counts(&mut self, from: BindingId, most: usize) -> Option<BindingId> {
        let end = self.slab.end().min(from.0.saturating_add(most as u32));
        for slot in from.0..end {
            let Some(binding) = self.slab.key(slot).and_then(|key| self.slab.get_mut(key)) else {
                continue;
            };
            let mut queues = binding.counts.queues;
            queues.clear();
            binding.counts = BindingCounts { queues, ..BindingCounts::default() };
        }
        (end < self.slab.end()).then_some(BindingId(end))
    }

    /// Notes the cycles of `packets` packets that ran from a stage at which they had waited. `binding`: key of
    /// its binding, as a number.
    #[inline]
    pub fn note_cost(&mut self, binding: u64, Cycles(used): Cycles, packets: u64) {
        if let Some(binding) = self.get_mut(Key::from_word(binding)) {
            binding.note_cost(used, packets);
        }
    }

    /// Adds a gate without bindings.
    pub(crate) fn add_gate(&mut self, id: GateId, position: Position, order: GateOrder) {
        let place = self.gates.partition_point(|gate| (gate.position, gate.order) <= (position, order));
        self.gates.insert(place, WorkerGate { id, position, order, bindings: 0, table: T::default() });
    }

    /// Removes a gate with its bindings, which `removed` gets, and returns its filter table.
    pub(crate) fn remove_gate(&mut self, id: GateId, removed: impl FnMut(Binding)) -> Option<T> {
        let place = self.gates.iter().position(|gate| gate.id == id)?;
        let orphans: Vec<_> =
            self.slab.iter().filter(|(_, binding)| binding.gate == id).map(|(slot, _)| slot).collect();
        orphans.into_iter().filter_map(|slot| self.take(slot)).for_each(removed);
        Some(self.gates.remove(place).table)
    }

    /// Adds a binding. `instance` is `None` if the action is no instance, or if its instance doesn't exist.
    pub(crate) fn bind(
        &mut self,
        id: BindingId,
        new: NewBinding<T::Filter>,
        instance: Option<BoundInstance>,
    ) {
        let NewBinding { gate, filter, priority, action, call_limits } = new;
        let names_transport = T::names_transport(&filter);
        let Some(found) = self.gates.iter_mut().find(|found| found.id == gate) else { return };
        found.table.insert(filter, priority, id);
        found.bindings += 1;
        let (step, instance) = step_at(self.worker, (&action, found.position), instance, &call_limits);
        self.handing += usize::from(hands_over(step));
        let judgement = Judgement::of(&action, found.position, names_transport);
        self.judging += usize::from(judgement != Judgement::None);
        self.refusing += usize::from(judgement == Judgement::Refuses);
        let (hears, state, tracks) = kept_by(instance);
        let order = found.order.among_all(found.position);
        self.slab.put(
            id.0,
            Binding {
                gate,
                action,
                priority,
                step,
                hears,
                judgement,
                state,
                tracks,
                call_limits,
                counts: BindingCounts::default(),
                order,
                cost: 0,
                beyond: 0,
            },
        );
    }

    /// Removes a binding by its id, and its filter from the gate's table. Returns the binding.
    pub(crate) fn unbind(&mut self, id: BindingId, filter: T::Filter) -> Option<Binding> {
        let binding = self.take(id.0)?;
        if let Some(gate) = self.gates.iter_mut().find(|gate| gate.id == binding.gate) {
            gate.table.remove(filter, id);
            gate.bindings -= 1;
        }
        Some(binding)
    }

    /// Changes the priority and the call limits of a binding. Its key stays, so that it keeps its packets. Returns the
    /// binding as it was. `instance` as for [`bind`](Self::bind).
    pub(crate) fn renew(
        &mut self,
        id: BindingId,
        (filter, priority): (T::Filter, i32),
        call_limits: CallLimits,
        instance: Option<BoundInstance>,
    ) -> Option<Binding> {
        let binding = self.slab.get_mut(self.slab.key(id.0)?)?;
        let gate = self.gates.iter_mut().find(|gate| gate.id == binding.gate)?;
        gate.table.insert(filter, priority, id);
        let before = binding.clone();
        let (step, instance) = step_at(self.worker, (&binding.action, gate.position), instance, &call_limits);
        self.handing -= usize::from(hands_over(before.step));
        self.handing += usize::from(hands_over(step));
        (binding.hears, binding.state, binding.tracks) = kept_by(instance);
        (binding.step, binding.priority) = (step, priority);
        (binding.call_limits, binding.beyond) = (call_limits, 0);
        Some(before)
    }

    /// Updates all bindings of an instance after an upgrade: `old` is the key of the replaced instance, `new`
    /// describes the successor.
    pub(crate) fn rebind(&mut self, old: Key, new: BoundInstance) {
        let BoundInstance { key, hears, state, tracks } = new;
        for binding in self.slab.iter_mut().filter(|binding| binding.step == Some(Step::Instance(old))) {
            let before = (binding.hears, binding.state, binding.tracks);
            self.reclassify |= before != (hears, state, tracks) || key != old;
            (binding.hears, binding.state, binding.tracks) = (hears, state, tracks);
            binding.step = Some(Step::Instance(key));
        }
    }

    fn take(&mut self, slot: u32) -> Option<Binding> {
        let binding = self.slab.take(slot)?;
        self.judging -= usize::from(binding.judgement != Judgement::None);
        self.refusing -= usize::from(binding.judgement == Judgement::Refuses);
        self.handing -= usize::from(hands_over(binding.step));
        Some(binding)
    }

    /// Whether there is no binding.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Returns the binding with this id, and its key.
    #[inline]
    pub(crate) fn at(&self, id: BindingId) -> Option<(Key, &Binding)> {
        self.slab.at(id.0)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Binding> {
        self.slab.get(key)
    }

    /// Returns the payer that a filter on the path gives to a stage; `None` without such a filter, or if it was
    /// removed.
    #[inline]
    pub(crate) fn payer_of_path(&self, stage: &Stage) -> Option<PrincipalId> {
        stage.payer.and_then(|filter| self.get(filter)?.call_limits.principal)
    }

    /// Returns the principal that pays for the calls of a stage; `None` for a stage without an instance, or
    /// without a payer.
    #[inline]
    pub(crate) fn payer(&self, stage: &Stage) -> Option<PrincipalId> {
        let Step::Instance(_) = stage.step else { return None };
        self.get(stage.binding)?.call_limits.payer(self.payer_of_path(stage))
    }

    /// Returns the rank of a stage's gate if its binding was removed; `None` while the binding exists.
    pub(crate) fn rank_of_ended(&self, stage: &Stage) -> Option<u32> {
        self.get(stage.binding).is_none().then_some(stage.order)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Binding> {
        self.slab.get_mut(key)
    }
}

/// Returns the step of a binding at the worker of this number, and its instance if this worker runs it.
fn step_at(
    worker: u16,
    (action, position): (&Action, Position),
    instance: Option<BoundInstance>,
    call_limits: &CallLimits,
) -> (Option<Step>, Option<BoundInstance>) {
    match call_limits.worker.filter(|other| instance.is_some() && *other != worker) {
        Some(other) => (Some(Step::HandOver(other)), None),
        None => (step_of(action, position, instance, call_limits), instance),
    }
}

/// Whether another worker takes the packets of a step.
fn hands_over(step: Option<Step>) -> bool {
    matches!(step, Some(Step::HandOver(_)))
}

/// Returns whether an instance subscribes to ends of flows, its bytes of state for each flow, and whether its state
/// belongs to connections.
fn kept_by(instance: Option<BoundInstance>) -> (bool, u16, bool) {
    instance.map_or((false, 0, false), |instance| (instance.hears, instance.state, instance.tracks))
}

/// Returns the step that carries out an action at a position; `None` for an instance that doesn't exist.
fn step_of(
    action: &Action,
    position: Position,
    instance: Option<BoundInstance>,
    call_limits: &CallLimits,
) -> Option<Step> {
    match action {
        Action::Instance(_) => instance.map(|instance| Step::Instance(instance.key)),
        // At the position `route`, the route itself drops or rejects.
        Action::Drop if position != Position::Route => Some(Step::Refuse(Refusal::Drop)),
        Action::Reject if position != Position::Route => Some(Step::Refuse(Refusal::Reject)),
        Action::Queue(queue) => Some(Step::Queue(*queue)),
        Action::Police(_) => Some(Step::Police),
        Action::Principal(_) => Some(Step::Principal(call_limits.link_queue)),
        _ => Some(Step::Count),
    }
}
