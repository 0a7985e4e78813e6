//! Why a benchmark couldn't be run.

use std::io;

use millrace_lab::LabError;
use millrace_offload::InjectError;
use thiserror::Error;

/// Why a benchmark gave no result.
#[derive(Debug, Error)]
pub enum BenchError {
    /// There is no benchmark of that name.
    #[error("no benchmark `{name}`; benchmarks here: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// Network namespaces need root.
    #[error("benchmark `{name}` builds network namespaces: run it as root")]
    NotRoot {
        /// The benchmark.
        name: &'static str,
    },
    /// It was interrupted by SIGINT or SIGTERM; everything was removed.
    #[error("interrupted; the benchmark removed its setup")]
    Interrupted,
    /// A program couldn't be started.
    #[error("cannot run {program}: {source}")]
    Program {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// What it said last.
        said: String,
    },
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A namespace couldn't be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The traffic generator failed.
    #[error("traffic generator: {0}")]
    Generator(#[from] InjectError),
    /// What was measured makes no sense, so it isn't told as a figure.
    #[error("{case}: {problem}")]
    Measurement {
        /// What was measured.
        case: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl BenchError {
    /// For `map_err`: the system refused `action`.
    pub(crate) fn system<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::System { action, source: source.into() }
    }

    pub(crate) fn measurement(case: &str, problem: impl Into<String>) -> Self {
        Self::Measurement { case: case.to_owned(), problem: problem.into() }
    }
}
