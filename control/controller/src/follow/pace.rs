//! Tracks whether the workers keep up with the changes that control sends to them.

use millrace_host::HostChange;

use crate::ControlError;

/// Failures while control follows the kernel: workers that did not answer, and kernel changes to repeat.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Whether a worker did not answer.
    pub is_silent: bool,
    /// Kernel changes to repeat, because a worker did not answer. Control takes no further changes until they
    /// succeed.
    pub undone: Option<Vec<HostChange>>,
    /// Text of the last failure, so that a repeated failure is logged once.
    told: Option<String>,
}

impl Pace {
    /// Logs a failed step. Returns the error only if a worker's thread has ended: a router that forwards must
    /// survive any other failure.
    pub fn judge(&mut self, done: Result<(), ControlError>, has_ended: bool) -> Result<(), ControlError> {
        match done {
            Ok(()) => {}
            Err(error) if has_ended => return Err(error),
            Err(ControlError::Silent(problem)) => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    tracing::error!(
                        "{problem}: changes of the kernel are not applied until the data plane answers"
                    );
                }
            }
            Err(other) => {
                let problem = other.to_string();
                if self.told.as_ref() != Some(&problem) {
                    tracing::error!(
                        "can't apply a kernel change (address, route, neighbour or link): {problem}; the router continues without it"
                    );
                    self.told = Some(problem);
                }
            }
        }
        Ok(())
    }

    /// Notes that all workers have answered.
    pub fn goes_on(&mut self) {
        self.told = None;
        if std::mem::take(&mut self.is_silent) {
            tracing::warn!("the data plane answers again");
        }
    }
}

/// Returns the next batch of kernel changes; waits forever without a mirror.
pub(super) async fn next_batch(changes: &mut Option<crate::kernel::Changes>) -> Vec<HostChange> {
    if let Some(receiver) = changes {
        if let Some(batch) = receiver.recv().await {
            return batch;
        }
        *changes = None;
    }
    std::future::pending().await
}

/// Whether a result is the error of a worker that did not answer.
pub(super) fn is_silent(done: &Result<(), ControlError>) -> bool {
    matches!(done, Err(ControlError::Silent(_)))
}

/// Returns the more serious of two results: the error of a worker that did not answer, or else the first
/// error. Only the error of a silent worker makes control repeat the whole batch.
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
    fn unapplied_kernel_change_ends_the_router_only_if_a_worker_has_ended() {
        let mut pace = Pace::default();
        let full = || Err(ControlError::System("the table is full".to_owned()));
        pace.judge(full(), false).unwrap();
        assert_eq!(pace.told.as_deref(), Some("the table is full"));
        pace.judge(Err(ControlError::Silent("worker 0 did not answer".to_owned())), false).unwrap();
        assert!(pace.is_silent);
        assert!(pace.judge(full(), true).is_err());
    }
}
