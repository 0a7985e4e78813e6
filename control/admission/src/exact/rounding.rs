//! Rounding of the relaxed model, with a certificate of the distance to the optimum.
//!
//! A basic solution of the relaxed model splits few services: at most as many as there are bounded components
//! (Shmoys and Tardos, "An approximation algorithm for the generalized assignment problem", 1993, use the same fact).

use super::{ExactError, Solver};
use crate::exact::model::Model;
use crate::placement::Problem;
use crate::placement::improve::improve;
use crate::placement::prices::Certified;

/// Places services by the relaxed model: the most definite choice first, then by one move each.
///
/// # Errors
/// The solver gave no answer.
pub fn place(problem: &Problem, solver: Solver, seconds: f64) -> Result<Certified, ExactError> {
    let mut values = Model::new(problem, None, false).values(solver, seconds)?;
    values.chosen.sort_by(|(.., one), (.., other)| other.total_cmp(one));
    let mut placement = problem.nothing();
    for (service, choice, _) in values.chosen {
        let found = problem.candidates.get(service).and_then(|candidate| candidate.choices.get(choice));
        if found.is_some_and(|found| placement.utilization.fits(&found.impact)) {
            placement.put(problem, service, choice);
        }
    }
    improve(problem, &mut placement);
    // The conversion saturates. The relaxed optimum bounds every placement.
    let bound =
        if values.finished { (values.objective + 1e-6).floor() as usize } else { problem.candidates.len() };
    Ok(Certified { bound: bound.max(placement.count()), placement })
}
