//! Hybrid: one processor first; where the service doesn't fit there, the others by least norm
//! (VERA, section 4.4.2).

use super::{least_norm, ordered};
use crate::impact::Candidate;
use crate::norm::Norm;
use crate::utilization_vector::Utilization;

/// Returns the choice of a service; `None` where it fits nowhere.
#[must_use]
pub fn choose(
    first: usize,
    norm: Norm,
    weights: &[f64],
    utilization: &Utilization,
    candidate: &Candidate,
) -> Option<usize> {
    ordered::choose(&[first], utilization, candidate)
        .or_else(|| least_norm::choose(norm, weights, utilization, candidate))
}
