//! Audit log: records every change that users, API clients and plugins request.

use std::path::Path;

use millrace_config::Api;
use millrace_confine::Privileges;
use millrace_store::{AuditLimits, AuditLog, AuditTrouble};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::ControlError;
use crate::events::Events;

/// Opens the audit log in a directory, with the configured limits. Without a directory, the log is lost when
/// the router ends.
pub(crate) fn open(
    directory: Option<&Path>,
    settings: &Api,
    events: &Events,
) -> Result<AuditLog, ControlError> {
    let Some(directory) = directory else { return Ok(AuditLog::default()) };
    let (file, events) = (directory.join("audit.jsonl").display().to_string(), events.clone());
    let tell = move |trouble: AuditTrouble| {
        let (lost, text) = match trouble {
            AuditTrouble::Unwritten(error) => {
                (1, format!("can't write a line to the audit log {file}: {error}"))
            }
            AuditTrouble::Lost(lost) => {
                let lines = millrace_units::count(lost, "line");
                (lost, format!("{lines} of the audit log {file} lost, because the disk was too slow"))
            }
        };
        tracing::error!("{text}");
        events.note(EventKind::AuditFailed, &file, text, json!({"file": file, "lost": lost}));
    };
    let limits = AuditLimits { bytes: settings.audit_size.bytes(), files: settings.audit_files };
    // The writer thread drops all privileges except those for files.
    let opened = Privileges::Files.apart(|| AuditLog::open(directory, limits, tell));
    let what = "open the audit log";
    let opened = opened.map_err(|error| ControlError::system(what, error))?;
    opened.map_err(|error| ControlError::system(what, error))
}
