//! Operations on API tokens and the audit log.

use crate::ControlError;
use crate::access::tokens::NewToken;
use crate::access::tokens::on_blocking_thread;
use crate::operation::Authorized;
use crate::operation::Effect;
use crate::operation::Operation;
use crate::router::Router;
use crate::view::CreatedTokenView;
use crate::view::TokenView;
use millrace_store::AuditEntry;
use schemars::JsonSchema;
use serde::Deserialize;

/// Lists the tokens, by name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListTokens;

impl Operation for ListTokens {
    type Answer = Vec<TokenView>;
    const EFFECT: Effect = Effect::ReadAccess;

    /// # Errors
    /// Returns an error if the thread that reads the tokens fails.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<Vec<TokenView>, ControlError> {
        let tokens = router.tokens().clone();
        on_blocking_thread(move || Ok(tokens.list())).await
    }
}

/// Creates a token.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct CreateToken(pub NewToken);

impl Operation for CreateToken {
    type Answer = CreatedTokenView;
    const EFFECT: Effect = Effect::Access;

    /// # Errors
    /// Returns an error for an invalid or used name, an expiry that is too far away, too many tokens, or a
    /// file that can't be written.
    async fn carry_out(
        self,
        router: &Router,
        caller: &Authorized<'_>,
    ) -> Result<CreatedTokenView, ControlError> {
        let (tokens, who) = (router.tokens().clone(), caller.who.clone());
        on_blocking_thread(move || tokens.create(&self.0, &who)).await
    }
}

/// Revokes a token: from now on it authenticates nobody.
#[derive(Clone, Debug)]
pub struct RevokeToken {
    /// Name of the token.
    pub name: String,
}

impl Operation for RevokeToken {
    type Answer = TokenView;
    const EFFECT: Effect = Effect::Access;

    /// # Errors
    /// Returns an error if the name is unknown, or if the file can't be written.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<TokenView, ControlError> {
        let tokens = router.tokens().clone();
        on_blocking_thread(move || tokens.revoke(&self.name)).await
    }
}

/// Returns the last lines of the audit log, the oldest first.
#[derive(Clone, Copy, Debug)]
pub struct ReadAudit {
    /// Maximum number of lines.
    pub last: usize,
}

impl Operation for ReadAudit {
    type Answer = Vec<AuditEntry>;
    const EFFECT: Effect = Effect::ReadAccess;

    /// # Errors
    /// Returns an error if the log can't be read.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<Vec<AuditEntry>, ControlError> {
        let log = router.audit();
        let read = tokio::task::spawn_blocking(move || log.last(self.last)).await;
        let failed = |error: String| ControlError::system("read the audit log", error);
        let lines = read.map_err(|error| failed(error.to_string()))?;
        lines.map_err(|error| failed(error.to_string()))
    }
}
