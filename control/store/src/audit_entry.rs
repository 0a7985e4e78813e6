//! Lines of the audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Who;
use crate::shortening::{short_request, shortened};

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
    /// Returns the entry with long texts and requests shortened. Its line has at most 8 KiB.
    pub(crate) fn shortened(self) -> Self {
        let who = Who { name: shortened(&self.who.name), ..self.who };
        let (operation, why) = (shortened(&self.operation), self.why.as_deref().map(shortened));
        let request = self.request.map(short_request);
        Self { who, operation, request, why, ..self }
    }
}
