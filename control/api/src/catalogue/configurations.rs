//! Resources of the whole configuration and of its revisions.

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

/// Returns the resources of the configuration and of its revisions.
pub(super) fn configurations() -> Vec<Resource> {
    vec![
        Resource::new("/configuration")
            .on(
                Operation::get::<ConfigurationView>(Viewer, "the running configuration as a file; refused while a group of changes is applied").tagged(),
                get(configuration::running),
            )
            .on(
                Operation::post::<AppliedView>(Admin, "applies a configuration file atomically; reverts after `confirm` unless it is confirmed",
                ).effect(Effect::Configuration)
                .body::<Apply>()
                .tagged(),
                post(configuration::apply),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/diff")
            .on(
                Operation::post::<DifferenceView>(Operator, "shows what a configuration file would change; without a text, what has changed since the last apply",
                ).effect(Effect::DryRun)
                .body::<configuration::Compared>(),
                post(configuration::difference),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/save")
            .on(
                Operation::post::<configuration::Saved>(Operator, "writes the running configuration into the text of a file, and keeps its comments",
                ).effect(Effect::Look)
                .body::<Save>(),
                post(configuration::save),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/confirm").on(
            Operation::post::<configuration::Confirmed>(
                Admin,
                "confirms the applied configuration; with a number, only this revision",
            ).effect(Effect::Configuration)
            .may_have_body::<configuration::Confirm>(),
            post(configuration::confirm),
        ),
        Resource::new("/configuration/rollback").on(
            Operation::post::<AppliedView>(Admin, "applies an earlier revision; without a number, the previous one").effect(Effect::Configuration)
                .body::<configuration::Return>(),
            post(configuration::roll_back),
        ),
        Resource::new("/revisions").on(
            Operation::get::<Vec<RevisionView>>(
                Viewer,
                "revisions of the configuration: when, by whom and why; the newest first",
            )
            .arguments::<PageQuery>()
            .paged(),
            // The highest number has the lowest key, so the newest revision comes first.
            pages(Router::revisions, |one| format!("{:020}", u64::MAX - one.revision.number)),
        )
        .on(
            Operation::post::<Revision>(Operator, "makes a revision of the running configuration, for a start from the last good one").effect(Effect::Store)
                .body::<Keep>(),
            post(configuration::keep),
        )
        .bodies(long_bodies()),
        Resource::new("/revisions/{number}").on(
            Operation::get::<RevisionTextView>(Viewer, "a revision, with its text"),
            get(configuration::revision),
        ),
    ]
}
