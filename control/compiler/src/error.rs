//! Why a plugin's module was not compiled.

use std::time::Duration;

use millrace_plugin::wasm::ModuleError;

/// Why a plugin's module was not compiled. The text is one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is no plugin for this router, or the compiler refused it.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// It took longer than it may.
    #[error("compiling it took longer than {} s and was given up", .0.as_secs_f32())]
    TooLong(Duration),
    /// It took more time of the processor than it may.
    #[error("compilation aborted after {0} s of CPU time")]
    TooMuchWork(u64),
    /// It took more memory than it may.
    #[error("compilation exceeds the limit of {} MiB of memory", .0 >> 20)]
    TooMuchMemory(u64),
    /// The code is longer than it may be.
    #[error("compiled code exceeds the limit of {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// The kernel ended the process that compiled it.
    #[error("the process that compiled it was killed by the kernel: is there too little memory?")]
    Killed,
    /// The compiler failed.
    #[error("the compiler failed ({how}){}", told(said))]
    Failed {
        /// How the process ended.
        how: String,
        /// The beginning of what it said.
        said: String,
    },
    /// The process could not be started, or not confined.
    #[error("no process to compile it: {0}")]
    NoProcess(String),
}

fn told(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}
