//! Handlers of the resources: Flows.

use axum::Json;
use millrace_controller::FlowQuery;
use millrace_controller::operation::{FlushFlows, ListFlows};
use millrace_controller::view::FlowsView;
use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;
use crate::http::extract::Arguments;
use crate::served::Session;

pub(crate) async fn flows(session: Session, Arguments(query): Arguments<FlowQuery>) -> Answer<FlowsView> {
    session.execute(ListFlows(query)).await.map(Json)
}

/// Result of flushing flows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Flushed {
    /// Number of flushed flows.
    flushed: u64,
}

pub(crate) async fn flush_flows(
    session: Session,
    Arguments(flush): Arguments<FlushFlows>,
) -> Answer<Flushed> {
    let flushed = session.execute(flush).await?;
    Ok(Json(Flushed { flushed }))
}
