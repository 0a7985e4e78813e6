//! Streaming answers. Events, rates, traces, drops and captures are each a [`Source`]. A source is sent as
//! server-sent events or as a capture file. The stream ends when its source ends, when the client
//! disconnects, or when the router stops.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use millrace_controller::ControlError;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

/// Media type of capture files.
pub(crate) const PCAPNG: &str = "application/x-pcapng";
/// Time without a message after which the server sends a comment. The comment shows both ends that the
/// connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Source of a streaming answer.
pub(crate) trait Source: Send + 'static {
    /// Content of one message, or of one write to the capture file.
    type Piece: Send + 'static;

    /// Waits for the next piece; `None` at the end of the stream.
    fn next(&mut self) -> impl Future<Output = Option<Self::Piece>> + Send;
}

/// Returns a source as a stream of pieces. The stream keeps `place`, its slot among the limited streams,
/// until it ends.
pub(crate) fn pieces<S: Source, P: Send + 'static>(
    source: S,
    place: P,
) -> impl Stream<Item = S::Piece> + Send {
    stream::unfold((source, place), |(mut source, place)| async move {
        source.next().await.map(|piece| (piece, (source, place)))
    })
}

/// Sends a source as server-sent events.
pub(crate) fn as_events<S: Source, P: Send + 'static>(
    source: S,
    place: P,
    messages: impl Fn(S::Piece) -> Vec<Message> + Send + 'static,
) -> Response {
    let all = pieces(source, place).flat_map(move |piece| stream::iter(messages(piece)));
    let all = all.map(Ok::<_, Infallible>);
    Sse::new(all).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Sends a source as a capture file.
pub(crate) fn as_file<S: Source, P: Send + 'static>(
    source: S,
    place: P,
    written: impl FnMut(S::Piece) -> Result<Vec<u8>, ControlError> + Send + 'static,
) -> Response {
    let bytes = pieces(source, place).map(written).map(|piece| piece.map(Bytes::from));
    ([(header::CONTENT_TYPE, PCAPNG)], Body::from_stream(bytes)).into_response()
}

/// Returns a server-sent event with this name and data.
pub(crate) fn message(name: &str, data: &impl Serialize) -> Message {
    continued(Message::default(), name, data)
}

/// Adds name and data to a server-sent event, which may already have an id.
pub(crate) fn continued(begun: Message, name: &str, data: &impl Serialize) -> Message {
    begun.event(name).data(json!(data).to_string())
}

/// Returns whether a client accepts server-sent events.
pub(crate) fn accepts_stream(headers: &HeaderMap) -> bool {
    accepts(headers, "text/event-stream")
}

/// Returns whether a client accepts exactly this media type; wildcards don't count.
pub(crate) fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == media))
}

/// Watch on the end of the server: becomes true when the router stops.
#[derive(Clone, Debug)]
pub(crate) struct Ending(pub watch::Receiver<bool>);

impl Ending {
    /// Whether the router is stopping.
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for `other`. Returns `None` if the router stops first.
    pub async fn or<T>(&mut self, other: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            other = other => Some(other),
            // A closed channel means that the server has ended.
            _ = self.0.wait_for(|ending| *ending) => None,
        }
    }

    /// Waits for `time`, or until the router stops.
    pub async fn pause(&mut self, time: Duration) {
        self.or(tokio::time::sleep(time)).await;
    }
}
