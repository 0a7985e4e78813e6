//! Handlers of the configuration and its revisions.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::Response;
use millrace_controller::{Apply, ConfirmTime, Keep, RollBack, Save, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::extract::{Body, MaybeBody, Name};
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::principal::Principal;
use crate::resources::audit::Led;
use crate::served::Served;
use crate::served::long::long;

type Answer<T> = Result<Json<T>, Problem>;

/// Returns the running configuration.
pub(crate) async fn running(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
) -> Response {
    long(&served, &principal, |control| Ok(WithTag(control.configuration()?))).await
}

pub(crate) async fn apply(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    condition: Condition,
    Body(mut order): Body<Apply>,
) -> Result<Led<impl Serialize>, Problem> {
    if condition.is_there() {
        let running = served.control.configuration()?;
        condition.check_this(&running)?;
        // Control checks the condition again, immediately before the change.
        order.only_if = Some(running.text);
    }
    let applied = served.control.apply(order, principal.who).await?;
    Ok(Led(applied.runs, applied))
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
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Body(compared): Body<Compared>,
) -> Answer<impl Serialize> {
    let origin = compared.origin.as_deref().unwrap_or("configuration");
    let difference = match &compared.text {
        Some(text) => served.control.difference(text, origin, principal.least()).await?,
        None => served.control.difference_from_base().await?,
    };
    Ok(Json(difference))
}

pub(crate) async fn save(State(served): State<Served>, Body(order): Body<Save>) -> Answer<Saved> {
    let text = served.control.save_into(order).await?;
    Ok(Json(Saved { text }))
}

pub(crate) async fn keep(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Body(order): Body<Keep>,
) -> Result<Led<impl Serialize>, Problem> {
    let role = principal.least();
    let kept = served.control.keep(order, principal.who, role).await?;
    Ok(Led(Some(kept.number), kept))
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

/// Request for a confirmation.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Confirm {
    /// Revision that must be waiting; if another one waits, nothing is confirmed.
    revision: Option<u64>,
}

pub(crate) async fn confirm(
    State(served): State<Served>,
    MaybeBody(Confirm { revision }): MaybeBody<Confirm>,
) -> Result<Led<Confirmed>, Problem> {
    let revision = served.control.confirm(revision).await?;
    Ok(Led(Some(revision), Confirmed { revision }))
}

/// Request for a rollback, to a revision or to the one before.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Return {
    revision: Option<u64>,
    #[serde(default, deserialize_with = "words::comment")]
    #[schemars(length(max = 1024))]
    comment: Option<String>,
    confirm: Option<ConfirmTime>,
    if_revision: Option<u64>,
}

pub(crate) async fn roll_back(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Body(order): Body<Return>,
) -> Result<Led<impl Serialize>, Problem> {
    let Return { revision, comment, confirm, if_revision } = order;
    let order = RollBack { comment, confirm, if_revision };
    let returned = served.control.roll_back(revision, &order, principal.who).await?;
    Ok(Led(returned.runs, returned))
}

pub(crate) async fn revision(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Name(number): Name,
) -> Result<Response, Problem> {
    let wrong = |_| Problem::bad_request(format!("{number:?} is no revision number: give a whole number"));
    let number = number.parse().map_err(wrong)?;
    Ok(long(&served, &principal, move |control| Ok(Json(control.revision(number)?))).await)
}
