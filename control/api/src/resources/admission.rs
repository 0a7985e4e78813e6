//! Resources `/admission` and `/allowances`: what the router may promise and has promised, and what users may request.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_controller::NewAllowance;
use millrace_controller::operation::{
    AddAllowance, ExplainService, GetAdmission, ListAllowances, RemoveAllowance, SetAdmission, SetAllowance,
    Trial,
};
use millrace_controller::view::AllowanceView;
use serde_json::{Map, Value};

use super::trial::tried;
use super::{Answer, at, named, run, show};
use crate::endpoint::{Endpoint, Resource, TrialQuery};
use crate::http::extract::{Arguments, InPath};
use crate::http::naming::Settings;
use crate::http::problem::Problem;
use crate::served::Session;

/// Returns the resources of admission.
pub(crate) fn resources() -> [Resource; 2] {
    let admission = Resource::new("/admission")
        .on(
            Endpoint::get::<GetAdmission>("what may be promised of each component, and what is promised"),
            show::<GetAdmission>,
        )
        .on(
            Endpoint::patch::<SetAdmission>("changes how much may be promised; null restores the default")
                .body::<Settings<Map<String, Value>>>()
                .tried(),
            change,
        );
    let explain =
        Endpoint::post::<ExplainService>("shows at which level a service would go, and what would be left");
    [admission, Resource::new("/admission/place").on(explain.body::<ExplainService>(), run::<ExplainService>)]
}

/// Returns the resources of all allowances, and of a single one.
pub(crate) fn allowances() -> [Resource; 2] {
    [
        Resource::new("/allowances")
            .on(
                Endpoint::get::<ListAllowances>("allowances, with what their users hold"),
                show::<ListAllowances>,
            )
            .on(
                Endpoint::create::<AddAllowance>("adds an allowance")
                    .body::<Settings<NewAllowance>>()
                    .tried(),
                add,
            ),
        Resource::new("/allowances/{name}")
            .on(Endpoint::get::<ListAllowances>("an allowance").answers::<AllowanceView>(), find)
            .on(
                Endpoint::patch::<SetAllowance>("changes an allowance; null restores the default")
                    .body::<Settings<Map<String, Value>>>()
                    .tried(),
                set,
            )
            .on(
                Endpoint::delete::<RemoveAllowance>("removes an allowance; what its users hold stays"),
                at::<RemoveAllowance>,
            ),
    ]
}

async fn find(session: Session, InPath(name): InPath<String>) -> Answer<AllowanceView> {
    named("allowance", session.execute(ListAllowances).await?, |one| &one.name, &name).map(Json)
}

async fn add(
    session: Session,
    Arguments(query): Arguments<TrialQuery>,
    Settings(new): Settings<NewAllowance>,
) -> Result<Response, Problem> {
    let new = AddAllowance(new);
    if query.dry_run {
        return tried(&session, Trial::AddAllowance(new)).await;
    }
    let view = session.execute(new).await?;
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

async fn set(
    session: Session,
    InPath(name): InPath<String>,
    Arguments(query): Arguments<TrialQuery>,
    Settings(changes): Settings<Map<String, Value>>,
) -> Result<Response, Problem> {
    let set = SetAllowance { name, changes };
    match query.dry_run {
        true => tried(&session, Trial::SetAllowance(set)).await,
        false => session.execute(set).await.map(|view| Json(view).into_response()),
    }
}

async fn change(
    session: Session,
    Arguments(query): Arguments<TrialQuery>,
    Settings(changes): Settings<Map<String, Value>>,
) -> Result<Response, Problem> {
    let set = SetAdmission { changes };
    match query.dry_run {
        true => tried(&session, Trial::SetAdmission(set)).await,
        false => session.execute(set).await.map(|view| Json(view).into_response()),
    }
}
