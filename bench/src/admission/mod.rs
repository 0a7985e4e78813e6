//! `admission`: decisions about requests for shares.
//!
//! | case | measures |
//! |---|---|
//! | `deadlines` | time of a decision, admitted flows beside an exact oracle, and simulated delays beside bounds |

mod deadlines;

use crate::interrupt::check;
use crate::{BenchError, Measurement, Options};

type Case = fn(&mut Options<'_>) -> Result<Vec<Measurement>, BenchError>;

/// Name of each case, and its function.
const CASES: [(&str, Case); 1] = [("deadlines", deadlines::run)];

/// Runs all cases, or the requested cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let wanted = options.case.clone().unwrap_or_default();
    let cases: Vec<_> = CASES.iter().filter(|(name, _)| name.contains(&wanted)).collect();
    if cases.is_empty() {
        return Err(failed(format!("no case matches {wanted:?}")));
    }
    let mut results = Vec::new();
    for (_, run) in cases {
        check()?;
        results.extend(run(options)?);
    }
    Ok(results)
}

fn failed(problem: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("admission", problem.to_string())
}
