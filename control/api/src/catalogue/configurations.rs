//! The configuration as a whole, and its revisions.

use axum::routing::{get, post};
use millrace_controller::Role::{Admin, Operator, Viewer};
use millrace_controller::view::{
    AppliedView, ConfigurationView, DifferenceView, RevisionTextView, RevisionView,
};
use millrace_controller::{Apply, Keep, PageQuery, Revision, Router, Save};

use super::long_bodies;
use crate::effect::Effect;
use crate::operation::{Operation, Resource};
use crate::resources::configuration;
use crate::served::paging::pages;

/// The configuration, and its revisions.
pub(super) fn configurations() -> Vec<Resource> {
    vec![
        Resource::new("/configuration")
            .on(
                Operation::get::<ConfigurationView>(Viewer, "what runs, as a file; refused while changes that belong together are made").tagged(),
                get(configuration::running),
            )
            .on(
                Operation::post::<AppliedView>(Admin, "applies a file, whole or not at all, and goes back after the time `confirm` unless it is confirmed",
                ).effect(Effect::Configuration)
                .body::<Apply>()
                .tagged(),
                post(configuration::apply),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/diff")
            .on(
                Operation::post::<DifferenceView>(Operator, "says what a file would change; without a text, what has changed since the last one was applied",
                ).effect(Effect::DryRun)
                .body::<configuration::Compared>(),
                post(configuration::difference),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/save")
            .on(
                Operation::post::<configuration::Saved>(Operator, "writes what runs into the text of a file, and keeps its comments",
                ).effect(Effect::Look)
                .body::<Save>(),
                post(configuration::save),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/confirm").on(
            Operation::post::<configuration::Confirmed>(
                Admin,
                "keeps what was applied and waits to be confirmed; with a number, only where it is that revision",
            ).effect(Effect::Configuration)
            .may_have_body::<configuration::Confirm>(),
            post(configuration::confirm),
        ),
        Resource::new("/configuration/rollback").on(
            Operation::post::<AppliedView>(Admin, "applies a revision again; without a number, what ran before").effect(Effect::Configuration)
                .body::<configuration::Return>(),
            post(configuration::roll_back),
        ),
        Resource::new("/revisions").on(
            Operation::get::<Vec<RevisionView>>(
                Viewer,
                "configurations that were applied: when, by whom, why; the newest first",
            )
            .arguments::<PageQuery>()
            .paged(),
            // The newest has the lowest key.
            pages(Router::revisions, |one| format!("{:020}", u64::MAX - one.revision.number)),
        )
        .on(
            Operation::post::<Revision>(Operator, "makes a revision of what runs, which a router starts with that starts from the last good one").effect(Effect::Store)
                .body::<Keep>(),
            post(configuration::keep),
        )
        .bodies(long_bodies()),
        Resource::new("/revisions/{number}").on(
            Operation::get::<RevisionTextView>(Viewer, "one, with its text"),
            get(configuration::revision),
        ),
    ]
}
