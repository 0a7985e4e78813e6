//! Errors of benchmarks.

use std::io;

use millrace_lab::LabError;
use millrace_offload::InjectError;
use thiserror::Error;

/// Error that ends a benchmark without a result.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No benchmark has this name.
    #[error("no benchmark `{name}`; benchmarks: {known}")]
    Unknown {
        /// Requested name.
        name: String,
        /// Names of the existing benchmarks.
        known: String,
    },
    /// The benchmark creates network namespaces, which needs root.
    #[error("benchmark `{name}` builds network namespaces: run it as root")]
    NotRoot {
        /// Name of the benchmark.
        name: &'static str,
    },
    /// SIGINT or SIGTERM interrupted the benchmark; the benchmark removed its setup.
    #[error("interrupted; the benchmark removed its setup")]
    Interrupted,
    /// A program can't be started.
    #[error("cannot run {program}: {source}")]
    Program {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// Last output of the program.
        said: String,
    },
    /// The system refused an operation.
    #[error("cannot {action}: {source}")]
    System {
        /// Refused operation.
        action: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A network namespace can't be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The traffic generator failed.
    #[error("traffic generator: {0}")]
    Generator(#[from] InjectError),
    /// The measured value is impossible, so the benchmark reports no figure.
    #[error("{case}: {problem}")]
    Measurement {
        /// Case that was measured.
        case: String,
        /// Reason why the measured value is unusable.
        problem: String,
    },
}

impl BenchError {
    /// Returns a function for `map_err`, which reports that the system refused `action`.
    pub(crate) fn system<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::System { action, source: source.into() }
    }

    pub(crate) fn measurement(case: &str, problem: impl Into<String>) -> Self {
        Self::Measurement { case: case.to_owned(), problem: problem.into() }
    }
}
