//! Resource `/trace`: journeys of traced packets, sent when each journey has ended.

use std::time::Duration;

use axum::Json;
use axum::http::HeaderMap;
use axum::response::sse::Event as Message;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use millrace_controller::operation::StartTrace;
use millrace_controller::view::TraceView;
use millrace_controller::{PacketFile, Trace, TraceRequest};
use serde_json::{Value, json};

use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{
    Ending, PCAPNG, Source, accepts, accepts_stream, as_events, as_file, message, pieces,
};
use crate::served::Session;

/// Interval between reads of traces.
const POLL: Duration = Duration::from_millis(20);

/// Streams traces, until the requested number is reached, the time limit passes, the client disconnects, or
/// the router stops.
pub(crate) async fn trace(
    session: Session,
    Arguments(request): Arguments<TraceRequest>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let place = session.served.limits.streams.enter(session.call.principal())?;
    let tracing = session.execute(StartTrace(request)).await?;
    let running = Running { tracing, ending: Ending(session.served.ending), over: false, told: 0 };
    if accepts_stream(&headers) {
        return Ok(as_events(running, place, messages));
    }
    if accepts(&headers, PCAPNG) {
        let mut file = PacketFile::new()?;
        return Ok(as_file(running, place, move |part| {
            part.packets.iter().try_for_each(|packet| file.add(&packet.raw, &packet.comment()))?;
            Ok(file.take())
        }));
    }
    let packets: Vec<Vec<TraceView>> = pieces(running, place).map(|part| part.packets).collect().await;
    Ok(Json(packets.concat()).into_response())
}

/// Piece of a trace stream.
struct Part {
    /// Journeys that have ended.
    packets: Vec<TraceView>,
    /// Last message of the stream: numbers of traced and of lost packets.
    end: Option<Value>,
}

fn messages(part: Part) -> Vec<Message> {
    let packets = part.packets.iter().map(|packet| message("packet", packet));
    packets.chain(part.end.map(|end| message("end", &end))).collect()
}

struct Running {
    tracing: Trace,
    ending: Ending,
    over: bool,
    told: u64,
}

impl Source for Running {
    type Piece = Part;

    /// Waits for ended journeys; the last piece has the end message.
    async fn next(&mut self) -> Option<Part> {
        if self.over {
            return None;
        }
        loop {
            let (packets, over) = self.tracing.take();
            self.told += packets.len() as u64;
            self.over = over || self.ending.has_come();
            let end = self.over.then(|| json!({"packets": self.told, "lost": self.tracing.lost()}));
            if self.over || !packets.is_empty() {
                return Some(Part { packets, end });
            }
            self.ending.pause(POLL).await;
        }
    }
}
