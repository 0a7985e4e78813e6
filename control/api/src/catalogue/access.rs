//! Resources of the audit log and of API tokens.

use millrace_controller::NewToken;
use millrace_controller::operation::{CreateToken, ListTokens, ReadAudit, RevokeToken};

use crate::endpoint::{Endpoint, Resource};
use crate::resources::{ask, at, create, show};

/// Returns the resources of the audit log and of tokens.
pub(super) fn access() -> Vec<Resource> {
    vec![
        Resource::new("/audit").on(
            Endpoint::get::<ReadAudit>("the audit log: requested changes with caller and outcome")
                .arguments::<ReadAudit>(),
            ask::<ReadAudit>,
        ),
        Resource::new("/tokens")
            .on(Endpoint::get::<ListTokens>("API tokens, with owner and last use"), show::<ListTokens>)
            .on(
                Endpoint::create::<CreateToken>("creates a token; the answer shows it once")
                    .body::<NewToken>(),
                create::<CreateToken>,
            ),
        Resource::new("/tokens/{name}")
            .on(Endpoint::delete::<RevokeToken>("revokes a token"), at::<RevokeToken>),
    ]
}
