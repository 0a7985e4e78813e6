//! Handlers of the configuration and its revisions.

use axum::Json;
use axum::response::Response;
use millrace_controller::Apply;
use millrace_controller::operation::{GetConfiguration, GetRevision};
use serde::Serialize;

use super::Answer;
use crate::http::extract::{InPath, LongBody};
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;

/// Returns the running configuration.
pub(crate) async fn running(session: Session) -> Response {
    session.execute_long(GetConfiguration, |running| Ok(WithTag(running))).await
}

pub(crate) async fn apply(
    session: Session,
    condition: Condition,
    LongBody(mut order): LongBody<Apply>,
) -> Answer<impl Serialize> {
    if condition.is_there() {
        let running = session.execute(GetConfiguration).await?;
        condition.check_this(&running)?;
        // Let control compare the text again immediately before the change.
        order.only_if = Some(running.text);
    }
    session.execute(order).await.map(Json)
}

pub(crate) async fn revision(session: Session, InPath(number): InPath<String>) -> Result<Response, Problem> {
    let wrong = |_| Problem::bad_request(format!("{number:?} is no revision number: give a whole number"));
    let number = number.parse().map_err(wrong)?;
    Ok(session.execute_long(GetRevision { number }, |revision| Ok(Json(revision))).await)
}
