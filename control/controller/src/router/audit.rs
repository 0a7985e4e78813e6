//! Audit log of a running router.

use std::time::Duration;

use millrace_store::{AuditEntry, AuditLog, Outcome, Who, Written};

use super::Router;
use crate::ControlError;
use crate::events::utc_now;

/// Maximum time that a shutdown waits until the last lines are written.
const PATIENCE: Duration = Duration::from_secs(2);

impl Router {
    pub(crate) fn audit(&self) -> AuditLog {
        self.0.audit.clone()
    }

    /// Records a request and its outcome with the current time. A thread writes the line later; the returned
    /// value can wait until the line is written. If writing fails, an event reports it.
    pub fn note(&self, entry: AuditEntry) -> Written {
        self.0.audit.add(AuditEntry { time: utc_now(), ..entry })
    }

    /// Waits until all recorded lines are written, for at most two seconds.
    pub async fn flush_audit(&self) {
        let log = self.audit();
        let flushed = tokio::task::spawn_blocking(move || log.flush(PATIENCE)).await;
        if !matches!(flushed, Ok(true)) {
            tracing::error!("the last lines of the audit log were not written, because the disk is too slow");
        }
    }

    /// Records an operation of the router itself with the resulting revision.
    pub(crate) fn note_own(&self, who: Who, operation: &str, result: Result<Option<u64>, &ControlError>) {
        let outcome = match result {
            Ok(_) => Outcome::Done,
            Err(error) if error.is_failure() => Outcome::Failed,
            Err(_) => Outcome::Refused,
        };
        // Nobody waits until the line is written.
        drop(self.note(AuditEntry {
            time: String::new(),
            who,
            role: None,
            pid: None,
            from: None,
            operation: operation.to_owned(),
            request: None,
            outcome,
            status: None,
            revision: result.ok().flatten(),
            why: result.err().map(ToString::to_string),
        }));
    }
}
