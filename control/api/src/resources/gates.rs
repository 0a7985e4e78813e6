//! Handlers of gates and bindings.

use axum::Json;
use axum::http::Uri;
use axum::response::Response;
use millrace_controller::PageQuery;
use millrace_controller::operation::{ListBindings, ListGates, RemoveGate, SetGateTable};
use millrace_controller::view::GateView;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Answer, named};
use crate::http::extract::{Arguments, Body, InPath};
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;
use crate::served::paging::paged;

/// Request body that changes settings of a gate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateSettings {
    table: String,
}

async fn gate(session: &Session, name: &str) -> Result<GateView, Problem> {
    named("gate", session.execute(ListGates).await?, |one| &one.name, name)
}

pub(crate) async fn find_gate(
    session: Session,
    InPath(name): InPath<String>,
) -> Result<WithTag<GateView>, Problem> {
    gate(&session, &name).await.map(WithTag)
}

pub(crate) async fn set_gate(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
    Body(GateSettings { table }): Body<GateSettings>,
) -> Result<WithTag<GateView>, Problem> {
    condition.check(gate(&session, &name)).await?;
    session.execute(SetGateTable { name, table }).await.map(WithTag)
}

pub(crate) async fn remove_gate(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
) -> Answer<GateView> {
    condition.check(gate(&session, &name)).await?;
    session.execute(RemoveGate { name }).await.map(Json)
}

/// Returns the bindings, ordered by id.
pub(crate) async fn bindings(session: Session, uri: Uri, Arguments(query): Arguments<PageQuery>) -> Response {
    session.execute_long(ListBindings(query), move |page| Ok(paged(&uri, page))).await
}
