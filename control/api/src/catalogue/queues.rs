//! Resources of schedulers and queues.

use millrace_controller::operation::{
    AddSchedulerNode, GetQueue, ListQueues, ListSchedulers, RemoveSchedulerNode, SetQueue, SetScheduler,
    SetSchedulerNode,
};
use millrace_controller::view::SchedulerView;
use millrace_controller::{NodeRemoval, PageQuery, SchedulerNode};
use serde_json::{Map, Value};

use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::resources::{schedulers, show};
use crate::served::paging::pages;

/// Returns the resources of schedulers.
pub(super) fn schedulers() -> Vec<Resource> {
    vec![
        Resource::new("/schedulers").on(
            Endpoint::get::<ListSchedulers>("schedulers, with promised and delivered rates"),
            show::<ListSchedulers>,
        ),
        Resource::new("/schedulers/{port}")
            .on(
                Endpoint::get::<ListSchedulers>("the scheduler of a port")
                    .answers::<SchedulerView>()
                    .tagged(),
                schedulers::show,
            )
            .on(
                Endpoint::create::<AddSchedulerNode>("adds a scheduler node")
                    .body::<Settings<SchedulerNode>>()
                    .tagged(),
                schedulers::add,
            )
            .on(
                Endpoint::patch::<SetScheduler>("changes settings of a port's scheduler")
                    .body::<Settings<Map<String, Value>>>()
                    .tagged(),
                schedulers::set,
            ),
        Resource::new("/schedulers/{port}/{node}")
            .on(
                Endpoint::patch::<SetSchedulerNode>("changes settings of a scheduler node; null removes one")
                    .body::<Settings<Map<String, Value>>>()
                    .tagged(),
                schedulers::set_node,
            )
            .on(
                Endpoint::delete::<RemoveSchedulerNode>(
                    "removes a scheduler node and its children, and moves their packets to another leaf",
                )
                .body::<NodeRemoval>()
                .tagged(),
                schedulers::remove_node,
            ),
    ]
}

/// Returns the resources of queues.
pub(super) fn queues() -> Vec<Resource> {
    vec![
        Resource::new("/queues").on(
            Endpoint::get::<ListQueues>("queues of schedulers, with backlog and counters")
                .arguments::<PageQuery>()
                .paged(),
            pages::<ListQueues>(|one| format!("{} {:05}", one.port, one.node.id)),
        ),
        Resource::new("/queues/{port}/{queue}")
            .on(Endpoint::get::<GetQueue>("a queue, with its flow queues").tagged(), schedulers::queue)
            .on(
                Endpoint::patch::<SetQueue>("changes settings of a queue, or of one flow queue")
                    .answers::<schedulers::QueueChanged>()
                    .body::<Settings<schedulers::QueueChanges>>()
                    .tagged(),
                schedulers::set_queue,
            ),
    ]
}
