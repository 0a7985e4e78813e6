//! Revision that waits for its confirmation.

use std::sync::Arc;
use std::time::Duration;

use millrace_config::Config;
use tokio::time::Instant;

use super::Base;
use crate::ControlError;
use crate::view::Pending;

/// Running revision that waits for confirmation, with the configuration to roll back to.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub revision: u64,
    /// Time until which the revision must be confirmed.
    pub until: Instant,
    /// Whether the rollback of this revision has begun.
    pub goes_back: bool,
    /// Running configuration that a rollback restores.
    pub before: Arc<Config>,
    /// Base configuration that a rollback restores.
    pub base: Base,
}

impl Waiting {
    /// Creates the record of a waiting `revision`. A rollback restores `before` as the running configuration,
    /// and `base` as the base.
    pub fn new(revision: u64, patience: Duration, before: Arc<Config>, base: Base) -> Self {
        Self { revision, until: Instant::now() + patience, goes_back: false, before, base }
    }

    /// Returns the number of the revision and its remaining time.
    pub fn pending(&self) -> Pending {
        let left = self.until.saturating_duration_since(Instant::now());
        Pending { revision: self.revision, seconds: left.as_secs_f64().ceil() as u64 }
    }

    /// Refuses a confirmation once the rollback has begun or the time is over.
    pub fn check_stays(&self) -> Result<(), ControlError> {
        match self.goes_back || self.until <= Instant::now() {
            true => Err(ControlError::conflict(format!(
                "revision {} is being rolled back, and can't be confirmed any more: apply the configuration again",
                self.revision
            ))),
            false => Ok(()),
        }
    }
}
