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
    /// What could not be taken up last, as it was told: the same is told once.
    told: Option<String>,
}

impl Pace {
    /// Takes it that a worker does not answer for now, or that something can't be taken up: a change of the kernel must not end a router
    /// that forwards. Returns what went wrong because a worker has ended.
    pub fn judge(&mut self, done: Result<(), ControlError>, has_ended: bool) -> Result<(), ControlError> {
        match done {
            Ok(()) => {}
            Err(error) if has_ended => return Err(error),
            Err(ControlError::Silent(problem)) => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    tracing::error!("{problem}: changes of the kernel wait until it does");
                }
            }
            Err(other) => {
                let problem = other.to_string();
                if self.told.as_ref() != Some(&problem) {
                    tracing::error!(
                        "a change could not be taken up, the router goes on without it: {problem}"
                    );
                    self.told = Some(problem);
                }
            }
        }
        Ok(())
    }

    /// All workers have answered.
    pub fn goes_on(&mut self) {
        self.told = None;
        if std::mem::take(&mut self.is_silent) {
            tracing::warn!("the data plane answers again");
        }
    }
}

/// The next batch of changes; never, where nothing is mirrored.
pub(super) async fn next_batch(changes: &mut Option<crate::start::Changes>) -> Vec<HostChange> {
    if let Some(receiver) = changes {
        if let Some(batch) = receiver.recv().await {
            return batch;
        }
        *changes = None;
    }
    std::future::pending().await
}

/// Whether a worker was silent.
pub(super) fn is_silent(done: &Result<(), ControlError>) -> bool {
    matches!(done, Err(ControlError::Silent(_)))
}

/// Of two outcomes the first error; but that a worker is silent counts first, as all is done again then.
pub(super) fn worse(
    one: Result<(), ControlError>,
    other: Result<(), ControlError>,
) -> Result<(), ControlError> {
    match other {
        Err(ControlError::Silent(_)) => other,
        other => one.and(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_taken_up_ends_the_router_only_where_a_worker_has_ended() {
        let mut pace = Pace::default();
        let full = || Err(ControlError::System("the table is full".to_owned()));
        pace.judge(full(), false).unwrap();
        assert_eq!(pace.told.as_deref(), Some("the table is full"));
        pace.judge(Err(ControlError::Silent("worker 0 did not answer".to_owned())), false).unwrap();
        assert!(pace.is_silent);
        assert!(pace.judge(full(), true).is_err());
    }
}
