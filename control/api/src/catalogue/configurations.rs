//! Resources of the whole configuration and of its revisions.

use millrace_controller::operation::{
    CompareConfiguration, Confirm, GetConfiguration, GetRevision, ListRevisions,
};
use millrace_controller::{Apply, Keep, PageQuery, RollBack, Save};

use crate::endpoint::{Endpoint, Resource};
use crate::resources::{configuration, run, run_default, run_long};
use crate::served::paging::pages;

/// Returns the resources of the configuration.
pub(super) fn configurations() -> Vec<Resource> {
    vec![
        Resource::new("/configuration")
            .on(
                Endpoint::get::<GetConfiguration>(
                    "the running configuration as a file; refused during a transaction",
                )
                .tagged(),
                configuration::running,
            )
            .on(
                Endpoint::post::<Apply>(
                    "applies a configuration file atomically; reverts after `confirm` unless it is confirmed",
                )
                .body::<Apply>()
                .tagged(),
                configuration::apply,
            ),
        Resource::new("/configuration/diff")
            .on(
                Endpoint::post::<CompareConfiguration>(
                    "lists the changes that a configuration file would make; without a text, the changes since the last apply",
                )
                .body::<CompareConfiguration>(),
                run_long::<CompareConfiguration>,
            ),
        Resource::new("/configuration/save")
            .on(
                Endpoint::post::<Save>(
                    "writes the running configuration into the text of a file, and keeps its comments",
                )
                .body::<Save>(),
                run_long::<Save>,
            ),
        Resource::new("/configuration/confirm").on(
            Endpoint::post::<Confirm>("confirms the applied configuration; with a number, only this revision")
                .may_have_body::<Confirm>(),
            run_default::<Confirm>,
        ),
        Resource::new("/configuration/rollback").on(
            Endpoint::post::<RollBack>("applies an earlier revision; without a number, the previous one")
                .body::<RollBack>(),
            run::<RollBack>,
        ),
    ]
}

/// Returns the resources of revisions.
pub(super) fn revisions() -> Vec<Resource> {
    vec![
        Resource::new("/revisions")
            .on(
                Endpoint::get::<ListRevisions>(
                    "revisions of the configuration with time, caller and comment, the newest first",
                )
                .arguments::<PageQuery>()
                .paged(),
                // Pages are ordered by ascending key. The key falls with the revision's number, so the newest
                // revision comes first.
                pages::<ListRevisions>(|one| format!("{:020}", u64::MAX - one.revision.number)),
            )
            .on(
                Endpoint::post::<Keep>("stores the running configuration as a revision").body::<Keep>(),
                run_long::<Keep>,
            ),
        Resource::new("/revisions/{number}")
            .on(Endpoint::get::<GetRevision>("a revision, with its text"), configuration::revision),
    ]
}
