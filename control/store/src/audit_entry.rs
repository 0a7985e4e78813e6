//! Lines of the audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Who;

/// Longest text in a line, in letters: whoever asks for much, or for what is refused with many words, must not push out what others did.
const MOST_TEXT: usize = 200;
/// Longest list in it.
const MOST_ENTRIES: usize = 20;

/// What came of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was refused, and nothing was changed.
    Refused,
    /// It could not be done.
    Failed,
    /// Whoever asked went before it was answered: it may have been done.
    Abandoned,
}

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// When it was answered: date and time, UTC.
    pub time: String,
    /// By whom.
    pub who: Who,
    /// The role that they had; none where they had none, or it was the router or a plugin.
    #[serde(default)]
    pub role: Option<String>,
    /// The process that asked; none where it was the router or a plugin, or somebody elsewhere.
    pub pid: Option<i32>,
    /// The address that it was asked from; none where it was this machine.
    #[serde(default)]
    pub from: Option<String>,
    /// The operation: a method and a resource, or what a plugin did.
    pub operation: String,
    /// What was asked for, in short; nothing where the operation says all.
    pub request: Option<Value>,
    /// What came of it.
    pub outcome: Outcome,
    /// The status of the answer, where it was one of the interface.
    pub status: Option<u16>,
    /// Why it was not done.
    pub why: Option<String>,
    /// The revision of the configuration that it led to; none where it made none.
    #[serde(default)]
    pub revision: Option<u64>,
}

impl AuditEntry {
    /// Without what is long in it.
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
