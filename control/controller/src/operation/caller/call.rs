//! Calls: requests of a principal, each recorded as one line of the audit log.

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
/// If its effect is audited, the call writes one line to the audit log when it is closed. If all clones are
/// dropped before the call is closed, the line records that the call was abandoned.
#[derive(Clone, Debug)]
pub struct Call(Arc<Record>);

#[derive(Debug)]
struct Record {
    router: Router,
    principal: Principal,
    /// Name of the call in the log: `POST /filters`.
    operation: String,
    /// Whether the call consists of a single operation. If so, dropping the call without `close` records the
    /// operation's outcome, instead of an abandoned call.
    is_single: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_audited: bool,
    is_closed: bool,
    /// Body or other content of the request.
    content: Content,
    /// Outcome of the last audited operation.
    settled: Option<Settled>,
}

/// Content of a request. A body is parsed only when the line of the log is written.
#[derive(Debug, Default)]
enum Content {
    #[default]
    None,
    Value(Value),
    Body(Vec<u8>),
    /// Length in bytes of a body that is too long to be recorded.
    Long(usize),
}

/// Outcome of an operation: its kind, the reason if it failed, and the resulting revision of the
/// configuration.
#[derive(Debug)]
struct Settled(Outcome, Option<String>, Option<u64>);

impl Call {
    /// Creates a call. `operation` is the call's name in the log. If `effect` is audited, the call is
    /// recorded even if it executes no operation.
    pub fn new(router: &Router, principal: Principal, operation: String, effect: Effect) -> Self {
        Self::of(router, principal, operation, effect, false)
    }

    /// Creates a call of a single operation. Its line is written when the call is dropped.
    pub(super) fn single(router: &Router, principal: Principal, operation: String, effect: Effect) -> Self {
        Self::of(router, principal, operation, effect, true)
    }

    fn of(router: &Router, principal: Principal, operation: String, effect: Effect, is_single: bool) -> Self {
        let state = Mutex::new(State { is_audited: effect.is_audited(), ..State::default() });
        Self(Arc::new(Record { router: router.clone(), principal, operation, is_single, state }))
    }

    /// Returns the principal that makes the call.
    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// Sets the content that the log records.
    pub fn set_content(&self, content: Value) {
        self.0.state().content = Content::Value(content);
    }

    /// Sets the recorded content to a body: JSON or text, or only the length of a long body.
    pub fn set_body(&self, body: &[u8]) {
        let content = match body.len() > MOST_BYTES {
            true => Content::Long(body.len()),
            false => Content::Body(body.to_vec()),
        };
        self.0.state().content = content;
    }

    /// Notes that an operation with this effect begins. If the call is dropped before the operation ends, the
    /// audit log records the call as abandoned.
    pub(in crate::operation) fn begin(&self, effect: Effect) {
        if effect.is_audited() {
            let mut state = self.0.state();
            state.is_audited = true;
            state.settled = None;
        }
    }

    /// Notes the result of an operation with this effect. A refusal for lack of a role is always audited.
    pub(in crate::operation) fn end(&self, effect: Effect, result: Result<Option<u64>, &ControlError>) {
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

    /// Writes the line of an audited call. `status` is the status of the HTTP response, and `why` the
    /// response's text if it is an error. Returns `None` for a call that is not audited.
    pub fn close(&self, status: Option<u16>, why: Option<String>) -> Option<Written> {
        let settled = self.0.state().settled.take();
        let is_error = why.is_some() || status.is_some_and(|status| status >= 300);
        let settled = match settled {
            // The text of the HTTP response takes precedence over the operation's error text, because it
            // spells keys as the request does.
            Some(Settled(outcome @ (Outcome::Failed | Outcome::Refused), own, _)) => {
                Settled(outcome, why.or(own), None)
            }
            // The error came from no operation: the request is invalid, or a condition of the request failed.
            _ if is_error => {
                let is_failure = status.is_some_and(|status| status >= 500);
                Settled(if is_failure { Outcome::Failed } else { Outcome::Refused }, why, None)
            }
            Some(done) => done,
            None => Settled(Outcome::Done, None, None),
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
        let request = std::mem::take(&mut state.content).brief();
        Some(self.router.note(AuditEntry { request, status, why, revision, ..entry }))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let settled = match self.state().settled.take() {
            Some(settled) if self.is_single || settled.0 != Outcome::Done => settled,
            settled => {
                let why = "the caller disconnected before the answer".to_owned();
                Settled(Outcome::Abandoned, Some(why), settled.and_then(|Settled(.., revision)| revision))
            }
        };
        // Nobody waits until the line is written.
        drop(self.write(settled, None));
    }
}

impl Content {
    /// Returns the content for the log, which shortens long values.
    fn brief(self) -> Option<Value> {
        Some(match self {
            Self::None => return None,
            Self::Value(value) => value,
            Self::Long(length) => json!(format!("{length} bytes")),
            Self::Body(body) => {
                serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_body_is_recorded_by_its_length() {
        let brief = |body: &[u8]| Content::Body(body.to_vec()).brief().unwrap();
        assert_eq!(brief(br#"{"origin": "a.toml"}"#)["origin"], "a.toml");
        assert_eq!(brief(b"{nonsense"), "{nonsense");
        assert_eq!(Content::Long(100_000).brief().unwrap(), "100000 bytes");
    }
}
