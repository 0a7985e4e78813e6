//! Why a plugin can't be inspected, tried or measured.

use std::io;
use std::path::PathBuf;

/// Why a plugin can't be inspected, tried or measured.
#[derive(Debug, thiserror::Error)]
pub enum WorkbenchError {
    /// The router would not load it.
    #[error("plugin {}: {problem}", file.display())]
    Refused {
        /// The plugin's file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// This machine can't run plugins.
    #[error(transparent)]
    Sandbox(#[from] millrace_plugin::wasm::SandboxError),
    /// There is no memory for packets.
    #[error("no memory for packets: {0}")]
    Memory(String),
    /// The capture can't be read or written.
    #[error("{0}")]
    Capture(String),
    /// It refused its settings, or a message.
    #[error(transparent)]
    Plugin(#[from] millrace_plugin_abi::PluginError),
    /// It went wrong while its time was taken.
    #[error("it failed while it was measured: {0}")]
    Failed(String),
    /// What was expected can't be read.
    #[error("{}: {problem}", file.display())]
    Expectation {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The system has refused something.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl WorkbenchError {
    /// Makes errors about a file.
    pub(crate) fn io(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |error| Self::Io { file, error }
    }
}
