//! Schedulers of ports, and queues.

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

/// Schedulers.
pub(super) fn schedulers() -> Vec<Resource> {
    vec![
        Resource::new("/schedulers").on(
            Operation::get::<Vec<SchedulerView>>(
                Viewer,
                "in which order ports send, and at which rates: promised and delivered",
            ),
            read(Router::schedulers),
        ),
        Resource::new("/schedulers/{port}")
            .on(Operation::get::<SchedulerView>(Viewer, "one").tagged(), get(schedulers::show))
            .on(
                Operation::create::<SchedulerView>(Operator, "adds a node")
                    .body::<Settings<SchedulerNode>>()
                    .tagged(),
                post(schedulers::add),
            )
            .on(
                Operation::patch::<SchedulerView>(Operator, "changes the port's own settings")
                    .body::<Settings<Map<String, Value>>>()
                    .tagged(),
                patch(schedulers::set),
            ),
        Resource::new("/schedulers/{port}/{node}")
            .on(
                Operation::patch::<SchedulerView>(
                    Operator,
                    "changes settings of a node; null takes one away",
                )
                .body::<Settings<Map<String, Value>>>()
                .tagged(),
                patch(schedulers::set_node),
            )
            .on(
                Operation::delete::<RemovedNodeView>(
                    Operator,
                    "removes it, and moves what waits there to another leaf",
                )
                .body::<NodeRemoval>()
                .tagged(),
                delete(schedulers::remove_node),
            ),
    ]
}

/// Queues.
pub(super) fn queues() -> Vec<Resource> {
    vec![
        Resource::new("/queues").on(
            Operation::get::<Vec<QueueView>>(
                Viewer,
                "what waits in queues of ports with a scheduler, and what came before and behind",
            )
            .arguments::<PageQuery>()
            .paged(),
            pages(Router::queues, |one| format!("{} {:05}", one.port, one.node.id)),
        ),
        Resource::new("/queues/{port}/{queue}")
            .on(
                Operation::get::<QueueView>(Viewer, "one, with the queues of flows in it").tagged(),
                get(schedulers::queue),
            )
            .on(
                Operation::patch::<schedulers::QueueChanged>(
                    Operator,
                    "changes its settings, or those of a flow in it",
                )
                .body::<schedulers::QueueChanges>()
                .tagged(),
                patch(schedulers::set_queue),
            ),
    ]
}
