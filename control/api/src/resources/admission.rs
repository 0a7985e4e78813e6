//! Resources `/admission` and `/allowances`: what the router may promise and has promised, and what users may request.

use axum::Json;
use axum::http::StatusCode;
use millrace_controller::NewAllowance;
use millrace_controller::operation::{
    AddAllowance, ExplainService, GetAdmission, ListAllowances, RemoveAllowance, SetAdmission, SetAllowance,
};
use millrace_controller::view::{AdmissionView, AllowanceView};
use serde_json::{Map, Value};

use super::{Answer, Created, at, named, run, show};
use crate::endpoint::{Endpoint, Resource};
use crate::http::extract::InPath;
use crate::http::naming::Settings;
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
                .body::<Settings<Map<String, Value>>>(),
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
            .on(Endpoint::create::<AddAllowance>("adds an allowance").body::<Settings<NewAllowance>>(), add),
        Resource::new("/allowances/{name}")
            .on(Endpoint::get::<ListAllowances>("an allowance").answers::<AllowanceView>(), find)
            .on(
                Endpoint::patch::<SetAllowance>("changes an allowance; null restores the default")
                    .body::<Settings<Map<String, Value>>>(),
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

async fn add(session: Session, Settings(new): Settings<NewAllowance>) -> Created<AllowanceView> {
    Ok((StatusCode::CREATED, Json(session.execute(AddAllowance(new)).await?)))
}

async fn set(
    session: Session,
    InPath(name): InPath<String>,
    Settings(changes): Settings<Map<String, Value>>,
) -> Answer<AllowanceView> {
    session.execute(SetAllowance { name, changes }).await.map(Json)
}

async fn change(session: Session, Settings(given): Settings<Map<String, Value>>) -> Answer<AdmissionView> {
    session.execute(SetAdmission { changes: given }).await.map(Json)
}
