//! L2-Norm and Balanced: the processor that leaves the least norm of the utilisation vector (VERA, section 4.4.2).
//! L2-Norm takes the Euclidean norm, Balanced the maximum.

use crate::impact::Candidate;
use crate::norm::Norm;
use crate::utilization_vector::Utilization;

/// Returns the choice of a service; `None` where it fits nowhere. Of equal choices, the processor nearest to the
/// ports.
#[must_use]
pub fn choose(
    norm: Norm,
    weights: &[f64],
    utilization: &Utilization,
    candidate: &Candidate,
) -> Option<usize> {
    let now = norm.now(utilization, weights);
    let fitting = candidate.choices.iter().enumerate().filter(|(_, choice)| utilization.fits(&choice.impact));
    let norms = fitting.map(|(index, choice)| (index, norm.with(now, utilization, &choice.impact, weights)));
    norms.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(index, _)| index)
}
