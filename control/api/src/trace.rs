//! The resource `/trace`: journeys of packets, as they end.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Message, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use millrace_controller::view::TraceView;
use millrace_controller::{PacketFile, TraceRequest};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::capture::PCAPNG;
use crate::control::{Control, Tracing};
use crate::events::{accepts, accepts_stream};
use crate::extract::Arguments;
use crate::principal::Principal;
use crate::problem::Problem;
use crate::server::Served;

/// How often journeys are asked for.
const POLL: Duration = Duration::from_millis(20);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Which packets of those that come in; all, if nothing is said.
    filter: Option<String>,
    /// How many packets, 1 to 4,000; 10, if nothing is said.
    #[schemars(range(min = 1, max = 4000))]
    count: Option<u32>,
    /// One in so many of the packets that come in is looked at, on average; each, if nothing is said.
    #[schemars(range(min = 1, max = 1_048_576))]
    every: Option<u32>,
    /// For how many seconds at most, 1 to 3,600; 60, if nothing is said.
    #[schemars(range(min = 1, max = 3600))]
    seconds: Option<u64>,
}

/// Traces packets until there are as many as are wanted, the time is over, the client goes, or the router stops.
pub(crate) async fn trace<C: Control>(
    State(served): State<Served<C>>,
    Extension(principal): Extension<Principal>,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Wanted { filter, count, every, seconds } = wanted;
    let place = served.limits.streams.enter(&principal)?;
    let tracing = served.control.trace(&TraceRequest { filter, every, count, seconds })?;
    let running = Running { tracing, ending: served.ending, over: false, told: 0 };
    let parts = stream::unfold((running, place), |(mut running, place)| async move {
        let part = running.next().await?;
        Some((part, (running, place)))
    });
    if accepts_stream(&headers) {
        let messages = parts.flat_map(|part| stream::iter(messages(part)).map(Ok::<_, Infallible>));
        return Ok(Sse::new(messages).into_response());
    }
    if accepts(&headers, PCAPNG) {
        let mut file = PacketFile::new()?;
        let pieces = parts.map(move |part| {
            if let Part::Packets(packets) = part {
                for packet in packets {
                    file.add(&packet.raw, &packet.comment())?;
                }
            }
            Ok::<_, millrace_controller::ControlError>(Bytes::from(file.take()))
        });
        return Ok(([(header::CONTENT_TYPE, PCAPNG)], Body::from_stream(pieces)).into_response());
    }
    let packets = parts.fold(Vec::new(), |mut all, part| async move {
        if let Part::Packets(packets) = part {
            all.extend(packets);
        }
        all
    });
    Ok(Json(packets.await).into_response())
}

/// What a stream goes on with.
enum Part {
    /// Journeys that have ended.
    Packets(Vec<TraceView>),
    /// The end: how many there were, and how many were lost.
    End { packets: u64, lost: u64 },
}

fn messages(part: Part) -> Vec<Message> {
    match part {
        Part::Packets(packets) => {
            let message =
                |packet: &TraceView| Message::default().event("packet").data(json!(packet).to_string());
            packets.iter().map(message).collect()
        }
        Part::End { packets, lost } => {
            vec![Message::default().event("end").data(json!({"packets": packets, "lost": lost}).to_string())]
        }
    }
}

struct Running<T> {
    tracing: T,
    ending: watch::Receiver<bool>,
    over: bool,
    told: u64,
}

impl<T: Tracing> Running<T> {
    /// The journeys that have ended since; at last, the end.
    async fn next(&mut self) -> Option<Part> {
        if self.over {
            return None;
        }
        loop {
            let (packets, over) = self.tracing.take();
            self.told += packets.len() as u64;
            if !packets.is_empty() {
                return Some(Part::Packets(packets));
            }
            if over || *self.ending.borrow() {
                self.over = true;
                return Some(Part::End { packets: self.told, lost: self.tracing.lost() });
            }
            // Whichever comes first; a closed channel means that the server is gone, and this with it.
            let _ = tokio::time::timeout(POLL, self.ending.wait_for(|ending| *ending)).await;
        }
    }
}
