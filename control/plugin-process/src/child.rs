//! Plugin process: confines itself, loads the shared object from its standard input, and serves the worker at
//! the other end of its standard output, which is shared memory. If the standard input is an executable, the
//! process executes it instead; then the executable serves the worker.

use std::os::fd::AsFd;

use millrace_confine::ConfineError;
use millrace_plugin::native::Form;
use millrace_plugin::process::serve;

use crate::confine;

/// Reason for the end of a plugin process.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The arguments are not those that the router passes.
    #[error("wrong arguments of `plugin-process NUMBER FORM`, which only the router calls: {0:?}")]
    Usage(Vec<String>),
    /// The process can't be confined.
    #[error("the process {0}")]
    Confine(#[from] ConfineError),
    /// The shared object can't be loaded, or the exchange with the router is broken.
    #[error("{0}")]
    Serve(String),
}

/// Confines this process and serves a worker. Must be called before the process opens files or starts
/// threads. The arguments are the number of the process, which determines its user, and the form of the plugin.
///
/// # Errors
/// [`ChildError`]: its text belongs on the standard error. On success, this never returns.
pub fn run(arguments: &[String]) -> Result<std::convert::Infallible, ChildError> {
    let known = match arguments {
        [number, form] => number.parse().ok().zip(Form::of_name(form)),
        _ => None,
    };
    let (number, form) = known.ok_or_else(|| ChildError::Usage(arguments.to_vec()))?;
    if form.is_executable() {
        return Err(confine::execute(number, form == Form::Dynamic).into());
    }
    confine::begin_loading(number)?;
    let (object, memory) = (std::io::stdin(), std::io::stdout());
    let finish = || confine::finish_loading().map_err(|error| format!("the process {error}"));
    serve(object.as_fd(), memory.as_fd(), finish).map_err(ChildError::Serve)
}
