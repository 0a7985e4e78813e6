//! Admission of services that arrive and leave one at a time.

use std::collections::BTreeMap;

use super::Algorithm;
use crate::component::{Component, Role};
use crate::impact::{Candidate, Choice};
use crate::norm::Norm;
use crate::part::Part;
use crate::utilization_vector::{Lack, Utilization};

/// Returns the algorithm for arrivals with moves: Balanced, sparing with the largest use by flows of statically
/// scheduled processors. It takes many moves to lower that maximum again, and every later global service lacks it.
///
/// With at most two moves an arrival on the IXP1200 router of VERA, it refuses 1.4 to 1.8 % of arrivals that would fit
/// if everything could move; Balanced with equal weights refuses 2.1 to 2.5 %.
#[must_use]
pub fn algorithm(components: &[Component]) -> Algorithm {
    let weight = |component: &Component| match component.role {
        Role::Port => 0.0,
        Role::Flow => 2.5,
        Role::Global | Role::Total => 0.5,
        _ => 1.2,
    };
    Algorithm::LeastNorm(Norm::Largest, components.iter().map(weight).collect())
}

/// Number of a placed service, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(u64);

/// Promises of a router: every placed service with its choice.
#[derive(Clone, Debug)]
pub struct Promises {
    utilization: Utilization,
    placed: BTreeMap<ServiceId, Placed>,
    next: u64,
}

/// Moves: number of a service and index of its new choice.
pub type Moves = Vec<(ServiceId, usize)>;

/// Most services that are looked at for a move: the latest. It bounds the time of a decision.
const MOST_LOOKED: usize = 512;

/// Placed service.
#[derive(Clone, Debug)]
struct Placed {
    candidate: Candidate,
    choice: usize,
    /// Whether the service may move while it runs.
    movable: bool,
}

/// Admitted service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Number of the service.
    pub id: ServiceId,
    /// Index of its choice.
    pub choice: usize,
    /// Services that move to make room: number and index of the new choice.
    pub moves: Moves,
}

/// Refused service: for each choice the component that lacks most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index of the processor and its lack, in the order of the choices.
    pub lacks: Vec<(usize, Lack)>,
}

impl Promises {
    /// Returns a router that has promised nothing.
    #[must_use]
    pub fn new(components: &[Component]) -> Self {
        Self { utilization: Utilization::new(components), placed: BTreeMap::new(), next: 0 }
    }

    /// Returns the utilisation vector.
    #[must_use]
    pub const fn utilization(&self) -> &Utilization {
        &self.utilization
    }

    /// Returns the placed services with their choices.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &Candidate, usize)> {
        self.placed.iter().map(|(id, placed)| (*id, &placed.candidate, placed.choice))
    }

    /// Places a service by an algorithm. If it fits nowhere, moves up to `most_moves` others.
    ///
    /// # Errors
    /// The service fits nowhere.
    pub fn admit(
        &mut self,
        candidate: Candidate,
        movable: bool,
        algorithm: &Algorithm,
        most_moves: usize,
    ) -> Result<Admitted, Refused> {
        let (choice, moves) = match algorithm.choose(&self.utilization, &candidate) {
            Some(choice) => (choice, Vec::new()),
            None => match self.make_room(&candidate, most_moves) {
                Some(found) => found,
                None => return Err(self.refusal(&candidate)),
            },
        };
        Ok(Admitted { id: self.hold(candidate, choice, movable), choice, moves })
    }

    /// Adds a service at one of its choices, whether it fits or not: a promise that was made before.
    pub fn hold(&mut self, candidate: Candidate, choice: usize, movable: bool) -> ServiceId {
        let id = ServiceId(self.next);
        self.next += 1;
        if let Some(found) = candidate.choices.get(choice) {
            self.utilization.add(&found.impact);
        }
        self.placed.insert(id, Placed { candidate, choice, movable });
        id
    }

    /// Removes a service. Returns whether it was placed.
    pub fn remove(&mut self, id: ServiceId) -> bool {
        let Some(placed) = self.placed.remove(&id) else { return false };
        if let Some(found) = placed.current() {
            self.utilization.remove(&found.impact);
        }
        true
    }

    /// Explains why a service is refused.
    #[must_use]
    pub fn refusal(&self, candidate: &Candidate) -> Refused {
        let lacks = candidate
            .choices
            .iter()
            .filter_map(|choice| Some((choice.processor, self.utilization.lack(&choice.impact)?)));
        Refused { lacks: lacks.collect() }
    }

    /// Moves a placed service to another of its choices, whether it fits or not.
    fn move_to(&mut self, id: ServiceId, to: usize) {
        let Some(placed) = self.placed.get_mut(&id) else { return };
        if let Some(found) = placed.current() {
            self.utilization.remove(&found.impact);
        }
        placed.choice = to;
        if let Some(found) = placed.current() {
            self.utilization.add(&found.impact);
        }
    }

    /// Finds moves that make room for a service, and carries them out: for each of its choices, services leave the
    /// lacking component until the choice fits. Takes the choice with the fewest moves.
    fn make_room(&mut self, candidate: &Candidate, most_moves: usize) -> Option<(usize, Moves)> {
        let mut best: Option<(usize, Moves)> = None;
        for (index, choice) in candidate.choices.iter().enumerate() {
            let most = best.as_ref().map_or(most_moves, |(_, moves)| moves.len().saturating_sub(1));
            if let Some(moves) = self.plan(choice, most) {
                best = Some((index, moves));
            }
        }
        let (choice, moves) = best?;
        for (id, to) in &moves {
            self.move_to(*id, *to);
        }
        Some((choice, moves))
    }

    /// Returns up to `most_moves` moves after which a choice fits. Sums are exact, so that moving there and back
    /// leaves no trace.
    fn plan(&mut self, choice: &Choice, most_moves: usize) -> Option<Moves> {
        let mut moves = Moves::new();
        let mut back = Moves::new();
        let fits = loop {
            let Some(lack) = self.utilization.lack(&choice.impact) else { break true };
            if moves.len() >= most_moves {
                break false;
            }
            let Some((id, to)) = self.best_move(lack, &moves) else { break false };
            let from = self.placed.get(&id).map_or(to, |placed| placed.choice);
            self.move_to(id, to);
            moves.push((id, to));
            back.push((id, from));
        };
        for (id, from) in back.into_iter().rev() {
            self.move_to(id, from);
        }
        fits.then_some(moves)
    }

    /// Returns the move that relieves a component: of moves that relieve it enough, the smallest; else the largest.
    fn best_move(&self, lack: Lack, moved: &[(ServiceId, usize)]) -> Option<(ServiceId, usize)> {
        let trial = &self.utilization;
        let mut best: Option<(Part, ServiceId, usize)> = None;
        let is_free = |id: &ServiceId| !moved.iter().any(|(known, _)| known == id);
        let movable = self.placed.iter().rev().filter(|(id, placed)| placed.movable && is_free(id));
        for (id, placed) in movable.take(MOST_LOOKED) {
            let Some(current) = placed.current() else { continue };
            let before = trial.relief(&current.impact, lack.component);
            if before == Part::ZERO {
                continue;
            }
            for (to, other) in
                placed.candidate.choices.iter().enumerate().filter(|(to, _)| *to != placed.choice)
            {
                let relief = before.less(other.impact.of(lack.component));
                let is_better = match best {
                    None => relief > Part::ZERO,
                    Some((known, ..)) if known >= lack.missing => relief >= lack.missing && relief < known,
                    Some((known, ..)) => relief > known,
                };
                if is_better && trial.fits_instead(&current.impact, &other.impact) {
                    best = Some((relief, *id, to));
                }
            }
        }
        best.map(|(_, id, to)| (id, to))
    }
}

impl Placed {
    fn current(&self) -> Option<&Choice> {
        self.candidate.choices.get(self.choice)
    }
}
