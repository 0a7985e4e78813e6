//! Plugin process: confines itself, loads the shared object from its standard input, and serves the worker at
//! the other end of its standard output, which is shared memory.

use std::os::fd::AsFd;

use millrace_confine::ConfineError;
use millrace_plugin::process::serve;

use crate::confine;

/// Reason for the end of a plugin process.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The arguments are not those that the router passes.
    #[error("wrong arguments of `plugin-process NUMBER`, which only the router calls: {0:?}")]
    Usage(Vec<String>),
    /// The process can't be confined.
    #[error("the process {0}")]
    Confine(#[from] ConfineError),
    /// The shared object can't be loaded, or the exchange with the router is broken.
    #[error("{0}")]
    Serve(String),
}

/// Confines this process and serves a worker. Must be called before the process opens files or starts
/// threads. The argument is the number of the process, which determines its user.
///
/// # Errors
/// [`ChildError`]: its text belongs on the standard error. On success, this never returns.
pub fn run(arguments: &[String]) -> Result<std::convert::Infallible, ChildError> {
    let [number] = arguments else { return Err(ChildError::Usage(arguments.to_vec())) };
    let number = number.parse().map_err(|_| ChildError::Usage(arguments.to_vec()))?;
    confine::begin(number)?;
    let (object, memory) = (std::io::stdin(), std::io::stdout());
    let finish = || confine::finish().map_err(|error| format!("the process {error}"));
    serve(object.as_fd(), memory.as_fd(), finish).map_err(ChildError::Serve)
}
