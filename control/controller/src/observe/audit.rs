//! What was asked for is noted: by people and programs, and by plugins.

use std::path::Path;
use std::time::Duration;

use millrace_config::Api;
use millrace_confine::Privileges;
use millrace_store::{AuditEntry, AuditLimits, AuditLog, AuditTrouble, Outcome, Who, Written};
use millrace_telemetry::EventKind;
use serde_json::{Value, json};

use crate::ControlError;
use crate::observe::events::{Events, utc_now};
use crate::router::Router;

/// How long the end of the router waits for the last lines.
const PATIENCE: Duration = Duration::from_secs(2);

/// The audit log of a directory, as the configuration wants it; without one it ends with the router.
///
/// # Errors
/// When the system gives no thread.
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
    // The thread that writes needs files, and nothing else.
    let opened = Privileges::Files.apart(|| AuditLog::open(directory, limits, tell));
    let failed = |error: String| ControlError::system("write the audit log", error);
    opened.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

impl Router {
    /// The audit log.
    pub fn audit(&self) -> AuditLog {
        self.0.audit.clone()
    }

    /// Notes what was asked for, and what came of it, as of now. It is written by and by, which can be waited for; where it can't be
    /// written, an event tells it.
    pub fn note(&self, entry: AuditEntry) -> Written {
        self.0.audit.add(AuditEntry { time: utc_now(), ..entry })
    }

    /// Waits, a while at most, until all that was noted is written.
    pub async fn flush_audit(&self) {
        let log = self.audit();
        let flushed = tokio::task::spawn_blocking(move || log.flush(PATIENCE)).await;
        if !matches!(flushed, Ok(true)) {
            tracing::error!(
                "the last lines of the audit log are not written: the disk takes them too slowly"
            );
        }
    }

    /// Notes what the router did by itself, or a plugin, with the revision that it led to.
    pub(crate) fn note_own(
        &self,
        who: Who,
        operation: &str,
        request: Option<Value>,
        result: Result<Option<u64>, &ControlError>,
    ) {
        let outcome = match result {
            Ok(_) => Outcome::Done,
            Err(ControlError::System(_)) => Outcome::Failed,
            Err(_) => Outcome::Refused,
        };
        // Nobody is answered.
        drop(self.note(AuditEntry {
            time: String::new(),
            who,
            role: None,
            pid: None,
            from: None,
            operation: operation.to_owned(),
            request,
            outcome,
            status: None,
            revision: result.ok().flatten(),
            why: result.err().map(ToString::to_string),
        }));
    }
}
