//! Handlers of principals.

use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millrace_controller::PrincipalSettings;
use millrace_controller::operation::{AddPrincipal, ListPrincipals, RemovePrincipal, SetPrincipal};
use millrace_controller::view::PrincipalView;
use serde_json::{Map, Value};

use super::{Answer, named};
use crate::http::extract::InPath;
use crate::http::naming::Settings;
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;

async fn principal(session: &Session, name: &str) -> Result<PrincipalView, Problem> {
    named("principal", session.execute(ListPrincipals).await?, |one| &one.name, name)
}

pub(crate) async fn find(
    session: Session,
    InPath(name): InPath<String>,
) -> Result<WithTag<PrincipalView>, Problem> {
    principal(&session, &name).await.map(WithTag)
}

pub(crate) async fn add(
    session: Session,
    Settings(settings): Settings<PrincipalSettings>,
) -> Result<impl IntoResponse, Problem> {
    let view = session.execute(AddPrincipal(settings)).await?;
    Ok((StatusCode::CREATED, WithTag(view)))
}

pub(crate) async fn set(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
    Settings(changes): Settings<Map<String, Value>>,
) -> Result<WithTag<PrincipalView>, Problem> {
    condition.check(principal(&session, &name)).await?;
    session.execute(SetPrincipal { name, changes }).await.map(WithTag)
}

pub(crate) async fn remove(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
) -> Answer<PrincipalView> {
    condition.check(principal(&session, &name)).await?;
    session.execute(RemovePrincipal { name }).await.map(Json)
}
