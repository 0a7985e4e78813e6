//! Views of API tokens.

use millrace_config::Role;
use millrace_store::Who;
use schemars::JsonSchema;
use serde::Serialize;

/// API token without the secret text, which is not stored.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokenView {
    /// Name of the token.
    pub name: String,
    /// Role that the token grants.
    pub role: Role,
    /// Time of creation: date and time, UTC.
    pub created: String,
    /// Principal that created the token.
    pub created_by: Who,
    /// Time of expiry; absent for a token that does not expire.
    pub expires: Option<String>,
    /// Whether the token has expired.
    pub expired: bool,
    /// Time of the last use, date and time in UTC; absent if no use is known.
    pub used: Option<String>,
    /// Client address of the last use.
    pub used_from: Option<String>,
}

/// Newly created token.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CreatedTokenView {
    /// Description of the token, as in lists.
    #[serde(flatten)]
    pub about: TokenView,
    /// Secret text of the token. No later answer shows it.
    pub token: String,
}
