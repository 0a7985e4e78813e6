//! Handlers of the configuration and its revisions.

use axum::Json;
use axum::response::Response;
use millrace_controller::operation::{
    CompareConfiguration, CompareWithBase, Confirm, GetConfiguration, GetRevision,
};
use millrace_controller::{Apply, Save, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::http::extract::{Body, MaybeBody, Name};
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
    Body(mut order): Body<Apply>,
) -> Answer<impl Serialize> {
    if condition.is_there() {
        let running = session.execute(GetConfiguration).await?;
        condition.check_this(&running)?;
        // Control checks the condition again, immediately before the change.
        order.only_if = Some(running.text);
    }
    session.execute(order).await.map(Json)
}

/// Configuration to compare with the running one; without a text, the base is compared.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compared {
    text: Option<String>,
    #[serde(default, deserialize_with = "words::origin")]
    #[schemars(length(max = 4096))]
    origin: Option<String>,
}

pub(crate) async fn difference(
    session: Session,
    Body(Compared { text, origin }): Body<Compared>,
) -> Answer<impl Serialize> {
    let origin = origin.unwrap_or_else(|| "configuration".to_owned());
    let difference = match text {
        Some(text) => session.execute(CompareConfiguration { text, origin }).await?,
        None => session.execute(CompareWithBase).await?,
    };
    Ok(Json(difference))
}

pub(crate) async fn save(session: Session, Body(order): Body<Save>) -> Answer<Saved> {
    let text = session.execute(order).await?;
    Ok(Json(Saved { text }))
}

/// File with the running configuration written into it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Saved {
    /// Text of the file.
    text: String,
}

/// Confirmed revision.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Confirmed {
    /// Number of the revision.
    revision: u64,
}

pub(crate) async fn confirm(session: Session, MaybeBody(order): MaybeBody<Confirm>) -> Answer<Confirmed> {
    let revision = session.execute(order).await?;
    Ok(Json(Confirmed { revision }))
}

pub(crate) async fn revision(session: Session, Name(number): Name) -> Result<Response, Problem> {
    let wrong = |_| Problem::bad_request(format!("{number:?} is no revision number: give a whole number"));
    let number = number.parse().map_err(wrong)?;
    Ok(session.execute_long(GetRevision { number }, |revision| Ok(Json(revision))).await)
}
