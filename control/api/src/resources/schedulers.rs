//! Handlers of schedulers and queues.

use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millrace_config::Scheduler;
use millrace_controller::operation::{
    AddSchedulerNode, GetQueue, GetSchedulerSettings, ListSchedulers, RemoveSchedulerNode, SetQueue,
    SetScheduler, SetSchedulerNode,
};
use millrace_controller::view::{QueueView, RemovedNodeView, SchedulerView};
use millrace_controller::{ControlError, NodeRemoval, SchedulerNode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Answer;
use crate::http::extract::{Body, InPath};
use crate::http::naming::Settings;
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;

type TaggedScheduler = Result<WithTag<SchedulerView>, Problem>;

/// Adds a node to a port's scheduler.
pub(crate) async fn add(
    session: Session,
    InPath(port): InPath<String>,
    condition: Condition,
    Settings(node): Settings<SchedulerNode>,
) -> Result<impl IntoResponse, Problem> {
    condition.check(scheduler(&session, &port)).await?;
    let view = session.execute(AddSchedulerNode { port, node }).await?;
    Ok((StatusCode::CREATED, WithTag(view)))
}

/// Changes settings of a scheduler as a whole.
pub(crate) async fn set(
    session: Session,
    InPath(port): InPath<String>,
    condition: Condition,
    Settings(given): Settings<Map<String, Value>>,
) -> TaggedScheduler {
    condition.check(scheduler(&session, &port)).await?;
    session.execute(SetScheduler { port, changes: given }).await.map(WithTag)
}

/// Changes settings of a scheduler node.
pub(crate) async fn set_node(
    session: Session,
    InPath((port, name)): InPath<(String, String)>,
    condition: Condition,
    Settings(given): Settings<Map<String, Value>>,
) -> TaggedScheduler {
    condition.check(scheduler(&session, &port)).await?;
    session.execute(SetSchedulerNode { port, name, changes: given }).await.map(WithTag)
}

/// Removes a scheduler node and its children.
pub(crate) async fn remove_node(
    session: Session,
    InPath((port, node)): InPath<(String, String)>,
    condition: Condition,
    Body(removal): Body<NodeRemoval>,
) -> Answer<RemovedNodeView> {
    condition.check(scheduler(&session, &port)).await?;
    session.execute(RemoveSchedulerNode { port, node, removal }).await.map(Json)
}

/// Returns a queue with its flow queues.
pub(crate) async fn queue(
    session: Session,
    InPath((port, queue)): InPath<(String, String)>,
) -> Result<WithTag<QueueView>, Problem> {
    session.execute(GetQueue { port, queue }).await.map(WithTag)
}

/// Changed settings of a queue, or of a flow's queue in it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct QueueChanges {
    flow: Option<String>,
    #[serde(flatten)]
    changes: Map<String, Value>,
}

/// Result of changing a queue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueChanged {
    /// Name of the port.
    port: String,
    /// Name of the queue.
    queue: String,
    /// Flow whose queue was changed, if one was given.
    flow: Option<String>,
    /// Changed settings, as requested.
    changes: Settings<Map<String, Value>>,
}

/// Changes settings of a queue, or of a flow's queue in it.
pub(crate) async fn set_queue(
    session: Session,
    InPath((port, queue)): InPath<(String, String)>,
    condition: Condition,
    Settings(QueueChanges { flow, changes }): Settings<QueueChanges>,
) -> Answer<QueueChanged> {
    while condition.is_there() {
        let before = scheduler_settings(&session, &port).await?;
        let current = session.execute(GetQueue { port: port.clone(), queue: queue.clone() }).await?;
        condition.check_this(&current)?;
        // Repeat the query and the check if the scheduler changed while the queue was read.
        if scheduler_settings(&session, &port).await? == before {
            break;
        }
    }
    let done = QueueChanged { port, queue, flow, changes: Settings(changes) };
    let QueueChanged { port, queue, flow, changes: Settings(given) } = &done;
    let [port, queue] = [port, queue].map(String::clone);
    let operation = SetQueue { port, queue, flow: flow.clone(), changes: given.clone() };
    session.execute(operation).await?;
    Ok(Json(done))
}

/// Returns the scheduler of a port.
pub(crate) async fn show(session: Session, InPath(port): InPath<String>) -> TaggedScheduler {
    scheduler(&session, &port).await.map(WithTag)
}

async fn scheduler(session: &Session, port: &str) -> Result<SchedulerView, Problem> {
    let schedulers = session.execute(ListSchedulers).await?;
    match schedulers.into_iter().find(|one| one.port == port) {
        Some(scheduler) => Ok(scheduler),
        None => {
            // Query the scheduler to return the error for an unknown port.
            scheduler_settings(session, port).await?;
            Err(ControlError::no_scheduler(port).into())
        }
    }
}

async fn scheduler_settings(session: &Session, port: &str) -> Result<Option<Scheduler>, Problem> {
    session.execute(GetSchedulerSettings { port: port.to_owned() }).await
}
