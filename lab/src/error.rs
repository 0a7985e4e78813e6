//! Errors of labs, with the remedy.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Lab file that can't be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file can't be read.
    #[error("cannot read the lab file {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file's content is invalid.
    #[error("{place}: {message}")]
    Content {
        /// Position as `FILE:LINE:COLUMN`.
        place: String,
        /// Fault and remedy.
        message: String,
    },
}

/// Lab that can't be built, reached or removed.
#[derive(Debug, Error)]
pub enum LabError {
    /// The caller may not create namespaces.
    #[error("a lab needs root, because it creates network namespaces: run `sudo {0}`")]
    NotRoot(String),
    /// A lab of this name is recorded as running.
    #[error("lab {0} is already up: remove it with `millrace lab down {0}`")]
    AlreadyUp(String),
    /// No lab of this name is recorded.
    #[error("lab {0} is not up: `millrace lab list` lists the labs that are up")]
    NotUp(String),
    /// The lab has no such node.
    #[error("lab {lab} has no node {node}; its nodes: {known}")]
    UnknownNode {
        /// Name of the lab.
        lab: String,
        /// Requested node.
        node: String,
        /// Nodes of the lab.
        known: String,
    },
    /// A namespace of this name exists and does not belong to the lab.
    #[error(
        "namespace {0} already exists and does not belong to this lab: use another lab name, or remove the \
         namespace with `ip netns delete {0}`"
    )]
    NamespaceTaken(String),
    /// A program can't be started.
    #[error("cannot run {program}: {source}; check that it is installed")]
    Program {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// Command line.
        command: String,
        /// Standard error of the command.
        stderr: String,
    },
    /// A file can't be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// Operation that was refused: `read`, `write`, …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// Operation that was refused.
        action: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A router's configuration can't be used.
    #[error("configuration of router {router}: {message}")]
    RouterConfig {
        /// Name of the router.
        router: String,
        /// Fault of the configuration.
        message: String,
    },
    /// A router ended before it forwarded.
    #[error("router {router} ended ({status}) before it was ready: {log}")]
    RouterEnded {
        /// Name of the router.
        router: String,
        /// Exit status of the router.
        status: String,
        /// Last lines of the router's output.
        log: String,
    },
    /// A router did not forward in time.
    #[error("router {router} was not ready within {seconds} s: {log}")]
    RouterNotReady {
        /// Name of the router.
        router: String,
        /// Time limit in seconds.
        seconds: u64,
        /// Last lines of the router's output.
        log: String,
    },
    /// A routing daemon ended, or was not ready in time.
    #[error("{program} {problem}: {log}")]
    Daemon {
        /// Name of the daemon.
        program: &'static str,
        /// Problem of the daemon.
        problem: String,
        /// Last lines of the daemon's output.
        log: String,
    },
    /// A command of the lab file failed.
    #[error("`{command}` failed ({status}): {output}")]
    StartCommand {
        /// Command as in the lab file.
        command: String,
        /// Exit status of the command.
        status: String,
        /// Last lines of the command's output.
        output: String,
    },
    /// The caller set the interrupt flag during the construction of the lab.
    #[error("interrupted")]
    Interrupted,
    /// A step of the construction failed. All earlier steps were undone.
    #[error("{step}: {source}")]
    Step {
        /// Name of the step.
        step: String,
        /// Reason of the failure.
        source: Box<LabError>,
    },
    /// A step of the construction failed, and removing the lab failed as well.
    #[error("{first}; not everything could be undone: {undo}")]
    Undo {
        /// First failure.
        first: Box<LabError>,
        /// Failure of removing the lab.
        undo: Box<LabError>,
    },
}

impl LabError {
    /// Returns a function that converts an I/O error on a file.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }

    /// Returns a function that converts the error of a system call.
    pub(crate) fn system<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::System { action, source: source.into() }
    }
}
