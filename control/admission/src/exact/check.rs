//! Slow and obvious check of a placement: adds everything up anew, one component at a time.

use crate::component::Role;
use crate::part::Part;
use crate::placement::Problem;
use crate::utilization_vector::Utilization;

/// Limit that a placement exceeds, or choice that a service doesn't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Component above its limit.
    #[error("{component} is used to {used}, above its limit of {limit}")]
    Exceeded {
        /// Name of the component.
        component: String,
        /// Promised share.
        used: Part,
        /// Limit.
        limit: Part,
    },
    /// Choice that a service doesn't have.
    #[error("service {0} has no such choice")]
    Choice(usize),
}

/// Returns the use of each component by a placement, computed from scratch.
///
/// # Errors
/// A service has a choice that doesn't exist.
pub fn uses(problem: &Problem, choices: &[Option<usize>]) -> Result<Vec<Part>, Fault> {
    let mut impacts = Vec::new();
    for (service, choice) in choices.iter().enumerate() {
        let Some(choice) = choice else { continue };
        let candidate = problem.candidates.get(service).ok_or(Fault::Choice(service))?;
        impacts.push(&candidate.choices.get(*choice).ok_or(Fault::Choice(service))?.impact);
    }
    let sum = |component: usize| {
        let parts = impacts.iter().flat_map(|impact| &impact.sums).filter(|(index, _)| *index == component);
        parts.fold(Part::ZERO, |sum, (_, part)| sum.plus(*part).unwrap_or(Part::UNBOUNDED))
    };
    let largest = |component: usize| {
        let parts = impacts.iter().filter_map(|impact| impact.flow).filter(|(index, _)| *index == component);
        parts.map(|(_, part)| part).max().unwrap_or_default()
    };
    let used = |(index, role): (usize, Role)| match role {
        Role::Flow => largest(index),
        Role::Total => sum(index).plus(largest(index - 1)).unwrap_or(Part::UNBOUNDED),
        _ => sum(index),
    };
    Ok(problem.components.iter().map(|component| component.role).enumerate().map(used).collect())
}

/// Checks that a placement exceeds no limit, and returns its utilisation vector.
///
/// # Errors
/// The first component that exceeds its limit, or a choice that doesn't exist.
pub fn add_up(problem: &Problem, choices: &[Option<usize>]) -> Result<Utilization, Fault> {
    for (component, used) in problem.components.iter().zip(uses(problem, choices)?) {
        if used > component.limit {
            return Err(Fault::Exceeded { component: component.name.clone(), used, limit: component.limit });
        }
    }
    let mut utilization = Utilization::new(&problem.components);
    for (candidate, choice) in problem.candidates.iter().zip(choices) {
        if let Some(found) = choice.and_then(|choice| candidate.choices.get(choice)) {
            utilization.add(&found.impact);
        }
    }
    Ok(utilization)
}
