//! `admission`: decisions about requests for shares.
//!
//! | case | measures |
//! |---|---|
//! | `adds` | use of workers by services beside the use that was predicted, and placed services of each algorithm |
//! | `deadlines` | time of a decision, admitted flows beside an exact oracle, and simulated delays beside bounds |
//! | `placement` | placement of services beside a bound, time of a decision, arrivals refused that would fit |
//! | `veth` | late packets of flows with a deadline at 90 % of what is promised, through a full link |

mod adds;
mod deadlines;
mod placement;
mod veth;

use crate::{BenchError, Measurement, Options, Run};

/// Name of each case, and its function.
const CASES: [(&str, Run); 4] =
    [("adds", adds::run), ("deadlines", deadlines::run), ("placement", placement::run), ("veth", veth::run)];

/// Runs all cases, or the requested cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    options.run_cases("admission", &CASES)
}

fn failed(problem: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("admission", problem.to_string())
}
