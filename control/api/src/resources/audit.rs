//! Audit log: records changes and reads of packets, and serves the resource `/audit`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_controller::{AuditEntry, ControlError, Outcome, Router, Written};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::effect::Effect;
use crate::http::extract::{Arguments, Noted};
use crate::http::problem::{Detail, Problem};
use crate::principal::Principal;
use crate::served::Served;

/// Maximum time that an answer waits until its line is written.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of a request body that is recorded, in bytes.
const MOST_BYTES: usize = 1 << 16;

/// Selection of audit log lines.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Number of latest lines, 1 to 10,000; 100 by default.
    #[schemars(range(min = 1, max = 10_000))]
    last: Option<usize>,
}

/// Returns the last lines of the audit log, the oldest first.
pub(crate) async fn audit(
    State(served): State<Served>,
    Arguments(wanted): Arguments<Wanted>,
) -> Result<Json<Vec<AuditEntry>>, Problem> {
    let last = wanted.last.unwrap_or(100);
    if !(1..=10_000).contains(&last) {
        return Err(Problem::bad_request(format!("last = {last} is out of range: give 1 to 10000")));
    }
    let log = served.control.audit();
    let read = tokio::task::spawn_blocking(move || log.last(last)).await;
    let failed = |error: String| ControlError::system("read the audit log", error);
    let lines = read.map_err(|error| failed(error.to_string()))?;
    Ok(Json(lines.map_err(|error| failed(error.to_string()))?))
}

/// Answer to a change of the configuration, with the resulting revision for the audit log.
pub(crate) struct Led<T>(pub Option<u64>, pub T);

/// Revision to which a change led.
#[derive(Clone, Copy, Debug)]
struct LedTo(u64);

impl<T: Serialize> IntoResponse for Led<T> {
    fn into_response(self) -> Response {
        let Self(revision, answer) = self;
        let mut response = Json(answer).into_response();
        if let Some(revision) = revision {
            response.extensions_mut().insert(LedTo(revision));
        }
        response
    }
}

/// Carries out a request, and records it if its effect is audited.
pub(crate) async fn note(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    mut request: Request,
    next: Next,
) -> Response {
    let effect = served.documents.effect(request.method(), request.uri().path());
    if !effect.is_audited(request.method().as_str()) {
        return next.run(request).await;
    }
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    let (operation, arguments) = match effect == Effect::Packets {
        true => (format!("{} {}", request.method(), request.uri().path()), arguments(request.uri())),
        false => (format!("{} {}", request.method(), request.uri()), None),
    };
    let asked = Asked { control: served.control, principal, operation, arguments, noted, is_answered: false };
    let response = next.run(request).await;
    let written = asked.answered(&response);
    // The answer normally follows the line. A slow disk delays it only briefly.
    if tokio::time::timeout(PATIENCE, written.done()).await.is_err() {
        tracing::warn!(
            "the disk is too slow for the audit log: an answer was sent before its line was written"
        );
    }
    response
}

/// Audited request. If the client disconnects before the answer, dropping it records that.
struct Asked {
    control: Router,
    principal: Principal,
    operation: String,
    /// Query arguments to record; only for reads of packets.
    arguments: Option<Value>,
    noted: Noted,
    is_answered: bool,
}

impl Asked {
    fn answered(mut self, response: &Response) -> Written {
        self.is_answered = true;
        let status = response.status();
        let why = response.extensions().get::<Detail>().map(|Detail(text)| text.clone());
        let revision = response.extensions().get::<LedTo>().map(|LedTo(revision)| *revision);
        self.note(outcome(status), Some(status.as_u16()), why, revision)
    }

    fn note(
        &self,
        outcome: Outcome,
        status: Option<u16>,
        why: Option<String>,
        revision: Option<u64>,
    ) -> Written {
        let request = self.arguments.clone().or_else(|| self.noted.0.get().map(|body| brief(body)));
        let entry = self.principal.entry(self.operation.clone(), outcome);
        self.control.note(AuditEntry { request, status, why, revision, ..entry })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_answered {
            let why = "the client disconnected before the answer".to_owned();
            drop(self.note(Outcome::Abandoned, None, Some(why), None));
        }
    }
}

/// Returns the query arguments of a request as an object; `None` if there are none, or they are invalid.
fn arguments(uri: &Uri) -> Option<Value> {
    let Query(arguments) = Query::<BTreeMap<String, String>>::try_from_uri(uri).ok()?;
    (!arguments.is_empty()).then(|| json!(arguments))
}

fn outcome(status: StatusCode) -> Outcome {
    match status.as_u16() {
        200..=299 => Outcome::Done,
        500.. => Outcome::Failed,
        _ => Outcome::Refused,
    }
}

/// Returns the body of a request, or only its length if it is too long. The log itself shortens long values.
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
    fn what_is_too_long_is_told_by_its_length() {
        assert_eq!(brief(br#"{"origin": "a.toml"}"#)["origin"], "a.toml");
        assert_eq!(brief(&vec![b'['; 100_000]), "100000 bytes");
        assert_eq!(brief(b"{nonsense"), "{nonsense");
    }
}
