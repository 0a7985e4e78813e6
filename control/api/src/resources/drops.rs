//! Resource `/drops/packets`: the last dropped packets for each reason.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use millrace_controller::view::DroppedView;
use millrace_controller::{DropCursor, PacketFile, Router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, PCAPNG, Source, accepts, accepts_stream, as_events, as_file, message};
use crate::principal::Principal;
use crate::served::Served;

/// Interval between reads of new drops.
const POLL: Duration = Duration::from_millis(200);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Drop reason of the packets; any reason by default.
    reason: Option<String>,
    /// Whether a capture file continues with new drops. Server-sent events always do.
    follow: Option<bool>,
}

/// Answers with the last dropped packets, or with a stream of new ones.
pub(crate) async fn packets(
    State(served): State<Served>,
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
    let (control, ending) = (served.control, Ending(served.ending));
    let following = Following { control, reason: wanted.reason, cursor, ending, first: Some(last), follow };
    if as_stream {
        let told = |packets: Vec<DroppedView>| packets.iter().map(|packet| message("drop", packet)).collect();
        return Ok(as_events(following, place, told));
    }
    let mut file = PacketFile::new()?;
    Ok(as_file(following, place, move |packets: Vec<DroppedView>| {
        packets.iter().try_for_each(|packet| file.add(&packet.raw, &packet.comment()))?;
        Ok(file.take())
    }))
}

/// Client of a stream of drops, with its position.
struct Following {
    control: Router,
    reason: Option<String>,
    cursor: DropCursor,
    ending: Ending,
    first: Option<Vec<DroppedView>>,
    follow: bool,
}

impl Source for Following {
    type Piece = Vec<DroppedView>;

    /// Returns the packets dropped since the last call; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Vec<DroppedView>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while self.follow && !self.ending.has_come() {
            self.ending.pause(POLL).await;
            let more = self.control.last_drops(self.reason.as_deref(), &mut self.cursor).ok()?;
            if !more.is_empty() {
                return Some(more);
            }
        }
        None
    }
}
