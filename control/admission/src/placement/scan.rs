//! Scan, the offline algorithm: places the pair of service and processor that leaves the least norm, until no pair
//! fits (VERA, section 4.4.3). Reversed, it places the pair that leaves the largest norm (section 4.5.4).

use super::{Placement, Problem};
use crate::norm::Norm;

/// Places all services that fit. Of equal pairs, the earlier service and the processor nearest to the ports.
#[must_use]
pub fn place(problem: &Problem, norm: Norm, weights: &[f64], reversed: bool) -> Placement {
    let mut placement = problem.nothing();
    let mut open: Vec<usize> = (0..problem.candidates.len()).collect();
    loop {
        let utilization = &placement.utilization;
        let now = norm.now(utilization, weights);
        let mut best: Option<(f64, usize, usize)> = None;
        // Uses only grow: a service that fits nowhere now never fits again.
        open.retain(|&service| {
            let choices = problem.candidates.get(service).map_or(&[][..], |candidate| &candidate.choices);
            let mut fits = false;
            for (index, choice) in choices.iter().enumerate() {
                if !utilization.fits(&choice.impact) {
                    continue;
                }
                fits = true;
                let value = norm.with(now, utilization, &choice.impact, weights);
                let is_better =
                    best.is_none_or(|(known, ..)| if reversed { value > known } else { value < known });
                if is_better {
                    best = Some((value, service, index));
                }
            }
            fits
        });
        let Some((_, service, choice)) = best else { return placement };
        placement.put(problem, service, choice);
        open.retain(|other| *other != service);
    }
}
