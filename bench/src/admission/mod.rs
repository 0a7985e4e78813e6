//! `admission`: decisions about requests for shares.
//!
//! | case | measures |
//! |---|---|
//! | `adds` | use of each component by services beside the use that was predicted, and placed services of each algorithm |
//! | `deadlines` | time of a decision, admitted flows beside an exact oracle, and simulated delays beside bounds |
//! | `live` | time of decisions of a running router |
//! | `placement` | placement of services beside a bound, time of a decision, arrivals refused that would fit |
//! | `solvers` | largest numbers of services of 1,007 workloads, proved by each solver; only if named |
//! | `veth` | late packets of flows with a deadline at 90 % of what is promised, through a full link |

pub(crate) mod adds;
mod deadlines;
mod live;
mod placement;
pub(crate) mod solvers;
mod veth;

use crate::{BenchError, Measurement, Options, Run};

/// Name of each case, and its function.
const CASES: [(&str, Run); 5] = [
    ("adds", adds::run),
    ("deadlines", deadlines::run),
    ("live", live::run),
    ("placement", placement::run),
    ("veth", veth::run),
];

/// Cases that take hours, and run only if they are named.
const LONG: [(&str, Run); 1] = [("solvers", solvers::run)];

/// Runs all cases, or the requested cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let is_named = LONG.iter().any(|(name, _)| options.case.as_deref() == Some(name));
    options.run_cases("admission", if is_named { &LONG } else { &CASES })
}

fn failed(problem: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("admission", problem.to_string())
}
