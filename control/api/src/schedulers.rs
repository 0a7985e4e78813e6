//! The resources of schedulers and queues: what each method does.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millrace_controller::{NodeRemoval, SchedulerNode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::control::Control;
use crate::extract::{Body, Name, Names};
use crate::problem::Problem;
use crate::server::Served;

/// Adds a node.
pub(crate) async fn add<C: Control>(
    State(served): State<Served<C>>,
    Name(port): Name,
    Body(node): Body<SchedulerNode>,
) -> Result<impl IntoResponse, Problem> {
    Ok((StatusCode::CREATED, Json(served.control.add_scheduler_node(&port, &node)?)))
}

/// Changes what holds for the whole scheduler.
pub(crate) async fn set<C: Control>(
    State(served): State<Served<C>>,
    Name(port): Name,
    Body(changes): Body<Map<String, Value>>,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(served.control.set_scheduler(&port, &changes)?))
}

/// Changes a node.
pub(crate) async fn set_node<C: Control>(
    State(served): State<Served<C>>,
    Names([port, node]): Names,
    Body(changes): Body<Map<String, Value>>,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(served.control.set_scheduler_node(&port, &node, &changes)?))
}

/// Removes a node.
pub(crate) async fn remove_node<C: Control>(
    State(served): State<Served<C>>,
    Names([port, node]): Names,
    Body(removal): Body<NodeRemoval>,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(served.control.remove_scheduler_node(&port, &node, &removal)?))
}

/// A queue, with those of flows in it.
pub(crate) async fn queue<C: Control>(
    State(served): State<Served<C>>,
    Names([port, queue]): Names,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(served.control.queue(&port, &queue).await?))
}

/// Changes of a queue, or of a flow's.
#[derive(Deserialize)]
pub(crate) struct QueueChanges {
    flow: Option<String>,
    #[serde(flatten)]
    changes: Map<String, Value>,
}

/// Changes a queue.
pub(crate) async fn set_queue<C: Control>(
    State(served): State<Served<C>>,
    Names([port, queue]): Names,
    Body(QueueChanges { flow, changes }): Body<QueueChanges>,
) -> Result<impl IntoResponse, Problem> {
    served.control.set_queue(&port, &queue, flow.as_deref(), &changes)?;
    Ok(Json(json!({"port": port, "queue": queue, "flow": flow, "changes": changes})))
}
