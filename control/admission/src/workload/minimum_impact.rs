//! Smallest impact of a service, by which the size of workloads is measured (VERA, section 4.5.2).

use crate::component::Component;
use crate::impact::{Candidate, Choice};
use crate::part::Part;
use crate::utilization_vector::Utilization;

/// Returns the smallest impact of a service: for each component, the smallest of all choices that fit an empty
/// router.
#[must_use]
pub fn minimum_impact(candidate: &Candidate, components: &[Component]) -> Vec<Part> {
    let empty = Utilization::new(components);
    let fitting: Vec<&Choice> =
        candidate.choices.iter().filter(|choice| empty.fits(&choice.impact)).collect();
    let smallest =
        |component| fitting.iter().map(|choice| choice.impact.of(component)).min().unwrap_or_default();
    (0..components.len()).map(smallest).collect()
}
