//! Running configuration: showing it, comparing it with another one, and changing it atomically.
//!
//! Control generates the running configuration from the model in normal form, and compares it with the
//! candidate. The difference is an ordered list of changes. Each change uses the function of the equivalent
//! command; bindings and routes are changed in groups. Between groups control releases the lock, and follows
//! changes of the kernel. If a change fails, control undoes the earlier changes, the last first.
//!
//! At the end, control writes the revision to disk. Single commands may have changed the configuration since
//! the previous revision; that configuration is written first, in the same step. If writing fails, all
//! changes are undone. The task belongs to the router, so it continues when the request ends.

pub(crate) mod apply;
mod carry_out;
pub(crate) mod confirm;
mod expected;
pub(crate) mod history;
pub(crate) mod keep;
pub(crate) mod lists;
pub(crate) mod ports;
mod removals;
pub(crate) mod single;
pub mod words;

pub use apply::Apply;
pub use history::RollBack;
pub use keep::{Keep, Save};
pub use lists::AddedFilters;

use crate::ControlError;
use crate::model::placements::PlacedService;
use crate::router::{Inner, Router};
use crate::settings::Progress;

/// Transaction of a router: its changes are made completely, or not at all. Other changes are refused until
/// the transaction is dropped. It knows the places of the services at its begin.
pub(crate) struct Transaction(Router, Vec<PlacedService>);

impl Transaction {
    /// Begins a transaction, after the operations before it.
    ///
    /// # Errors
    /// Returns the errors of [`Router::to_change`].
    pub async fn begin(router: &Router) -> Result<Self, ControlError> {
        let _turn = router.0.turn.lock().await;
        Self::begin_now(router)
    }

    /// Begins a transaction. The caller has the turn.
    fn begin_now(router: &Router) -> Result<Self, ControlError> {
        let mut inner = router.to_change()?;
        Ok(Self::of(router, &mut inner))
    }

    /// Begins a transaction that confirms or rolls back a revision, even while one waits for confirmation.
    ///
    /// # Errors
    /// Returns an error while another transaction runs.
    fn begin_despite_waiting(router: &Router) -> Result<Self, ControlError> {
        let mut inner = router.lock();
        inner.settings.unless_applying()?;
        Ok(Self::of(router, &mut inner))
    }

    fn of(router: &Router, inner: &mut Inner) -> Self {
        inner.settings.applying = Some(Progress::default());
        inner.model.plugins.set_transaction(true);
        Self(router.clone(), inner.model.placements.services.clone())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.settings.applying = None;
        inner.model.plugins.set_transaction(false);
    }
}

/// Failure of a sequence of changes.
struct Failed {
    /// Index of the failed change, counted from 0.
    pub step: usize,
    /// Number of changes that were made, and then undone. The failed change counts too if a worker did not answer, so
    /// that the change counted as in force.
    pub made: usize,
    /// Reason for the failure.
    pub error: ControlError,
    /// Changes that could not be undone.
    pub remains: Vec<String>,
}

impl Failed {
    /// Whether the failed change counted as in force.
    fn stands(&self) -> bool {
        self.made > self.step
    }

    /// Returns the failure as an error that names no step.
    fn into_error(self) -> ControlError {
        undone(self.error, &self.remains)
    }
}

/// Returns the error of an operation whose changes are undone, except for `remains`.
fn undone(error: ControlError, remains: &[String]) -> ControlError {
    let remains = except_for(remains);
    match error {
        ControlError::Silent(text) => ControlError::Silent(format!("{text}; nothing was changed{remains}")),
        error if remains.is_empty() => error,
        error => ControlError::System(format!("{error}; the changes before it are undone{remains}")),
    }
}

/// Returns the end of a sentence, which names the changes that could not be undone. Returns an empty text if
/// all changes were undone.
fn except_for(remains: &[String]) -> String {
    match remains {
        [] => String::new(),
        remains => format!(", except for failed undo steps: {}", remains.join("; ")),
    }
}
