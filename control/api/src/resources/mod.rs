//! Handlers that most resources share.

pub(crate) mod configuration;
pub(crate) mod control_plane;
pub(crate) mod filters;
pub(crate) mod flows;
pub(crate) mod gates;
pub(crate) mod instances;
pub(crate) mod observe;
pub(crate) mod placement;
pub(crate) mod ports;
pub(crate) mod routes;
pub(crate) mod schedulers;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod tokens;

use axum::Json;
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get};
use millrace_controller::{ControlError, Operation};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::extract::Body;
use crate::http::problem::Problem;
use crate::served::{Served, Session};

type Answer<T> = Result<Json<T>, Problem>;
type Created<T> = Result<(StatusCode, Json<T>), Problem>;

/// Returns the handler that executes an operation without arguments.
pub(crate) fn show<O>() -> MethodRouter<Served>
where
    O: Operation<Answer: Serialize> + Default + 'static,
{
    get(async |session: Session| session.execute(O::default()).await.map(Json))
}

/// Handler that executes the operation in the body.
pub(crate) async fn run<O>(session: Session, Body(operation): Body<O>) -> Answer<O::Answer>
where
    O: Operation<Answer: Serialize> + DeserializeOwned,
{
    session.execute(operation).await.map(Json)
}

/// Handler that executes the operation in the body, which creates an object.
pub(crate) async fn create<O>(session: Session, Body(operation): Body<O>) -> Created<O::Answer>
where
    O: Operation<Answer: Serialize> + DeserializeOwned,
{
    Ok((StatusCode::CREATED, Json(session.execute(operation).await?)))
}

/// Returns the object of that name.
pub(crate) fn named<V>(
    noun: &'static str,
    mut all: Vec<V>,
    name_of: fn(&V) -> &str,
    name: &str,
) -> Result<V, Problem> {
    match all.iter().position(|one| name_of(one) == name) {
        Some(index) => Ok(all.swap_remove(index)),
        None => Err(ControlError::unknown(noun, name, all.iter().map(name_of)).into()),
    }
}
