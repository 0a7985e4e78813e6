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
    /// Remaining seconds.
    pub seconds: u64,
}

/// Running configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConfigurationView {
    /// Text of the configuration, as a file.
    pub text: String,
    /// Name of the file that was applied last, or with which the router was started.
    pub origin: String,
    /// File of the revisions; `null` where revisions end with the router.
    pub store: Option<String>,
    /// Revision that waits for its confirmation.
    pub pending: Option<Pending>,
}

/// Difference between the running configuration and another one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferenceView {
    /// Name of the other configuration.
    pub origin: String,
    /// Commands that would make the changes.
    pub changes: Vec<String>,
    /// Changes that need a restart.
    pub restart: Vec<String>,
}

/// Outcome of applying a configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AppliedView {
    /// Number of the new revision. It is absent where nothing changed and the newest revision was running
    /// already, or where the previous revision runs again.
    pub revision: Option<u64>,
    /// Commands that would make the same changes.
    pub changes: Vec<String>,
    /// Time after which the change is rolled back unless it is confirmed: `60s`.
    pub confirm: Option<ConfirmTime>,
    /// Source of the configuration.
    pub origin: String,
    /// Revision that runs now, even if it is an earlier one; absent where nothing changed. The audit log
    /// records it.
    #[serde(skip)]
    pub runs: Option<u64>,
    /// Filters and bindings that never win, each with the filters that precede it; empty where nothing
    /// changed.
    pub shadowed: Vec<ShadowedView>,
}

impl AppliedView {
    /// Returns the outcome without changes.
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

/// Revision in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RevisionView {
    /// Revision.
    #[serde(flatten)]
    pub revision: Revision,
    /// Whether the revision was applied last, and not withdrawn. It runs, with the later changes of single
    /// commands.
    pub runs: bool,
}

/// Revision with its text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RevisionTextView {
    /// Revision.
    #[serde(flatten)]
    pub revision: Revision,
    /// Text of the configuration file.
    pub text: String,
}
