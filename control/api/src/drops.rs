//! The resource `/drops/packets`: the last packets that were dropped, for each reason.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Message, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use millrace_controller::view::DroppedView;
use millrace_controller::{DropCursor, PacketFile};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::capture::PCAPNG;
use crate::control::Control;
use crate::events::{accepts, accepts_stream};
use crate::extract::Arguments;
use crate::principal::Principal;
use crate::problem::Problem;
use crate::server::Served;

/// How often is asked for more.
const POLL: Duration = Duration::from_millis(200);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Those dropped for this reason; for any, if nothing is said.
    reason: Option<String>,
    /// Go on with those that come, as a stream of server-sent events always does.
    follow: Option<bool>,
}

/// Answers with the last packets, or goes on with those that come.
pub(crate) async fn packets<C: Control>(
    State(served): State<Served<C>>,
    Extension(principal): Extension<Principal>,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut cursor = DropCursor::default();
    let last = served.control.last_drops(wanted.reason.as_deref(), &mut cursor)?;
    let as_stream = accepts_stream(&headers);
    if !as_stream && !accepts(&headers, PCAPNG) {
        return Ok(Json(last).into_response());
    }
    let follow = as_stream || wanted.follow == Some(true);
    let place = served.limits.streams.enter(&principal)?;
    let Served { control, ending, .. } = served;
    let following = Following { control, reason: wanted.reason, cursor, ending, first: Some(last), follow };
    let parts = stream::unfold((following, place), |(mut following, place)| async move {
        let part = following.next().await?;
        Some((part, (following, place)))
    });
    if as_stream {
        let message = |packet: DroppedView| Message::default().event("drop").data(json!(packet).to_string());
        let messages = parts
            .flat_map(move |part| stream::iter(part).map(move |packet| Ok::<_, Infallible>(message(packet))));
        return Ok(Sse::new(messages).into_response());
    }
    let mut file = PacketFile::new()?;
    let pieces = parts.map(move |packets| {
        for packet in packets {
            file.add(&packet.raw, &packet.comment())?;
        }
        Ok::<_, millrace_controller::ControlError>(Bytes::from(file.take()))
    });
    Ok(([(header::CONTENT_TYPE, PCAPNG)], Body::from_stream(pieces)).into_response())
}

/// A client that has seen what was dropped up to here.
struct Following<C> {
    control: C,
    reason: Option<String>,
    cursor: DropCursor,
    ending: watch::Receiver<bool>,
    first: Option<Vec<DroppedView>>,
    follow: bool,
}

impl<C: Control> Following<C> {
    /// What was dropped since; `None` at the end.
    async fn next(&mut self) -> Option<Vec<DroppedView>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while self.follow && !*self.ending.borrow() {
            // Whichever comes first; a closed channel means that the server is gone, and this with it.
            let _ = tokio::time::timeout(POLL, self.ending.wait_for(|ending| *ending)).await;
            let more = self.control.last_drops(self.reason.as_deref(), &mut self.cursor).ok()?;
            if !more.is_empty() {
                return Some(more);
            }
        }
        None
    }
}
