//! Handlers that most resources share.

pub(crate) mod admission;
pub(crate) mod configuration;
pub(crate) mod control_plane;
pub(crate) mod filters;
pub(crate) mod gates;
pub(crate) mod instances;
pub(crate) mod observe;
pub(crate) mod placement;
pub(crate) mod ports;
pub(crate) mod principals;
pub(crate) mod routes;
pub(crate) mod schedulers;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod trial;

use axum::Json;
use axum::http::StatusCode;
use millrace_controller::{ControlError, Operation};

use crate::http::extract::{Arguments, Body, InPath, LongBody, MaybeBody};
use crate::http::problem::Problem;
use crate::served::Session;

type Answer<T> = Result<Json<T>, Problem>;
type Created<T> = Result<(StatusCode, Json<T>), Problem>;

/// Handler that executes an operation without arguments. Its answer is the response.
pub(crate) async fn show<O: Operation + Default>(session: Session) -> Answer<O::Answer> {
    session.execute(O::default()).await.map(Json)
}

/// Handler that executes an operation whose fields are the query arguments.
pub(crate) async fn ask<O: Operation>(
    session: Session,
    Arguments(operation): Arguments<O>,
) -> Answer<O::Answer> {
    session.execute(operation).await.map(Json)
}

/// Handler that executes an operation whose fields are the names in the path.
pub(crate) async fn at<O: Operation>(session: Session, InPath(operation): InPath<O>) -> Answer<O::Answer> {
    session.execute(operation).await.map(Json)
}

/// Handler that executes an operation whose fields are in the JSON body.
pub(crate) async fn run<O: Operation>(session: Session, Body(operation): Body<O>) -> Answer<O::Answer> {
    session.execute(operation).await.map(Json)
}

/// Handler that executes an operation whose fields are in the JSON body, which may hold a whole
/// configuration.
pub(crate) async fn run_long<O: Operation>(
    session: Session,
    LongBody(operation): LongBody<O>,
) -> Answer<O::Answer> {
    session.execute(operation).await.map(Json)
}

/// Handler that executes an operation whose fields are in the JSON body. Without a body, all fields have
/// their defaults.
pub(crate) async fn run_default<O: Operation>(
    session: Session,
    MaybeBody(operation): MaybeBody<O>,
) -> Answer<O::Answer> {
    session.execute(operation).await.map(Json)
}

/// Handler that executes an operation that creates an object (status 201), with its fields in the JSON body.
pub(crate) async fn create<O: Operation>(session: Session, Body(operation): Body<O>) -> Created<O::Answer> {
    Ok((StatusCode::CREATED, Json(session.execute(operation).await?)))
}

/// Returns the object with the name `name` from a list, or 404.
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
