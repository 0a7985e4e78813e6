//! Operations on API tokens and the audit log.

use millrace_store::AuditEntry;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ControlError;
use crate::access::tokens::NewToken;
use crate::background::blocking;
use crate::operation::kinds::{Acting, Action, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::view::{CreatedTokenView, TokenView};

const STORE: &str = "store the API tokens";
const READ: &str = "read the audit log";

/// Lists the tokens, by name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListTokens;

impl Operation for ListTokens {
    type Answer = Vec<TokenView>;
    type Kind = Query;
    const EFFECT: Effect = Effect::ReadAccess;

    /// # Errors
    /// Returns an error if the thread that reads the tokens fails.
    async fn carry_out(self, router: &Reading) -> Result<Vec<TokenView>, ControlError> {
        let tokens = router.tokens().clone();
        blocking(STORE, move || Ok(tokens.list())).await
    }
}

/// Creates a token.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct CreateToken(pub NewToken);

impl Operation for CreateToken {
    type Answer = CreatedTokenView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Access;
    const NO_INVERSE: &'static str = "the secret of a token is shown once";

    /// # Errors
    /// Returns an error for an invalid name, a name in use, an expiry that is too far away, too many tokens,
    /// or a file that can't be written.
    async fn carry_out(self, router: &Acting) -> Result<CreatedTokenView, ControlError> {
        let (tokens, who) = (router.tokens().clone(), router.caller().who.clone());
        blocking(STORE, move || tokens.create(&self.0, &who)).await
    }
}

/// Revokes a token: from now on it authenticates nobody.
#[derive(Clone, Debug, Deserialize)]
pub struct RevokeToken {
    /// Name of the token.
    pub name: String,
}

impl Operation for RevokeToken {
    type Answer = TokenView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Access;
    const NO_INVERSE: &'static str = "the secret of a token is stored nowhere";

    /// # Errors
    /// Returns an error if the name is unknown, or if the file can't be written.
    async fn carry_out(self, router: &Acting) -> Result<TokenView, ControlError> {
        let tokens = router.tokens().clone();
        blocking(STORE, move || tokens.revoke(&self.name)).await
    }
}

/// Returns the last lines of the audit log, the oldest first.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadAudit {
    /// Number of latest lines, 1 to 10,000; 100 by default.
    #[schemars(range(min = 1, max = 10_000))]
    pub last: Option<usize>,
}

impl Operation for ReadAudit {
    type Answer = Vec<AuditEntry>;
    type Kind = Query;
    const EFFECT: Effect = Effect::ReadAccess;

    /// # Errors
    /// Returns an error for a number out of range, or if the log can't be read.
    async fn carry_out(self, router: &Reading) -> Result<Vec<AuditEntry>, ControlError> {
        let last = ControlError::in_range("last", self.last.unwrap_or(100), 1..=10_000)?;
        let log = router.audit();
        let read = move || log.last(last).map_err(|error| ControlError::system(READ, error));
        blocking(READ, read).await
    }
}
