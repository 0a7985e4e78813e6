//! Calls: operations of a principal that the audit log records as one line.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_store::{AuditEntry, Outcome, Written};
use serde_json::{Value, json};

use super::{Effect, Principal};
use crate::ControlError;
use crate::router::Router;

/// Maximum length of a recorded body, in bytes.
const MOST_BYTES: usize = 1 << 16;

/// Call of a principal: one request, which executes one or more operations. Clones refer to the same call.
///
/// If its effect is audited, the log gets one line: when the call is closed, or else when the last clone is
/// dropped. A call that was dropped before an operation was executed is recorded as abandoned.
#[derive(Clone, Debug)]
pub struct Call(Arc<Record>);

#[derive(Debug)]
struct Record {
    router: Router,
    principal: Principal,
    /// Name of the call in the log: `POST /filters`.
    operation: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_audited: bool,
    is_closed: bool,
    content: Option<Value>,
    /// Outcome of the last audited operation.
    settled: Option<Settled>,
}

/// Outcome of an operation: its kind, the reason for a failure, and the resulting revision.
#[derive(Debug)]
struct Settled(Outcome, Option<String>, Option<u64>);

impl Call {
    /// Returns a call. `operation` names it in the log, and `effect` decides whether it is audited before any
    /// operation is executed.
    pub fn new(router: &Router, principal: Principal, operation: String, effect: Effect) -> Self {
        let state = Mutex::new(State { is_audited: effect.is_audited(), ..State::default() });
        Self(Arc::new(Record { router: router.clone(), principal, operation, state }))
    }

    /// Returns the principal that makes the call.
    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// Sets the recorded content.
    pub fn set_content(&self, content: Value) {
        self.0.state().content = Some(content);
    }

    /// Sets the recorded content to that of a body: JSON, text, or only its length if it is long.
    pub fn set_body(&self, body: &[u8]) {
        self.set_content(brief(body));
    }

    /// Notes that an operation with this effect begins. If the call is dropped before the operation ends, it is
    /// recorded as abandoned.
    pub(super) fn begin(&self, effect: Effect) {
        if effect.is_audited() {
            let mut state = self.0.state();
            state.is_audited = true;
            state.settled = None;
        }
    }

    /// Notes the result of an operation with this effect. Every refusal for lack of a role is audited.
    pub(super) fn end(&self, effect: Effect, result: Result<Option<u64>, &ControlError>) {
        let is_forbidden = matches!(result, Err(ControlError::Forbidden(..)));
        if !effect.is_audited() && !is_forbidden {
            return;
        }
        let mut state = self.0.state();
        state.is_audited = true;
        state.settled = Some(match result {
            Ok(revision) => Settled(Outcome::Done, None, revision),
            Err(error) => {
                let outcome = if error.is_failure() { Outcome::Failed } else { Outcome::Refused };
                Settled(outcome, Some(error.to_string()), None)
            }
        });
    }

    /// Writes the line of an audited call. `refused` is the reason for a refusal before or after the
    /// operations. `status` is that of the answer over HTTP. Returns `None` for a call that is not audited.
    pub fn close(&self, status: Option<u16>, refused: Option<Cow<'_, str>>) -> Option<Written> {
        let settled = self.0.state().settled.take();
        let settled = match (settled, refused) {
            (Some(settled @ Settled(Outcome::Failed | Outcome::Refused, ..)), _) => settled,
            (_, Some(why)) => {
                let is_failure = status.is_some_and(|status| status >= 500);
                let outcome = if is_failure { Outcome::Failed } else { Outcome::Refused };
                Settled(outcome, Some(why.into_owned()), None)
            }
            (Some(settled), None) => settled,
            (None, None) => Settled(Outcome::Done, None, None),
        };
        self.0.write(settled, status)
    }
}

impl Record {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, Settled(outcome, why, revision): Settled, status: Option<u16>) -> Option<Written> {
        let mut state = self.state();
        if state.is_closed || !state.is_audited {
            return None;
        }
        state.is_closed = true;
        let entry = self.principal.entry(self.operation.clone(), outcome);
        let request = state.content.take();
        Some(self.router.note(AuditEntry { request, status, why, revision, ..entry }))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let settled = self.state().settled.take();
        let settled = settled.unwrap_or_else(|| {
            let why = "the client disconnected before the answer".to_owned();
            Settled(Outcome::Abandoned, Some(why), None)
        });
        // There is no caller who waits for the line.
        drop(self.write(settled, None));
    }
}

/// Returns the content of a body, or only its length if it is too long. The log itself shortens long values.
fn brief(body: &[u8]) -> Value {
    if body.len() > MOST_BYTES {
        return json!(format!("{} bytes", body.len()));
    }
    serde_json::from_slice(body).unwrap_or_else(|_| json!(String::from_utf8_lossy(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_recorded_by_its_length() {
        assert_eq!(brief(br#"{"origin": "a.toml"}"#)["origin"], "a.toml");
        assert_eq!(brief(&vec![b'['; 100_000]), "100000 bytes");
        assert_eq!(brief(b"{nonsense"), "{nonsense");
    }
}
