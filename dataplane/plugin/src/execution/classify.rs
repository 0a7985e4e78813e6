//! Classification of a flow: finds its path, the list of bindings that apply to it.

use millrace_plugin_abi::{FlowEnd, FlowStates, Position, Progress};
use millrace_units::PathId;

use crate::execution::waiting::Errand;
use crate::execution::worker_plugins::{Binding, WorkerGate, WorkerPlugins};
use crate::flow_state::{FlowStateBlocks, StateRef};
use crate::path::{EMPTY_PATH, Part, Stage, Step, lay_out};
use crate::slab::Slab;
use crate::{Action, BindingId, BindingTable, Health, OnFault};

/// Classification result of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classified {
    /// Path of the flow.
    pub path: PathId,
    /// Binding that replaces the route of the flow. Its action is no instance.
    pub primary: Option<BindingId>,
}

impl<T: BindingTable> WorkerPlugins<T> {
    /// Classifies a packet's flow: selects the winning binding at each gate that has bindings.
    ///
    /// Call this for the first packet of a flow, and again when a change concerns the flow. At gates of the
    /// position `route`, an action that is no instance counts only if its priority is at least `route`.
    /// `route` is the priority of the flow's route, if it has one.
    pub fn classify(&mut self, candidate: &T::Candidate, route: Option<i32>) -> Classified {
        if self.bindings.is_empty() {
            return Classified { path: EMPTY_PATH, primary: None };
        }
        let Self { gates, bindings, paths, found, .. } = self;
        let bound = gates.iter().filter(|gate| gate.bindings() > 0);
        let winners = bound.map(|gate| (gate.position(), gate.table().lookup(candidate)));
        let primary = select(winners, bindings, route, found);
        Classified { path: paths.intern(found), primary }
    }

    /// Classifies many packets. Replaces the contents of `classified` by one result for each packet.
    pub fn classify_batch(
        &mut self,
        candidates: &[T::Candidate],
        routes: &[Option<i32>],
        classified: &mut Vec<Classified>,
    ) {
        classified.clear();
        let Self { gates, bindings, paths, found, winners, positions, .. } = self;
        winners.clear();
        let count = candidates.len();
        positions.clear();
        let mut previous = None;
        for gate in gates.iter().filter(|gate| gate.bindings() > 0) {
            let start = positions.len() * count;
            positions.push(gate.position());
            winners.resize(start + count, None);
            let (known, found) = winners.split_at_mut(start);
            match previous {
                None => gate.table().lookup_batch(candidates, found),
                Some(previous) => {
                    let known = known.get(start - count..).unwrap_or_default();
                    gate.table().lookup_batch_behind(previous, known, candidates, found);
                }
            }
            previous = Some(gate.table());
        }
        for (packet, route) in routes.iter().enumerate() {
            let of_packet = winners.get(packet..).unwrap_or_default().iter().step_by(count.max(1));
            let winners = positions.iter().copied().zip(of_packet.copied());
            let primary = select(winners, bindings, *route, found);
            classified.push(Classified { path: paths.intern(found), primary });
        }
    }

    /// Returns the candidates of [`classify`](Self::classify): each gate that has bindings, with its winning
    /// binding, if any filter matches. The flag states whether the binding loses against the flow's route.
    pub fn winners(
        &self,
        candidate: &T::Candidate,
        route: Option<i32>,
    ) -> impl Iterator<Item = (&WorkerGate<T>, Option<(BindingId, bool)>)> {
        self.gates.iter().filter(|gate| gate.bindings() > 0).map(move |gate| {
            let found = gate.table().lookup(candidate).and_then(|id| {
                let (_, binding) = self.bindings.at(id.0)?;
                let beside_route = gate.position() == Position::Route && binding.action.is_route();
                Some((id, beside_route && binding.loses_against(route)))
            });
            (gate, found)
        })
    }

    /// Returns the action of a binding; `None` if the binding doesn't exist.
    pub fn action(&self, binding: BindingId) -> Option<&Action> {
        Some(&self.bindings.at(binding.0)?.1.action)
    }

    /// Returns the health of a binding's instance, and the treatment of packets while the instance is not
    /// well. Returns `None` for other actions.
    pub fn health(&self, binding: BindingId) -> Option<(Health, OnFault)> {
        let (_, binding) = self.bindings.at(binding.0)?;
        let Some(Step::Instance(key)) = binding.step else { return None };
        Some((self.instances.get(key)?.record.health, binding.call_limits.on_fault))
    }

    /// Whether a packet could evade any binding by hiding its transport header. Such a binding drops, rejects
    /// or polices, is an instance outside copy gates, or has a filter on protocol, ports or flags.
    pub fn judges(&self) -> bool {
        self.judging > 0
    }

    /// Whether any binding may end packets: it drops, rejects or polices, or is an instance outside copy
    /// gates.
    pub fn refuses(&self) -> bool {
        self.refusing > 0
    }

    /// Whether any instance of the path subscribes to the ends of flows.
    #[inline]
    pub fn hears_flow_ends(&self, path: PathId) -> bool {
        !self.paths.hearing(path).is_empty()
    }

    /// Whether any instance keeps state for flows, or has kept state.
    #[inline]
    pub fn keeps_states(&self) -> bool {
        self.keeps_states
    }

    /// Allocates the state block of a flow on `path`. Returns its number, or 0 if the path needs no state or
    /// no memory is left.
    pub fn begin_state(&mut self, path: PathId) -> u32 {
        match self.paths.state(path) {
            0 => 0,
            bytes => self.states.take(bytes),
        }
    }

    /// Returns a reference to a state block, for packets that wait.
    pub fn state_reference(&self, state: u32) -> StateRef {
        self.states.reference(state)
    }

    /// Returns the state block of a reference; 0 if its flow has ended.
    pub fn find_state(&self, reference: StateRef) -> u32 {
        self.states.resolve(reference)
    }

    /// Notifies each instance of the path once that the flow has ended, and releases the flow's state block
    /// `state`.
    pub fn flow_ended(&mut self, path: PathId, flow: &FlowEnd, state: u32) {
        self.flow_moved((path, state), EMPTY_PATH, flow);
    }

    /// Notifies the instances on the path `old` but not on `new` that the flow has ended for them. Returns
    /// the flow's new state block. The state of instances on both paths moves to the new block.
    pub fn flow_moved(&mut self, (old, state): (PathId, u32), new: PathId, flow: &FlowEnd) -> u32 {
        let Self { paths, instances, states, news, waiting, .. } = self;
        let (hearing, stages) = (paths.hearing(old), paths.stages(new));
        for (index, stage) in hearing.iter().enumerate() {
            let is_same = |other: &Stage| other.step == stage.step;
            if stage.hears
                && let Step::Instance(key) = stage.step
                && !hearing.iter().take(index).any(is_same)
                && !stages.iter().any(is_same)
                && let Some(hosted) = instances.get_mut(key)
            {
                let part = stage.part.range();
                let kept = states.block(state).and_then(|block| block.get(part)).unwrap_or_default();
                if hosted.call(|instance| instance.flow_ended(flow, kept)) == Progress::Suspended {
                    waiting.suspend_errand(key, Errand::Own);
                }
                hosted.take_outputs(news);
            }
        }
        let moved = match paths.state(new) {
            0 => 0,
            bytes => states.take(bytes),
        };
        if state != 0 && moved != 0 {
            move_parts(states, (paths.stages(old), state), (stages, moved));
        }
        states.give_back(state);
        moved
    }
}

/// Copies the state of the instances that are on both paths.
fn move_parts(states: &mut FlowStateBlocks, (old, from): (&[Stage], u32), (new, to): (&[Stage], u32)) {
    for stage in new.iter().filter(|stage| stage.part.bytes > 0) {
        if let Some(before) = old.iter().find(|other| other.step == stage.step && other.part.bytes > 0) {
            let bytes = Part::HEADER + usize::from(stage.part.bytes.min(before.part.bytes));
            let start = |part: Part| usize::from(part.offset) - Part::HEADER;
            states.copy((from, start(before.part)), (to, start(stage.part)), bytes);
        }
    }
}

/// Fills `found` with the path's stages, one for each winning binding. Returns the binding that replaces the
/// route, if any does.
fn select(
    winners: impl Iterator<Item = (Position, Option<BindingId>)>,
    bindings: &Slab<Binding>,
    route: Option<i32>,
    found: &mut Vec<Stage>,
) -> Option<BindingId> {
    found.clear();
    let (mut primary, mut keeps_state) = (None, false);
    for (position, winner) in winners {
        let Some(id) = winner else { continue };
        let Some((key, binding)) = bindings.at(id.0) else { continue };
        let Some(step) = binding.step else { continue };
        if position == Position::Route && binding.action.is_route() {
            if primary.is_some() || binding.loses_against(route) {
                continue;
            }
            primary = Some(id);
        }
        let part = Part { offset: 0, bytes: binding.state };
        keeps_state |= binding.state > 0;
        found.push(Stage { position, binding: key, step, hears: binding.hears, part });
    }
    if keeps_state {
        lay_out(found);
    }
    primary
}
