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
    #[error("the solver places {placed} services, and the bound by prices is {bound}")]
    Contradiction {
        /// Services of the solver's answer.
        placed: usize,
        /// Bound by prices.
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

/// Solves the model, without regard to a certificate that may already answer. `known` is a placement to improve, with
/// the bound to check against.
///
/// # Errors
/// The solver gave no answer, or one that a check refuses.
pub fn solve(
    problem: &Problem,
    known: &Certified,
    solver: Solver,
    seconds: f64,
) -> Result<Exact, ExactError> {
    let mut best: Option<Placement> = None;
    let mut open = 0;
    for (ceiling, most) in cases(problem, solver, seconds)? {
        if best.as_ref().is_some_and(|best| most <= best.count()) {
            break;
        }
        let (choices, finished) = Model::new(problem, ceiling, true).solve(solver, seconds)?;
        let utilization = check::add_up(problem, &choices)?;
        let answer = Placement { choices, utilization };
        if !finished {
            open = open.max(most);
        }
        if best.as_ref().is_none_or(|best| answer.count() > best.count()) {
            best = Some(answer);
        }
    }
    let answer = best.unwrap_or_else(|| problem.nothing());
    let (placed, finished) = (answer.count(), open <= answer.count());
    if placed > known.bound || (finished && placed < known.placement.count()) {
        return Err(ExactError::Contradiction { placed, bound: known.bound });
    }
    let placement = if placed < known.placement.count() { known.placement.clone() } else { answer };
    let (bound, proof) = match finished {
        true => (placed, Proof::Solver),
        false if placement.count() == known.bound => (known.bound, Proof::Prices),
        false => (known.bound.min(open.max(placed)), Proof::None),
    };
    Ok(Exact { placement, bound, proof })
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
