//! Views of API tokens.

use millrace_config::Role;
use millrace_store::Who;
use schemars::JsonSchema;
use serde::Serialize;

/// API token without its secret, which is not kept.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokenView {
    /// Name of the token.
    pub name: String,
    /// Role that the token grants.
    pub role: Role,
    /// Time of creation: date and time, UTC.
    pub created: String,
    /// Creator of the token.
    pub created_by: Who,
    /// Time of expiry; absent for a token that does not expire.
    pub expires: Option<String>,
    /// Whether the token has expired.
    pub expired: bool,
    /// Time of the last use, as far as it is known; absent for an unused token.
    pub used: Option<String>,
    /// Address of the last use.
    pub used_from: Option<String>,
}

/// Newly created token.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CreatedTokenView {
    /// Description of the token.
    #[serde(flatten)]
    pub about: TokenView,
    /// Token itself. It is shown only this once.
    pub token: String,
}
