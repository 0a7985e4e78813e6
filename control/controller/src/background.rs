//! Runs slow work outside the caller's task: on a blocking thread, or in a task that outlives the request.

use std::future::Future;

use crate::ControlError;

/// Runs slow work, or work that waits for the disk, on a blocking thread. `what` completes the error text
/// "can't …".
///
/// # Errors
/// Returns the error of the work, or an error if it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, ControlError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ControlError::system(what, error))?
}

/// Runs work in a task of its own. Dropping the returned future doesn't stop the work. `what` completes the
/// error text "can't …".
///
/// # Errors
/// Returns the error of the work, or an error if it panics.
pub(crate) async fn detached<T: Send + 'static>(
    what: &str,
    work: impl Future<Output = Result<T, ControlError>> + Send + 'static,
) -> Result<T, ControlError> {
    tokio::spawn(work).await.map_err(|error| ControlError::system(what, error))?
}
