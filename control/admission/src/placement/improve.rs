//! Local search: makes room for a refused service by moving one placed service.

use super::{Placement, Problem};

/// Moved services: index of the service and of its new choice.
pub type Moves = Vec<(usize, usize)>;

/// Places refused services as long as each needs at most one move. Returns the number of placed services.
pub fn improve(problem: &Problem, placement: &mut Placement) -> usize {
    let mut placed = 0;
    while let Some(service) = insert_one(problem, placement) {
        debug_assert!(placement.choices.get(service).is_some_and(Option::is_some));
        placed += 1;
    }
    placed
}

fn insert_one(problem: &Problem, placement: &mut Placement) -> Option<usize> {
    let refused: Vec<usize> = (0..placement.choices.len())
        .filter(|service| placement.choices.get(*service) == Some(&None))
        .collect();
    refused.into_iter().find(|service| insert(problem, placement, *service).is_some())
}

/// Places a service, and moves at most one other. Returns the moves; `None` where that isn't enough.
pub fn insert(problem: &Problem, placement: &mut Placement, service: usize) -> Option<Moves> {
    let choices = problem.candidates.get(service).map_or(&[][..], |candidate| &candidate.choices);
    let fitting = choices.iter().position(|choice| placement.utilization.fits(&choice.impact));
    if let Some(choice) = fitting {
        placement.put(problem, service, choice);
        return Some(Moves::new());
    }
    for (index, choice) in choices.iter().enumerate() {
        for other in 0..placement.choices.len() {
            let Some((lack, old)) =
                placement.utilization.lack(&choice.impact).zip(impact(problem, placement, other))
            else {
                continue;
            };
            let relieves = old.of(lack.component) >= lack.missing || old.flow.is_some();
            if !relieves || other == service {
                continue;
            }
            let Some(from) = placement.take(problem, other) else { continue };
            if placement.utilization.fits(&choice.impact) {
                placement.put(problem, service, index);
                if let Some(to) = elsewhere(problem, placement, other, from) {
                    placement.put(problem, other, to);
                    return Some(vec![(other, to)]);
                }
                placement.take(problem, service);
            }
            placement.put(problem, other, from);
        }
    }
    None
}

/// Returns the impact of a placed service.
fn impact<'a>(
    problem: &'a Problem,
    placement: &Placement,
    service: usize,
) -> Option<&'a crate::impact::Impact> {
    let choice = (*placement.choices.get(service)?)?;
    Some(&problem.candidates.get(service)?.choices.get(choice)?.impact)
}

/// Returns another choice that fits.
fn elsewhere(problem: &Problem, placement: &Placement, service: usize, from: usize) -> Option<usize> {
    let choices = &problem.candidates.get(service)?.choices;
    let fits = |(index, choice): (usize, &crate::impact::Choice)| {
        (index != from && placement.utilization.fits(&choice.impact)).then_some(index)
    };
    choices.iter().enumerate().find_map(fits)
}
