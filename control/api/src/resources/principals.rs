//! Handlers of principals.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use millrace_controller::PrincipalSettings;
use millrace_controller::operation::{
    AddPrincipal, GetPromises, ListPrincipals, ReleaseFlow, RemovePrincipal, SetPrincipal, Trial,
};
use millrace_controller::view::{PrincipalView, PromisesView, ReservationView};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::{Interval, MissedTickBehavior};

use super::trial::tried;
use super::{Answer, named};
use crate::endpoint::TrialQuery;
use crate::http::extract::{Arguments, InPath};
use crate::http::naming::Settings;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, Source, accepts_stream, as_events, message};
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;

/// Query arguments of the release of a reservation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseQuery {
    /// Whether to drop the packets that wait for processor time of the principal, or in its queues at ports, instead of
    /// letting them continue.
    #[serde(default)]
    drop: bool,
}

/// Releases a reservation.
pub(crate) async fn release(
    session: Session,
    InPath(name): InPath<String>,
    Arguments(query): Arguments<ReleaseQuery>,
) -> Answer<ReservationView> {
    session.execute(ReleaseFlow { name, drop: query.drop }).await.map(Json)
}

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
    Arguments(query): Arguments<TrialQuery>,
    Settings(settings): Settings<PrincipalSettings>,
) -> Result<Response, Problem> {
    if query.dry_run {
        return tried(&session, Trial::AddPrincipal(AddPrincipal(settings))).await;
    }
    let view = session.execute(AddPrincipal(settings)).await?;
    Ok((StatusCode::CREATED, WithTag(view)).into_response())
}

pub(crate) async fn set(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
    Arguments(query): Arguments<TrialQuery>,
    Settings(changes): Settings<Map<String, Value>>,
) -> Result<Response, Problem> {
    condition.check(principal(&session, &name)).await?;
    if query.dry_run {
        return tried(&session, Trial::SetPrincipal(SetPrincipal { name, changes })).await;
    }
    session.execute(SetPrincipal { name, changes }).await.map(|view| WithTag(view).into_response())
}

pub(crate) async fn remove(
    session: Session,
    InPath(name): InPath<String>,
    condition: Condition,
) -> Answer<PrincipalView> {
    condition.check(principal(&session, &name)).await?;
    session.execute(RemovePrincipal { name }).await.map(Json)
}

/// Answers with the promises to principals, or with a stream of them.
pub(crate) async fn promises(session: Session, headers: HeaderMap) -> Result<Response, Problem> {
    let now = session.execute(GetPromises).await?;
    if !accepts_stream(&headers) {
        return Ok(Json(now).into_response());
    }
    let place = session.served.limits.streams.enter(session.call.principal())?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    // A client that reads too slowly gets fewer messages.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ending = Ending(session.served.ending.clone());
    let kept = KeptPromises { session, ticks, ending };
    Ok(as_events(kept, place, |promises| vec![message("promises", &promises)]))
}

/// Stream of promises for one client.
struct KeptPromises {
    session: Session,
    ticks: Interval,
    ending: Ending,
}

impl Source for KeptPromises {
    type Piece = PromisesView;

    async fn next(&mut self) -> Option<PromisesView> {
        self.ending.or(self.ticks.tick()).await?;
        self.session.execute(GetPromises).await.ok()
    }
}
