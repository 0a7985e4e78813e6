//! Audit log: records every change that users, API clients and plugins request.

use std::path::Path;
use std::time::Duration;

use millrace_config::Api;
use millrace_confine::Privileges;
use millrace_store::{AuditEntry, AuditLimits, AuditLog, AuditTrouble, Outcome, Who, Written};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::ControlError;
use crate::observe::events::{Events, utc_now};
use crate::router::Router;

/// Maximum time that a shutdown waits for the last lines to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens the audit log in a directory, with the configured limits. Without a directory, the log is lost when
/// the router ends.
///
/// # Errors
/// Returns an error if the log or its writer thread can't be created.
pub(crate) fn open(
    directory: Option<&Path>,
    settings: &Api,
    events: &Events,
) -> Result<AuditLog, ControlError> {
    let Some(directory) = directory else { return Ok(AuditLog::default()) };
    let (file, events) = (directory.join("audit.jsonl").display().to_string(), events.clone());
    let tell = move |trouble: AuditTrouble| {
        let (lost, text) = match trouble {
            AuditTrouble::Unwritten(error) => (1, format!("a line can't be written into {file}: {error}")),
            AuditTrouble::Lost(lost) => {
                let lines = millrace_units::count(lost, "line");
                (lost, format!("{lines} of {file} lost: the disk took them too slowly"))
            }
        };
        tracing::error!("{text}");
        events.note(EventKind::AuditFailed, &file, text, json!({"file": file, "lost": lost}));
    };
    let limits = AuditLimits { bytes: settings.audit_size.bytes(), files: settings.audit_files };
    // The writer thread keeps only the privileges for files.
    let opened = Privileges::Files.apart(|| AuditLog::open(directory, limits, tell));
    let failed = |error: String| ControlError::system("write the audit log", error);
    opened.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

impl Router {
    /// Returns the audit log.
    pub(crate) fn audit(&self) -> AuditLog {
        self.0.audit.clone()
    }

    /// Records a request and its outcome with the current time. A thread writes the line later; [`Written`]
    /// waits for it. If the line can't be written, the log notes an event.
    pub fn note(&self, entry: AuditEntry) -> Written {
        self.0.audit.add(AuditEntry { time: utc_now(), ..entry })
    }

    /// Waits until all recorded lines are written, two seconds at most.
    pub async fn flush_audit(&self) {
        let log = self.audit();
        let flushed = tokio::task::spawn_blocking(move || log.flush(PATIENCE)).await;
        if !matches!(flushed, Ok(true)) {
            tracing::error!(
                "the last lines of the audit log are not written: the disk takes them too slowly"
            );
        }
    }

    /// Records an action of the router itself, with the resulting revision.
    pub(crate) fn note_own(
        &self,
        who: Who,
        operation: &str,
        result: Result<Option<u64>, &ControlError>,
    ) {
        let outcome = match result {
            Ok(_) => Outcome::Done,
            Err(error) if error.is_failure() => Outcome::Failed,
            Err(_) => Outcome::Refused,
        };
        // There is no caller who waits for the line.
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
