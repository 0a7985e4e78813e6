//! Resource `/drops/packets`: the last dropped packets for each reason.

use std::time::Duration;

use axum::Json;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use millrace_controller::operation::ReadLastDrops;
use millrace_controller::view::DroppedView;
use millrace_controller::{DropCursor, PacketFile};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, PCAPNG, Source, accepts, accepts_stream, as_events, as_file, message};
use crate::served::Session;

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
    session: Session,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let first = ReadLastDrops { reason: wanted.reason.clone(), cursor: DropCursor::default() };
    let (last, cursor) = session.execute(first).await?;
    let as_stream = accepts_stream(&headers);
    if !as_stream && !accepts(&headers, PCAPNG) {
        return Ok(Json(last).into_response());
    }
    let follow = as_stream || wanted.follow == Some(true);
    let place = session.served.limits.streams.enter(session.call.principal())?;
    let ending = Ending(session.served.ending.clone());
    let following = Following { session, reason: wanted.reason, cursor, ending, first: Some(last), follow };
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

/// Stream of drops for one client, with the position in the drop log.
struct Following {
    session: Session,
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
            let further = ReadLastDrops { reason: self.reason.clone(), cursor: self.cursor.clone() };
            let (more, cursor) = self.session.execute(further).await.ok()?;
            self.cursor = cursor;
            if !more.is_empty() {
                return Some(more);
            }
        }
        None
    }
}
