//! Handlers of schedulers and queues.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millrace_controller::view::{RemovedNodeView, SchedulerView};
use millrace_controller::{ControlError, NodeRemoval, SchedulerNode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::extract::{Body, Name, Names};
use crate::http::naming::{Settings, refused};
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Served;

/// Adds a node.
pub(crate) async fn add(
    State(served): State<Served>,
    Name(port): Name,
    condition: Condition,
    Body(Settings(node)): Body<Settings<SchedulerNode>>,
) -> Result<impl IntoResponse, Problem> {
    condition.check(|| scheduler(&served, &port))?;
    Ok((
        StatusCode::CREATED,
        WithTag(served.control.add_scheduler_node(&port, &node).map_err(refused(&Map::new()))?),
    ))
}

/// Changes settings of a scheduler as a whole.
pub(crate) async fn set(
    State(served): State<Served>,
    Name(port): Name,
    condition: Condition,
    Body(Settings(changes)): Body<Settings<Map<String, Value>>>,
) -> Result<impl IntoResponse, Problem> {
    condition.check(|| scheduler(&served, &port))?;
    Ok(WithTag(served.control.set_scheduler(&port, &changes).map_err(refused(&changes))?))
}

/// Changes a node.
pub(crate) async fn set_node(
    State(served): State<Served>,
    Names([port, node]): Names,
    condition: Condition,
    Body(Settings(changes)): Body<Settings<Map<String, Value>>>,
) -> Result<impl IntoResponse, Problem> {
    condition.check(|| scheduler(&served, &port))?;
    Ok(WithTag(served.control.set_scheduler_node(&port, &node, &changes).map_err(refused(&changes))?))
}

/// Removes a node.
pub(crate) async fn remove_node(
    State(served): State<Served>,
    Names([port, node]): Names,
    condition: Condition,
    Body(removal): Body<NodeRemoval>,
) -> Result<Json<RemovedNodeView>, Problem> {
    condition.check(|| scheduler(&served, &port))?;
    Ok(Json(served.control.remove_scheduler_node(&port, &node, &removal).await?))
}

/// Returns a queue with the queues of flows in it.
pub(crate) async fn queue(
    State(served): State<Served>,
    Names([port, queue]): Names,
) -> Result<impl IntoResponse, Problem> {
    Ok(WithTag(served.control.queue(&port, &queue).await?))
}

/// Changed settings of a queue, or of a flow's queue in it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct QueueChanges {
    flow: Option<String>,
    #[serde(flatten)]
    changes: Settings<Map<String, Value>>,
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
    State(served): State<Served>,
    Names([port, queue]): Names,
    condition: Condition,
    Body(QueueChanges { flow, changes }): Body<QueueChanges>,
) -> Result<Json<QueueChanged>, Problem> {
    while condition.is_there() {
        let before = served.control.scheduler_settings(&port)?;
        condition.check_this(&served.control.queue(&port, &queue).await?)?;
        // The scheduler may have changed while the queue was read; then the check is repeated.
        if served.control.scheduler_settings(&port)? == before {
            break;
        }
    }
    served.control.set_queue(&port, &queue, flow.as_deref(), &changes.0).map_err(refused(&changes.0))?;
    Ok(Json(QueueChanged { port, queue, flow, changes }))
}

/// Returns the scheduler of a port.
pub(crate) async fn show(
    State(served): State<Served>,
    Name(port): Name,
) -> Result<WithTag<SchedulerView>, Problem> {
    scheduler(&served, &port).map(WithTag)
}

fn scheduler(served: &Served, port: &str) -> Result<SchedulerView, Problem> {
    match served.control.schedulers()?.into_iter().find(|one| one.port == port) {
        Some(scheduler) => Ok(scheduler),
        None => {
            // For an unknown port, this returns the error.
            served.control.scheduler_settings(port)?;
            Err(ControlError::no_scheduler(port).into())
        }
    }
}
