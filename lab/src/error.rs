//! What can go wrong with a lab, said so that the reader can put it right.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A lab file that can't be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file can't be read.
    #[error("cannot read the lab file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file says something that can't be.
    #[error("{place}: {message}")]
    Content {
        /// `FILE:LINE:COLUMN`.
        place: String,
        /// What is wrong, and what would be right.
        message: String,
    },
}

/// A lab that can't be built, reached or removed.
#[derive(Debug, Error)]
pub enum LabError {
    /// The caller may not make namespaces.
    #[error("a lab needs root, for it is made of network namespaces: type `sudo {0}`")]
    NotRoot(String),
    /// A lab of this name is recorded as up.
    #[error("lab {0} is up already: `millrace lab down {0}` removes it")]
    AlreadyUp(String),
    /// No lab of this name is recorded.
    #[error("no lab {0} is up: `millrace lab list` shows those that are")]
    NotUp(String),
    /// The lab has no such node.
    #[error("lab {lab} has no node {node}: it has {known}")]
    UnknownNode {
        /// The lab.
        lab: String,
        /// What was asked for.
        node: String,
        /// The nodes that it has.
        known: String,
    },
    /// A namespace of that name exists and is somebody else's.
    #[error(
        "namespace {0} exists already and is not this lab's: choose another lab name, or remove it by `ip netns delete {0}`"
    )]
    NamespaceTaken(String),
    /// A program could not be started.
    #[error("cannot run {program}: {source}; is it installed?")]
    Program {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// The command, as one would type it.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried: `read`, `write`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// Why.
        source: io::Error,
    },
    /// A router's configuration can't be used.
    #[error("configuration of router {router}: {message}")]
    RouterConfig {
        /// The router.
        router: String,
        /// What is wrong.
        message: String,
    },
    /// A router ended before it forwarded.
    #[error("router {router} ended ({status}) before it was ready: {log}")]
    RouterEnded {
        /// The router.
        router: String,
        /// How it ended.
        status: String,
        /// The last lines of what it printed.
        log: String,
    },
    /// A router did not forward in time.
    #[error("router {router} was not ready within {seconds} s: {log}")]
    RouterNotReady {
        /// The router.
        router: String,
        /// How long was waited.
        seconds: u64,
        /// The last lines of what it printed.
        log: String,
    },
    /// A routing daemon ended, or was not ready in time.
    #[error("{program} {problem}: {log}")]
    Daemon {
        /// The daemon.
        program: &'static str,
        /// What happened.
        problem: String,
        /// The last lines of what it printed.
        log: String,
    },
    /// A command of the lab file failed.
    #[error("`{command}` failed ({status}): {output}")]
    StartCommand {
        /// The command, as the file has it.
        command: String,
        /// How it ended.
        status: String,
        /// The last lines of what it printed.
        output: String,
    },
    /// The caller's flag was raised while the lab came up.
    #[error("interrupted")]
    Interrupted,
    /// A step of coming up failed; what was made before it is undone.
    #[error("{step}: {source}")]
    Step {
        /// The step.
        step: String,
        /// Why it failed.
        source: Box<LabError>,
    },
    /// Something failed, and so did the undoing.
    #[error("{first}; not everything could be undone: {undo}")]
    Undo {
        /// What failed first.
        first: Box<LabError>,
        /// What failed then.
        undo: Box<LabError>,
    },
}

impl LabError {
    /// For a file's I/O error.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }

    /// For a system call's error.
    pub(crate) fn system<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::System { action, source: source.into() }
    }
}
