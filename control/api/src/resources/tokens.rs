//! Resource of API tokens for remote access.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use millrace_controller::view::{CreatedTokenView, TokenView};
use millrace_controller::{ControlError, NewToken};

use crate::http::extract::{Body, Name};
use crate::http::problem::Problem;
use crate::principal::Principal;
use crate::served::Served;

pub(crate) async fn list(State(served): State<Served>) -> Result<Json<Vec<TokenView>>, Problem> {
    let tokens = served.control.tokens().clone();
    beside(move || Ok(tokens.list())).await.map(Json)
}

pub(crate) async fn create(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<CreatedTokenView>), Problem> {
    let tokens = served.control.tokens().clone();
    let created = beside(move || tokens.create(&new, &principal.who)).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(crate) async fn revoke(
    State(served): State<Served>,
    Name(name): Name,
) -> Result<Json<TokenView>, Problem> {
    let tokens = served.control.tokens().clone();
    beside(move || tokens.revoke(&name)).await.map(Json)
}

/// Runs work that waits for the disk on a blocking thread.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|error| ControlError::system("store the API tokens", error))??)
}
