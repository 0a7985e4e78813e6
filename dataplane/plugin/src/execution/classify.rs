//! Classification of a flow: finds its path, the list of bindings that apply to it.

use millrace_plugin_abi::Position;

use crate::execution::bindings::Bindings;
use crate::path::{EMPTY_PATH, Part, Paths, Stage, lay_out};
use crate::{BindingId, BindingTable};
use millrace_units::PathId;

/// Classification result of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classified {
    /// Path of the flow.
    pub path: PathId,
    /// Binding that replaces the route of the flow. Its action is no instance.
    pub primary: Option<BindingId>,
}

/// Classifier of flows: its reused buffers.
#[derive(Default)]
pub(crate) struct Classifier {
    /// Stages of a path.
    found: Vec<Stage>,
    /// Winning bindings of a batch, gate by gate: the winner for each packet at the first gate, then the
    /// winner for each packet at the second gate, and so on.
    winners: Vec<Option<BindingId>>,
    /// Positions of the gates.
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

/// Fills `found` with the path's stages, one for each winning binding. Returns the binding that replaces the
/// route, if any does.
fn select(
    winners: impl Iterator<Item = (Position, Option<BindingId>)>,
    bindings: &Bindings<impl BindingTable>,
    route: Option<i32>,
    found: &mut Vec<Stage>,
) -> Option<BindingId> {
    found.clear();
    let (mut primary, mut keeps_state) = (None, false);
    for (position, winner) in winners {
        let Some(id) = winner else { continue };
        let Some((key, binding)) = bindings.at(id) else { continue };
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
