//! Views of configurations, differences and revisions.

use millrace_config::Time;
use millrace_store::Revision;
use schemars::JsonSchema;
use serde::Serialize;

use crate::view::ShadowedView;

/// Time until an unconfirmed configuration is rolled back: 1 s to 24 h.
pub type ConfirmTime = Time<1_000_000, 86_400_000_000>;

/// Revision that waits for confirmation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Pending {
    /// Number of the revision.
    pub revision: u64,
    /// Remaining time in seconds.
    pub seconds: u64,
}

/// Running configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigurationView {
    /// Text of the configuration, as a file.
    pub text: String,
    /// Origin of the base configuration: name of a file or revision.
    pub origin: String,
    /// Path of the revision store; `null` if revisions are lost when the router ends.
    pub store: Option<String>,
    /// Revision that waits for its confirmation; `null` if none waits.
    pub pending: Option<Pending>,
}

/// Text of a file, with the running configuration written into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Saved {
    /// Text of the file.
    pub text: String,
}

/// Confirmed revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Confirmed {
    /// Number of the revision.
    pub revision: u64,
}

/// Changes that lead from the running configuration to another one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferenceView {
    /// Name of the other configuration.
    pub origin: String,
    /// Changes as commands.
    pub changes: Vec<String>,
    /// Settings that differ and need a restart.
    pub restart: Vec<String>,
}

/// Outcome of applying a configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AppliedView {
    /// Number of the new revision. Absent if nothing changed and the newest revision is running already, or
    /// if the router returned to the previous revision.
    pub revision: Option<u64>,
    /// Changes made, as commands.
    pub changes: Vec<String>,
    /// Time in which the new revision must be confirmed; otherwise it is rolled back: `60s`. Absent if no
    /// confirmation is needed.
    pub confirm: Option<ConfirmTime>,
    /// Origin of the configuration: name of a file or revision.
    pub origin: String,
    /// Number of the revision that runs now, for the audit log. After a return to the previous revision, it
    /// is the number of the previous revision. `None` if the request stored and changed nothing.
    #[serde(skip)]
    pub runs: Option<u64>,
    /// Filters and bindings that never win, each with the filters that shadow it; empty if nothing changed.
    pub shadowed: Vec<ShadowedView>,
}

impl AppliedView {
    /// Returns the outcome of an apply that changed nothing.
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

/// Entry in the list of revisions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RevisionView {
    /// Data of the revision, without its text.
    #[serde(flatten)]
    pub revision: Revision,
    /// Whether the revision was applied last and not withdrawn. Single commands may have changed the running
    /// configuration since then.
    pub runs: bool,
}

/// Revision, including its text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RevisionTextView {
    /// Data of the revision, without its text.
    #[serde(flatten)]
    pub revision: Revision,
    /// Text of the configuration file.
    pub text: String,
}
