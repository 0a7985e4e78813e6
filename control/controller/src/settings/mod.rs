//! State of the configuration outside the model: base, revisions, overrides and transactions.

mod base;
mod waiting;

use std::path::PathBuf;

use millrace_config::Change;
use millrace_store::Store;

pub(crate) use self::base::Base;
pub(crate) use self::waiting::Waiting;
use crate::ControlError;
use crate::overrides::Overrides;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub made: usize,
    /// Total number of changes; 0 while the changes are being planned.
    pub of: usize,
}

impl Progress {
    /// Returns the error for a request that arrives while a transaction is running.
    fn refusal(self) -> ControlError {
        let Self { made, of } = self;
        ControlError::conflict(format!(
            "a configuration or a list is being applied, {made} of {} so far: try again in a second",
            millrace_units::count(of, "change")
        ))
    }
}

/// Base configuration, overrides and revision store of a router that starts.
pub(crate) type Started = (Base, Overrides, Store);

/// Base configuration, revision store, overrides, and the state of transactions.
pub(crate) struct Settings {
    /// Name of the workers' poll mode.
    pub mode: &'static str,
    /// State directory of the router; `None` without one.
    pub state: Option<PathBuf>,
    /// Command-line options of the start, which also override every later configuration.
    pub overrides: Overrides,
    /// Configuration last applied or saved, or used at the start.
    pub base: Base,
    /// Store of the applied revisions.
    pub store: Store,
    /// Progress of the running transaction; `None` if none runs.
    pub applying: Option<Progress>,
    /// Whether the router is shutting down. Changes and rollbacks are refused then.
    pub ending: bool,
    /// Revision that is rolled back unless it is confirmed in time; `None` if none waits.
    pub waiting: Option<Waiting>,
}

impl Settings {
    /// Creates the settings of a router that starts.
    pub fn new(mode: &'static str, state: Option<PathBuf>, (base, overrides, store): Started) -> Self {
        Self { mode, state, overrides, base, store, applying: None, ending: false, waiting: None }
    }

    /// Refuses a change once the router is shutting down.
    pub fn unless_ending(&self) -> Result<(), ControlError> {
        match self.ending {
            true => Err(ControlError::conflict("the router is shutting down, and accepts no changes")),
            false => Ok(()),
        }
    }

    /// Refuses a change while a configuration is being applied.
    pub fn unless_applying(&self) -> Result<(), ControlError> {
        self.unless_ending()?;
        self.applying.map_or(Ok(()), |progress| Err(progress.refusal()))
    }

    /// Refuses a request while a transaction has made only some of its changes.
    pub fn unless_in_between(&self) -> Result<(), ControlError> {
        // While the total is 0, the transaction is still being planned, and has changed nothing.
        let begun = self.applying.filter(|progress| progress.of > 0);
        begun.map_or(Ok(()), |progress| Err(progress.refusal()))
    }

    /// Refuses a change while a configuration is being applied, or while a revision waits for confirmation.
    pub fn settled(&self) -> Result<(), ControlError> {
        self.unless_applying()?;
        match &self.waiting {
            None => Ok(()),
            Some(waiting) => Err(ControlError::conflict(format!(
                "revision {} waits to be confirmed: `millrace confirm` keeps it, `millrace rollback` reverts it",
                waiting.revision
            ))),
        }
    }
}

/// Returns changes as commands. A reported number of changes is the number of these commands.
pub(crate) fn commands(changes: &[Change]) -> Vec<String> {
    changes.iter().flat_map(Change::commands).collect()
}
