//! Errors of compiling a plugin's module.

use std::time::Duration;

use millrace_plugin::wasm::ModuleError;

/// Error of compiling a plugin's module. The text is one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The module is no plugin for this router, or the compiler refused it.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Compiling exceeded its time limit.
    #[error("compilation aborted after {} s", .0.as_secs_f32())]
    TooLong(Duration),
    /// Compiling exceeded its limit of processor time, in seconds.
    #[error("compilation aborted after {0} s of CPU time")]
    TooMuchWork(u64),
    /// Compiling exceeded its memory limit, in bytes.
    #[error("compilation exceeds the limit of {} MiB of memory", .0 >> 20)]
    TooMuchMemory(u64),
    /// The code exceeds its size limit, in bytes.
    #[error("compiled code exceeds the limit of {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// The kernel killed the compiling process.
    #[error("the kernel killed the compiling process: memory may be short")]
    Killed,
    /// The compiler failed.
    #[error("the compiler failed ({how}){}", told(said))]
    Failed {
        /// Exit code or signal of the process.
        how: String,
        /// Start of its output on standard error.
        said: String,
    },
    /// The process could not be started or confined.
    #[error("can't run the compiling process: {0}")]
    NoProcess(String),
}

fn told(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}
