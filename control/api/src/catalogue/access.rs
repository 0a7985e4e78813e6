//! Who asked for what, and who may.

use axum::routing::{delete, get, post};
use millrace_controller::Role::Admin;
use millrace_controller::view::{CreatedTokenView, TokenView};
use millrace_controller::{AuditEntry, NewToken};

use crate::effect::Effect;
use crate::operation::{Operation, Resource};
use crate::resources::{audit, tokens};

/// The audit log, and tokens.
pub(super) fn access() -> Vec<Resource> {
    vec![
        Resource::new("/audit").on(
            Operation::get::<Vec<AuditEntry>>(Admin, "who asked for which change, and what came of it")
                .effect(Effect::Access)
                .arguments::<audit::Wanted>(),
            get(audit::audit),
        ),
        Resource::new("/tokens")
            .on(
                Operation::get::<Vec<TokenView>>(
                    Admin,
                    "by which one is let in from elsewhere: whose, and when used",
                )
                .effect(Effect::Access),
                get(tokens::list),
            )
            .on(
                Operation::create::<CreatedTokenView>(Admin, "makes one, and tells it this once")
                    .effect(Effect::Access)
                    .body::<NewToken>(),
                post(tokens::create),
            ),
        Resource::new("/tokens/{name}").on(
            Operation::delete::<TokenView>(Admin, "revokes it").effect(Effect::Access),
            delete(tokens::revoke),
        ),
    ]
}
