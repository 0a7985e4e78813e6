//! Resources of the audit log and of API tokens.

use axum::routing::{delete, get, post};
use millrace_controller::Role::Admin;
use millrace_controller::view::{CreatedTokenView, TokenView};
use millrace_controller::{AuditEntry, NewToken};

use crate::effect::Effect;
use crate::operation::{Operation, Resource};
use crate::resources::{audit, tokens};

/// Returns the resources of the audit log and of tokens.
pub(super) fn access() -> Vec<Resource> {
    vec![
        Resource::new("/audit").on(
            Operation::get::<Vec<AuditEntry>>(
                Admin,
                "the audit log: who requested which change, and the outcome",
            )
            .effect(Effect::Access)
            .arguments::<audit::Wanted>(),
            get(audit::audit),
        ),
        Resource::new("/tokens")
            .on(
                Operation::get::<Vec<TokenView>>(Admin, "API tokens, with owner and last use")
                    .effect(Effect::Access),
                get(tokens::list),
            )
            .on(
                Operation::create::<CreatedTokenView>(Admin, "creates a token; the answer shows it once")
                    .effect(Effect::Access)
                    .body::<NewToken>(),
                post(tokens::create),
            ),
        Resource::new("/tokens/{name}").on(
            Operation::delete::<TokenView>(Admin, "revokes a token").effect(Effect::Access),
            delete(tokens::revoke),
        ),
    ]
}
