//! Lines of the audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Who;

/// Maximum length of a text in a line, in characters. Without this limit, long requests would fill the log
/// and displace the lines of other users.
const MOST_TEXT: usize = 200;
/// Maximum number of items of a list in a line.
const MOST_ENTRIES: usize = 20;

/// Outcome of a request, as logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The request was carried out.
    Done,
    /// The request was refused, and nothing changed.
    Refused,
    /// The request failed.
    Failed,
    /// The client left before the answer: the request may have been carried out.
    Abandoned,
}

/// Entry of the audit log: a request for a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Date and time of the answer, UTC.
    pub time: String,
    /// User, router or plugin instance that made the request.
    pub who: Who,
    /// Role of the requester; `None` for a requester without a role, and for the router.
    #[serde(default)]
    pub role: Option<String>,
    /// Process id of the requester; `None` for the router, a plugin or a remote client.
    pub pid: Option<i32>,
    /// Remote address of the requester; `None` for a requester on this machine.
    #[serde(default)]
    pub from: Option<String>,
    /// Operation: a method and a resource, or the action of a plugin.
    pub operation: String,
    /// Shortened content of the request; `None` if the operation is the whole request.
    pub request: Option<Value>,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// HTTP status of the answer; `None` for a request that did not use the API.
    pub status: Option<u16>,
    /// Reason why the request was not carried out; `None` if it was.
    pub why: Option<String>,
    /// Revision that the request created; `None` if it created none.
    #[serde(default)]
    pub revision: Option<u64>,
}

impl AuditEntry {
    /// Returns the entry with long texts and lists shortened.
    pub(crate) fn shortened(self) -> Self {
        let Self { operation, request, why, .. } = &self;
        let (operation, why) = (shortened(operation), why.as_deref().map(shortened));
        let request = request.clone().map(without_long);
        Self { operation, request, why, ..self }
    }
}

fn without_long(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shortened(&text)),
        Value::Array(entries) => {
            let more = entries.len().saturating_sub(MOST_ENTRIES);
            let mut kept: Vec<Value> = entries.into_iter().take(MOST_ENTRIES).map(without_long).collect();
            if more > 0 {
                kept.push(Value::String(format!("… and {more} more")));
            }
            Value::Array(kept)
        }
        Value::Object(keys) => {
            let more = keys.len().saturating_sub(MOST_ENTRIES);
            let kept = keys.into_iter().take(MOST_ENTRIES);
            let mut kept: serde_json::Map<_, _> =
                kept.map(|(key, value)| (shortened(&key), without_long(value))).collect();
            if more > 0 {
                kept.insert("…".to_owned(), Value::String(format!("and {more} more")));
            }
            Value::Object(kept)
        }
        other => other,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
