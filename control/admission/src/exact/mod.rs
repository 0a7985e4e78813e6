//! Exact reference: the largest number of services that any placement can place, by a mixed-integer model.
//!
//! The largest use by flows of a statically scheduled processor makes the relaxed model weak. So each of its levels is a
//! model of its own, and only those are solved whose relaxed model leaves hope for more services.
//!
//! The solver is never trusted: [`check`] adds its answer up anew, and a bound from prices must not be below it.

pub mod check;
mod model;
pub mod rounding;

use crate::placement::prices::{self, Certified};
use crate::placement::{Placement, Problem};
use model::{Ceiling, Model, ceilings};

pub use model::Solver;

/// Answer of the exact reference.
#[derive(Clone, Debug)]
pub struct Exact {
    /// Best placement found.
    pub placement: Placement,
    /// Number of services that no placement exceeds, as far as proved.
    pub bound: usize,
    /// Proof that the placement is a largest one.
    pub proof: Proof,
}

/// Proof that no placement places more services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The bound by prices equals the number of placed services.
    Prices,
    /// The solver finished its search.
    Solver,
    /// None: the solver's time ended.
    None,
}

/// Failure of the exact reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExactError {
    /// Solver without an answer.
    #[error("the solver gave no answer: {0}")]
    Solver(String),
    /// Answer that exceeds a limit.
    #[error("the solver's answer is wrong: {0}")]
    Wrong(#[from] check::Fault),
    /// Answers that contradict each other.
    #[error("a placement has {placed} services, and the bound of all placements is {bound}")]
    Contradiction {
        /// Services of a placement, by prices or by the solver.
        placed: usize,
        /// Bound of the other one.
        bound: usize,
    },
}

/// Places as many services as possible. The model is solved only where the certificate of [`prices::place`] leaves
/// the answer open. `seconds` limits the time of the solver.
///
/// # Errors
/// The solver gave no answer, or one that a check refuses.
pub fn place(problem: &Problem, solver: Solver, seconds: f64) -> Result<Exact, ExactError> {
    let known = prices::place(problem);
    if known.placement.count() == known.bound {
        return Ok(Exact { placement: known.placement, bound: known.bound, proof: Proof::Prices });
    }
    solve(problem, &known, solver, seconds)
}

/// Solves the model, without regard to a certificate that may already answer. The search begins at the placement of
/// `known`: only more services count. No answer may be beyond its bound.
///
/// # Errors
/// The solver gave no answer, or one that a check refuses.
pub fn solve(
    problem: &Problem,
    known: &Certified,
    solver: Solver,
    seconds: f64,
) -> Result<Exact, ExactError> {
    let mut best = known.placement.clone();
    let cases = cases(problem, solver, seconds)?;
    contradiction(best.count(), cases.first().map_or(0, |(_, most)| *most))?;
    let mut open = 0;
    for (ceiling, most) in cases {
        if most <= best.count() {
            break;
        }
        let (choices, finished) =
            Model::new(problem, ceiling, true).beyond(best.count()).solve(solver, seconds)?;
        let utilization = check::add_up(problem, &choices)?;
        let answer = Placement { choices, utilization };
        if !finished {
            open = open.max(most);
        }
        if answer.count() > best.count() {
            best = answer;
        }
    }
    let placed = best.count();
    contradiction(placed, known.bound)?;
    let (bound, proof) = match open <= placed {
        true => (placed, Proof::Solver),
        false if placed == known.bound => (known.bound, Proof::Prices),
        false => (known.bound.min(open), Proof::None),
    };
    Ok(Exact { placement: best, bound, proof })
}

/// Refuses a placement of more services than a bound allows.
const fn contradiction(placed: usize, bound: usize) -> Result<(), ExactError> {
    if placed > bound { Err(ExactError::Contradiction { placed, bound }) } else { Ok(()) }
}

/// Returns the cases to solve with the number of services that their relaxed models allow, the most hopeful first.
fn cases(
    problem: &Problem,
    solver: Solver,
    seconds: f64,
) -> Result<Vec<(Option<Ceiling>, usize)>, ExactError> {
    let levels = ceilings(problem);
    if levels.is_empty() {
        return Ok(vec![(None, problem.candidates.len())]);
    }
    let mut cases = Vec::new();
    for ceiling in levels {
        let relaxed = Model::new(problem, Some(ceiling), false).values(solver, seconds)?;
        // The conversion saturates.
        let most = if relaxed.finished {
            (relaxed.objective + 1e-6).floor() as usize
        } else {
            problem.candidates.len()
        };
        cases.push((Some(ceiling), most));
    }
    cases.sort_by_key(|(_, most)| std::cmp::Reverse(*most));
    Ok(cases)
}
