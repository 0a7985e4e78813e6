//! Resources of schedulers and queues.

use axum::routing::{delete, get, patch, post};
use millrace_controller::Role::{Operator, Viewer};
use millrace_controller::view::{QueueView, RemovedNodeView, SchedulerView};
use millrace_controller::{NodeRemoval, PageQuery, Router, SchedulerNode};
use serde_json::{Map, Value};

use crate::http::naming::Settings;
use crate::operation::{Operation, Resource};
use crate::resources::read;
use crate::resources::schedulers;
use crate::served::paging::pages;

/// Returns the resources of schedulers.
pub(super) fn schedulers() -> Vec<Resource> {
    vec![
        Resource::new("/schedulers").on(
            Operation::get::<Vec<SchedulerView>>(Viewer, "schedulers, with promised and delivered rates"),
            read(Router::schedulers),
        ),
        Resource::new("/schedulers/{port}")
            .on(
                Operation::get::<SchedulerView>(Viewer, "the scheduler of a port").tagged(),
                get(schedulers::show),
            )
            .on(
                Operation::create::<SchedulerView>(Operator, "adds a scheduler node")
                    .body::<Settings<SchedulerNode>>()
                    .tagged(),
                post(schedulers::add),
            )
            .on(
                Operation::patch::<SchedulerView>(Operator, "changes settings of a port's scheduler")
                    .body::<Settings<Map<String, Value>>>()
                    .tagged(),
                patch(schedulers::set),
            ),
        Resource::new("/schedulers/{port}/{node}")
            .on(
                Operation::patch::<SchedulerView>(
                    Operator,
                    "changes settings of a scheduler node; null removes one",
                )
                .body::<Settings<Map<String, Value>>>()
                .tagged(),
                patch(schedulers::set_node),
            )
            .on(
                Operation::delete::<RemovedNodeView>(
                    Operator,
                    "removes a scheduler node and its children, and moves their packets to another leaf",
                )
                .body::<NodeRemoval>()
                .tagged(),
                delete(schedulers::remove_node),
            ),
    ]
}

/// Returns the resources of queues.
pub(super) fn queues() -> Vec<Resource> {
    vec![
        Resource::new("/queues").on(
            Operation::get::<Vec<QueueView>>(Viewer, "queues of schedulers, with backlog and counters")
                .arguments::<PageQuery>()
                .paged(),
            pages(Router::queues, |one| format!("{} {:05}", one.port, one.node.id)),
        ),
        Resource::new("/queues/{port}/{queue}")
            .on(
                Operation::get::<QueueView>(Viewer, "a queue, with its flow queues").tagged(),
                get(schedulers::queue),
            )
            .on(
                Operation::patch::<schedulers::QueueChanged>(
                    Operator,
                    "changes settings of a queue, or of one flow queue",
                )
                .body::<schedulers::QueueChanges>()
                .tagged(),
                patch(schedulers::set_queue),
            ),
    ]
}
