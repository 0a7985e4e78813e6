//! Ordered: the first processor of an order on which the service fits (VERA, section 4.4.2).

use crate::impact::Candidate;
use crate::utilization_vector::Utilization;

/// Returns the choice of a service; `None` where it fits nowhere.
#[must_use]
pub fn choose(order: &[usize], utilization: &Utilization, candidate: &Candidate) -> Option<usize> {
    order.iter().find_map(|processor| {
        let is_right = |choice: &crate::impact::Choice| {
            choice.processor == *processor && utilization.fits(&choice.impact)
        };
        candidate.choices.iter().position(is_right)
    })
}
