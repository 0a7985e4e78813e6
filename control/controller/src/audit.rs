//! What was asked for is noted: by people and programs, and by plugins.

use millrace_store::{AuditEntry, AuditLog, Outcome, Who};
use millrace_telemetry::EventKind;
use serde_json::{Value, json};

use crate::ControlError;
use crate::events::utc_now;
use crate::router::Router;
use crate::tokens::Tokens;

impl Router {
    /// The audit log.
    pub fn audit(&self) -> AuditLog {
        self.0.audit.clone()
    }

    /// By which one is let in from elsewhere.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Notes what was asked for, and what came of it, as of now. Where that can't be written, an event tells it.
    pub fn note(&self, entry: AuditEntry) {
        let written = self.0.audit.add(AuditEntry { time: utc_now(), ..entry });
        if let Err(error) = written {
            let file = self.0.audit.path().unwrap_or_default().display().to_string();
            tracing::error!(file, "a line can't be written into the audit log: {error}");
            let text = format!("a line can't be written into {file}: {error}");
            self.events().note(EventKind::AuditFailed, &file, text, json!({"file": file}));
        }
    }

    /// Notes what the router did by itself, or a plugin.
    pub(crate) fn note_own(
        &self,
        who: Who,
        operation: &str,
        request: Option<Value>,
        result: Result<(), &ControlError>,
    ) {
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(ControlError::System(_)) => Outcome::Failed,
            Err(_) => Outcome::Refused,
        };
        self.note(AuditEntry {
            time: String::new(),
            who,
            role: None,
            pid: None,
            from: None,
            operation: operation.to_owned(),
            request,
            outcome,
            status: None,
            why: result.err().map(ToString::to_string),
        });
    }
}
