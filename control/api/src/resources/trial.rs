//! Trials: requests with the argument `dry_run`, which change nothing.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_controller::NewBinding;
use millrace_controller::operation::{Bind, Trial};

use crate::endpoint::TrialQuery;
use crate::http::extract::{Arguments, Body};
use crate::http::problem::Problem;
use crate::served::Session;

/// Tries a request, and returns what would be promised and left.
pub(crate) async fn tried(session: &Session, trial: Trial) -> Result<Response, Problem> {
    session.execute(trial).await.map(|view| Json(view).into_response())
}

/// Binds an instance.
pub(crate) async fn bind(
    session: Session,
    Arguments(query): Arguments<TrialQuery>,
    Body(new): Body<NewBinding>,
) -> Result<Response, Problem> {
    if query.dry_run {
        return tried(&session, Trial::Bind(Bind(new))).await;
    }
    let view = session.execute(Bind(new)).await?;
    Ok((StatusCode::CREATED, Json(view)).into_response())
}
