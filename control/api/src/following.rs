//! Answers that go on: events, rates, journeys, drops and captures are each a [`Source`], told as server-sent events or as a file
//! of packets until it ends, the client goes, or the router stops.

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

/// What files of packets are.
pub(crate) const PCAPNG: &str = "application/x-pcapng";
/// A comment is sent after so long without a message, so that both ends know that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What goes on to be told.
pub(crate) trait Source: Send + 'static {
    /// What is told at a time.
    type Piece: Send + 'static;

    /// The next piece, once there is one; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Self::Piece>> + Send;
}

/// The pieces of a source, which keeps its place among streams as long as it goes on.
pub(crate) fn pieces<S: Source, P: Send + 'static>(
    source: S,
    place: P,
) -> impl Stream<Item = S::Piece> + Send {
    stream::unfold((source, place), |(mut source, place)| async move {
        source.next().await.map(|piece| (piece, (source, place)))
    })
}

/// Tells a source as server-sent events.
pub(crate) fn as_events<S: Source, P: Send + 'static>(
    source: S,
    place: P,
    told: impl Fn(S::Piece) -> Vec<Message> + Send + 'static,
) -> Response {
    let messages = pieces(source, place).flat_map(move |piece| stream::iter(told(piece)));
    let messages = messages.map(Ok::<_, Infallible>);
    Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Tells a source as a file of packets.
pub(crate) fn as_file<S: Source, P: Send + 'static>(
    source: S,
    place: P,
    written: impl FnMut(S::Piece) -> Result<Vec<u8>, ControlError> + Send + 'static,
) -> Response {
    let bytes = pieces(source, place).map(written).map(|piece| piece.map(Bytes::from));
    ([(header::CONTENT_TYPE, PCAPNG)], Body::from_stream(bytes)).into_response()
}

/// A message of that name.
pub(crate) fn message(name: &str, data: &impl Serialize) -> Message {
    continued(Message::default(), name, data)
}

/// A message that has a number already.
pub(crate) fn continued(begun: Message, name: &str, data: &impl Serialize) -> Message {
    begun.event(name).data(json!(data).to_string())
}

/// Whether a client wants server-sent events.
pub(crate) fn accepts_stream(headers: &HeaderMap) -> bool {
    accepts(headers, "text/event-stream")
}

/// Whether a client names a media type among those that it wants.
pub(crate) fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == media))
}

/// Whether the router stops.
#[derive(Clone, Debug)]
pub(crate) struct Ending(pub watch::Receiver<bool>);

impl Ending {
    /// Whether it does by now.
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it does, or for something else; `None` where it does.
    pub async fn or<T>(&mut self, other: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            other = other => Some(other),
            // A closed channel means that the server is gone, and this with it.
            _ = self.0.wait_for(|ending| *ending) => None,
        }
    }

    /// Waits for a while, or until it does.
    pub async fn pause(&mut self, time: Duration) {
        self.or(tokio::time::sleep(time)).await;
    }
}
