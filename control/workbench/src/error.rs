//! Errors of inspecting, trying and measuring a plugin.

use std::io;
use std::path::PathBuf;

/// Error of inspecting, trying or measuring a plugin.
#[derive(Debug, thiserror::Error)]
pub enum WorkbenchError {
    /// The router would not load the plugin.
    #[error("plugin {}: {problem}", file.display())]
    Refused {
        /// File of the plugin.
        file: PathBuf,
        /// Reason of the refusal.
        problem: String,
    },
    /// This machine can't run plugins.
    #[error(transparent)]
    Sandbox(#[from] millrace_plugin::wasm::SandboxError),
    /// There is no memory for packets.
    #[error("can't prepare packets: {0}")]
    Memory(String),
    /// The capture can't be read or written.
    #[error("{0}")]
    Capture(String),
    /// The plugin refused its settings, or a message.
    #[error(transparent)]
    Plugin(#[from] millrace_plugin_abi::PluginError),
    /// The plugin failed during the measurement.
    #[error("the plugin failed during the measurement: {0}")]
    Failed(String),
    /// The expectation file can't be read.
    #[error("{}: {problem}", file.display())]
    Expectation {
        /// File of the expectation.
        file: PathBuf,
        /// Reason of the failure.
        problem: String,
    },
    /// The system refused an operation on a file.
    #[error("{}: {error}", file.display())]
    Io {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl WorkbenchError {
    /// Returns a function that converts I/O errors about a file.
    pub(crate) fn io(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |error| Self::Io { file, error }
    }
}
