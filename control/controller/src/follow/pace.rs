//! Whether workers keep up with what control follows.

use millrace_host::HostChange;

use crate::ControlError;

/// How the workers keep up.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Whether one did not answer.
    pub is_silent: bool,
    /// What changed in the kernel that they could not be told of. Until they are, nothing more is taken up.
    pub undone: Option<Vec<HostChange>>,
}

impl Pace {
    /// Takes it that a worker does not answer for now, and refuses all else that went wrong.
    pub fn judge(&mut self, done: Result<(), ControlError>) -> Result<(), ControlError> {
        let Err(ControlError::Silent(problem)) = done else { return done };
        if !std::mem::replace(&mut self.is_silent, true) {
            tracing::error!("{problem}: changes of the kernel wait until it does");
        }
        Ok(())
    }

    /// All workers have answered.
    pub fn goes_on(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            tracing::warn!("the data plane answers again");
        }
    }
}
