//! Configurations, differences and revisions.

use millrace_store::Revision;
use schemars::JsonSchema;
use serde::Serialize;

use crate::configuration::{ConfirmTime, Pending};
use crate::view::ShadowedView;

/// What runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigurationView {
    /// As a file would say it.
    pub text: String,
    /// The file that was applied last, or that the router was started with.
    pub origin: String,
    /// Where revisions are kept; nowhere, where they end with the router.
    pub store: Option<String>,
    /// What waits to be confirmed.
    pub pending: Option<Pending>,
}

/// What makes one configuration of what runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferenceView {
    /// The configuration's name.
    pub origin: String,
    /// The commands that would make it so.
    pub changes: Vec<String>,
    /// What only a restart can change.
    pub restart: Vec<String>,
}

/// What was applied.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AppliedView {
    /// Its revision; none where nothing changed, and what runs was the newest revision already, or where what ran before runs again.
    pub revision: Option<u64>,
    /// The commands that would have done the same.
    pub changes: Vec<String>,
    /// Time after which it goes back, unless it is confirmed: `60s`.
    pub confirm: Option<ConfirmTime>,
    /// Where it came from.
    pub origin: String,
    /// The revision that runs now, also where that is one from before; none where nothing changed. The audit log tells it.
    #[serde(skip)]
    pub runs: Option<u64>,
    /// Filters and bindings that never win, each with those that come before it; empty where nothing changed.
    pub shadowed: Vec<ShadowedView>,
}

impl AppliedView {
    /// Nothing was to be changed.
    pub fn nothing(origin: &str) -> Self {
        Self {
            revision: None,
            changes: Vec::new(),
            confirm: None,
            origin: origin.to_owned(),
            runs: None,
            shadowed: Vec::new(),
        }
    }
}

/// A revision in a list of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RevisionView {
    /// The revision.
    #[serde(flatten)]
    pub revision: Revision,
    /// Whether it was applied last, and not withdrawn: it runs, with what single commands have changed since.
    pub runs: bool,
}

/// A revision and its text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RevisionTextView {
    /// The revision.
    #[serde(flatten)]
    pub revision: Revision,
    /// The file's text.
    pub text: String,
}
