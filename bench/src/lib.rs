//! Benchmarks, each beside a peer.

mod error;
mod measurement;

use std::path::PathBuf;

pub use error::BenchError;
pub use measurement::{Bound, Measurement};

/// A benchmark that can be run by name.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Its name.
    pub name: &'static str,
    /// What it measures, in a line.
    pub summary: &'static str,
}

/// What a benchmark needs from its caller.
pub struct Options<'a> {
    /// The `millrace` binary that is measured.
    pub binary: PathBuf,
    /// Told, in a line without newline, what goes on.
    pub progress: &'a mut dyn FnMut(&str),
}

/// The benchmarks that there are.
pub fn list() -> &'static [Bench] {
    &[]
}

/// Runs the benchmark `name`, or `all` of them one after the other.
///
/// # Errors
/// See [`BenchError`]; what was set up has been removed then, too.
pub fn run(name: &str, _options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let known = list().iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
    Err(BenchError::Unknown { name: name.to_owned(), known })
}
