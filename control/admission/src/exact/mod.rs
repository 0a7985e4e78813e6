//! Exact reference: the largest number of services that any placement can place, by a mixed-integer model.
//!
//! The solver is never trusted: [`check`] adds its answer up anew, and a bound from prices must not be below it.

pub mod check;
mod model;
pub mod rounding;

use crate::placement::prices::{self, Certified};
use crate::placement::{Placement, Problem};
use model::Model;

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

/// Solves the model, without regard to a certificate that may already answer. `known` is the placement to start
/// from, with the bound to check against.
///
/// # Errors
/// The solver gave no answer, or one that a check refuses.
pub fn solve(
    problem: &Problem,
    known: &Certified,
    solver: Solver,
    seconds: f64,
) -> Result<Exact, ExactError> {
    let (choices, finished) = Model::new(problem).solve(&known.placement.choices, solver, seconds)?;
    let utilization = check::add_up(problem, &choices)?;
    let answer = Placement { choices, utilization };
    let placed = answer.count();
    if placed > known.bound || (finished && placed < known.placement.count()) {
        return Err(ExactError::Contradiction { placed, bound: known.bound });
    }
    let placement = if placed < known.placement.count() { known.placement.clone() } else { answer };
    let (bound, proof) = match finished {
        true => (placement.count(), Proof::Solver),
        false if placement.count() == known.bound => (known.bound, Proof::Prices),
        false => (known.bound, Proof::None),
    };
    Ok(Exact { placement, bound, proof })
}
