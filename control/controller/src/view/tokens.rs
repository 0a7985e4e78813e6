//! Tokens as people see them.

use millrace_config::Role;
use millrace_store::Who;
use schemars::JsonSchema;
use serde::Serialize;

/// A token, without its secret, which nobody keeps.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokenView {
    /// Its name.
    pub name: String,
    /// What who has it may do.
    pub role: Role,
    /// When it was made: date and time, UTC.
    pub created: String,
    /// Who made it.
    pub created_by: Who,
    /// When it ends; nothing where it doesn't by itself.
    pub expires: Option<String>,
    /// Whether it has ended.
    pub expired: bool,
    /// When it was last used, as far as is known; nothing where it never was.
    pub used: Option<String>,
    /// From which address that was.
    pub used_from: Option<String>,
}

/// A token that was just made.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CreatedTokenView {
    /// What it is.
    #[serde(flatten)]
    pub about: TokenView,
    /// The token itself. It is told this once.
    pub token: String,
}
