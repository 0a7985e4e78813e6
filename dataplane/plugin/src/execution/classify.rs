//! Classification of a flow: finds its path, the list of bindings that apply to it.

use millrace_plugin_abi::Position;
use millrace_units::{GateId, PathId, QueueId};

use crate::execution::bindings::{Binding, Bindings};
use crate::path::{EMPTY_PATH, Part, Paths, Stage, Step, lay_out};
use crate::slab::Key;
use crate::{Action, BindingId, BindingTable};

/// Classification result of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classified {
    /// Path of the flow.
    pub path: PathId,
    /// Binding whose action replaces the flow's route; its action is no instance. `None` if the route stays.
    pub primary: Option<BindingId>,
}

/// Effect of a gate's winning binding on a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The binding is a stage of the flow's path.
    Stage,
    /// The binding is a stage of the flow's path, and its action replaces the route.
    Route,
    /// The binding has no effect: an earlier gate has replaced the route.
    RouteChosen,
    /// The binding has no effect: the priority of the flow's route is higher.
    BelowRoute,
    /// The binding has no effect: its instance didn't exist when the binding was added.
    Inert,
}

impl Standing {
    /// Returns the effect of the winning binding of a gate at `position`, from the binding's action and
    /// priority. `chosen` states whether an earlier gate has replaced the route. `route` is the priority of
    /// the flow's route, if it has one.
    #[inline(always)]
    pub fn of(
        position: Position,
        action: &Action,
        priority: i32,
        (chosen, route): (bool, Option<i32>),
    ) -> Self {
        if position != Position::Route || !action.is_route() {
            return Self::Stage;
        }
        match chosen {
            true => Self::RouteChosen,
            false if route.is_some_and(|route| priority < route) => Self::BelowRoute,
            false => Self::Route,
        }
    }
}

/// Winning binding of a gate for a flow, as `lookup` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateResult {
    /// Gate.
    pub gate: GateId,
    /// Position of the gate in the pipeline.
    pub position: Position,
    /// Number of bindings at the gate.
    pub bindings: u32,
    /// Winning binding and its effect; `None` if no filter matches.
    pub winner: Option<(BindingId, Standing)>,
    /// Stage of the winning binding in the flow's path; `None` if it has no effect.
    pub(crate) stage: Option<Stage>,
}

/// Selection of the winning bindings that take effect, gate by gate.
struct Selection {
    /// Priority of the flow's route, if it has one.
    route: Option<i32>,
    /// Binding that replaces the route; `None` if no gate has replaced it yet.
    primary: Option<BindingId>,
}

impl Selection {
    /// Evaluates the winning binding of the next gate. Returns the binding with its effect; `None` if the
    /// binding doesn't exist.
    #[inline(always)]
    fn meet<'a, T: BindingTable>(
        &mut self,
        bindings: &'a Bindings<T>,
        position: Position,
        id: BindingId,
    ) -> Option<(Key, &'a Binding, Standing)> {
        let (key, binding) = bindings.at(id)?;
        let standing = match binding.step {
            None => Standing::Inert,
            Some(_) => {
                let before = (self.primary.is_some(), self.route);
                Standing::of(position, &binding.action, binding.priority, before)
            }
        };
        if standing == Standing::Route {
            self.primary = Some(id);
        }
        Some((key, binding, standing))
    }
}

/// Returns the winning binding of each gate that has bindings. Creates no path.
pub(crate) fn results<T: BindingTable>(
    bindings: &Bindings<T>,
    candidate: &T::Candidate,
    route: Option<i32>,
) -> Vec<GateResult> {
    let (mut selection, mut found) = (Selection { route, primary: None }, Vec::new());
    let bound = bindings.gates().iter().filter(|gate| gate.bindings() > 0);
    let result = bound.map(|gate| {
        let winner = gate.table().lookup(candidate).and_then(|id| {
            let (key, binding, standing) = selection.meet(bindings, gate.position(), id)?;
            found.extend(stage_of(gate.position(), (key, binding, standing)));
            Some((id, standing))
        });
        let (gate, position, bindings) = (gate.id(), gate.position(), gate.bindings());
        GateResult { gate, position, bindings, winner, stage: None }
    });
    let mut results: Vec<GateResult> = result.collect();
    give_principal(&mut found, bindings);
    for result in &mut results {
        let id = result.winner.map(|(id, _)| id.0);
        result.stage = found.iter().find(|stage| Some(stage.binding.slot) == id).copied();
    }
    results
}

/// Classifier of flows, with reused buffers.
#[derive(Default)]
pub(crate) struct Classifier {
    /// Stages of the current flow's path.
    found: Vec<Stage>,
    /// Winning bindings of a batch: for each packet its winner at the first gate, then for each packet its
    /// winner at the second gate, and so on.
    winners: Vec<Option<BindingId>>,
    /// Position of each gate that has bindings.
    positions: Vec<Position>,
}

impl Classifier {
    /// Classifies a packet's flow: selects the winning binding at each gate that has bindings.
    pub fn classify<T: BindingTable>(
        &mut self,
        bindings: &Bindings<T>,
        paths: &mut Paths,
        candidate: &T::Candidate,
        route: Option<i32>,
    ) -> Classified {
        if bindings.is_empty() {
            return Classified { path: EMPTY_PATH, primary: None };
        }
        let bound = bindings.gates().iter().filter(|gate| gate.bindings() > 0);
        let winners = bound.map(|gate| (gate.position(), gate.table().lookup(candidate)));
        let primary = select(winners, bindings, route, &mut self.found);
        Classified { path: paths.intern(&self.found), primary }
    }

    /// Classifies many packets. Replaces the contents of `classified` by one result for each packet.
    pub fn classify_batch<T: BindingTable>(
        &mut self,
        bindings: &Bindings<T>,
        paths: &mut Paths,
        (candidates, routes): (&[T::Candidate], &[Option<i32>]),
        classified: &mut Vec<Classified>,
    ) {
        classified.clear();
        let Self { found, winners, positions } = self;
        winners.clear();
        let count = candidates.len();
        positions.clear();
        let mut previous = None;
        for gate in bindings.gates().iter().filter(|gate| gate.bindings() > 0) {
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
}

/// Fills `found` with the path's stages, one for each winning binding that takes effect. Returns the binding
/// that replaces the route; `None` if the route stays.
fn select(
    winners: impl Iterator<Item = (Position, Option<BindingId>)>,
    bindings: &Bindings<impl BindingTable>,
    route: Option<i32>,
    found: &mut Vec<Stage>,
) -> Option<BindingId> {
    found.clear();
    let mut selection = Selection { route, primary: None };
    let (mut keeps_state, mut has_principal) = (false, false);
    for (position, winner) in winners {
        let met = winner.and_then(|id| selection.meet(bindings, position, id));
        let Some(stage) = met.and_then(|met| stage_of(position, met)) else { continue };
        keeps_state |= stage.part.bytes > 0;
        has_principal |= matches!(stage.step, Step::Principal(_));
        found.push(stage);
    }
    if keeps_state {
        lay_out(found);
    }
    if has_principal {
        give_principal(found, bindings);
    }
    selection.primary
}

/// Returns the stage of a gate's winning binding; `None` if the binding has no effect.
#[inline(always)]
fn stage_of(position: Position, (key, binding, standing): (Key, &Binding, Standing)) -> Option<Stage> {
    let (Standing::Stage | Standing::Route) = standing else { return None };
    let part = Part { offset: 0, bytes: binding.state, payer: binding.call_limits.principal };
    let Binding { order, hears, tracks, .. } = *binding;
    Some(Stage { position, order, binding: key, step: binding.step?, hears, tracks, part, payer: None })
}

/// Gives the principal of the path's last filter with a principal to the bindings that name none. If a binding
/// names a principal, the packets get the queue of that one.
fn give_principal<T: BindingTable>(stages: &mut [Stage], bindings: &Bindings<T>) {
    let gives = |stage: &Stage| matches!(stage.step, Step::Principal(_));
    let Some(filter) = stages.iter().rfind(|stage| gives(stage)).map(|stage| stage.binding) else { return };
    let names = |stage: &Stage| {
        matches!(stage.step, Step::Instance(_))
            && bindings.get(stage.binding).is_some_and(|binding| binding.call_limits.names_principal())
    };
    let principal = bindings.get(filter).and_then(|filter| filter.call_limits.principal);
    let is_queued = stages.iter().any(|stage| stage.position != Position::Copy && names(stage));
    for stage in stages {
        match stage.step {
            Step::Instance(_) => {
                if !names(stage) {
                    stage.part.payer = principal;
                }
                // The binding may name a principal later, or none.
                stage.payer = Some(filter);
            }
            Step::Principal(_) if stage.binding != filter => stage.step = Step::Count,
            Step::Principal(_) if is_queued => stage.step = Step::Principal(QueueId(0)),
            _ => {}
        }
    }
}
