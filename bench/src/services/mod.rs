//! `services`: connections, and the services that keep them.

mod connections;

use crate::{BenchError, Measurement, Options};

/// Runs the cases of the benchmark `services`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    options.run_cases("services", &[("connections", connections::run)])
}
