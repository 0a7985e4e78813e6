//! Admission of services that arrive and leave one at a time.

use std::collections::BTreeMap;

use super::Algorithm;
use crate::component::Component;
use crate::impact::{Candidate, Choice};
use crate::part::Part;
use crate::utilization_vector::{Lack, Utilization};

/// Number of a placed service, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(u64);

/// Promises of a router: every placed service with its choice.
#[derive(Clone, Debug)]
pub struct Promises {
    components: Vec<Component>,
    utilization: Utilization,
    placed: BTreeMap<ServiceId, Placed>,
    next: u64,
}

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
    pub moves: Vec<(ServiceId, usize)>,
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
        Self {
            components: components.to_vec(),
            utilization: Utilization::new(components),
            placed: BTreeMap::new(),
            next: 0,
        }
    }

    /// Returns the utilisation vector.
    #[must_use]
    pub const fn utilization(&self) -> &Utilization {
        &self.utilization
    }

    /// Returns the components with their limits.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
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
            None => self.make_room(&candidate, most_moves).ok_or_else(|| self.refusal(&candidate))?,
        };
        for (id, to) in &moves {
            self.move_to(*id, *to);
        }
        let id = ServiceId(self.next);
        self.next += 1;
        if let Some(found) = candidate.choices.get(choice) {
            self.utilization.add(&found.impact);
        }
        self.placed.insert(id, Placed { candidate, choice, movable });
        Ok(Admitted { id, choice, moves })
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

    /// Finds moves that make room for a service: for each of its choices, the services that use most of the lacking
    /// component and fit elsewhere leave it, until the choice fits.
    fn make_room(
        &self,
        candidate: &Candidate,
        most_moves: usize,
    ) -> Option<(usize, Vec<(ServiceId, usize)>)> {
        let plans = candidate
            .choices
            .iter()
            .enumerate()
            .filter_map(|(index, choice)| Some((index, self.plan(choice, most_moves)?)));
        plans.min_by_key(|(_, moves)| moves.len())
    }

    fn plan(&self, choice: &Choice, most_moves: usize) -> Option<Vec<(ServiceId, usize)>> {
        let mut trial = self.utilization.clone();
        let mut moves: Vec<(ServiceId, usize)> = Vec::new();
        while let Some(lack) = trial.lack(&choice.impact) {
            if moves.len() == most_moves {
                return None;
            }
            let (id, to) = self.best_move(&trial, lack, &moves)?;
            let placed = self.placed.get(&id)?;
            trial.remove(&placed.current()?.impact);
            trial.add(&placed.candidate.choices.get(to)?.impact);
            moves.push((id, to));
        }
        Some(moves)
    }

    /// Returns the move that relieves a component: of moves that relieve it enough, the smallest; else the largest.
    fn best_move(
        &self,
        trial: &Utilization,
        lack: Lack,
        moved: &[(ServiceId, usize)],
    ) -> Option<(ServiceId, usize)> {
        let mut best: Option<(Part, ServiceId, usize)> = None;
        let is_free = |id: &ServiceId| !moved.iter().any(|(known, _)| known == id);
        for (id, placed) in self.placed.iter().filter(|(id, placed)| placed.movable && is_free(id)) {
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
