//! The resource `/events`: what happened, a page at a time, or as it happens (server-sent events).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use millrace_controller::{ControlError, Event, EventKind, EventQuery, Events};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::control::Control;
use crate::extract::Arguments;
use crate::principal::Principal;
use crate::problem::Problem;
use crate::server::Served;

/// A comment is sent after so long without an event, so that both ends know that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a client is to wait before it connects again.
const RETRY: Duration = Duration::from_secs(1);
/// Events that are taken out of the log at one time.
const PORTION: usize = 64;

/// Which events are wanted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Those with higher numbers.
    since: Option<u64>,
    /// Of these, those of such kinds, with commas in between.
    kind: Option<String>,
    /// Of these, the last ones, so many: 1 to 10,000.
    #[schemars(range(min = 1, max = 10_000))]
    last: Option<usize>,
    /// Of these, the first ones, so many: 1 to 10,000; `next` in the answer is the `since` of the next page.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<usize>,
}

/// Answers with a page; with a stream, where the client accepts one.
pub(crate) async fn events<C: Control>(
    State(served): State<Served<C>>,
    Extension(principal): Extension<Principal>,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Wanted { since, last, limit, .. } = wanted;
    for (name, number) in [("last", last), ("limit", limit)] {
        if let Some(number) = number.filter(|number| !(1..=10_000).contains(number)) {
            return Err(Problem::bad_request(format!("{name} {number}: 1 to 10000 are right")));
        }
    }
    let query = EventQuery { since, last, limit, kinds: kinds(wanted.kind.as_deref())? };
    let query = resumed(query, &headers)?;
    let events = served.control.events();
    if accepts_stream(&headers) {
        let place = served.limits.streams.enter(&principal)?;
        let follower = Follower::new(events.clone(), query, served.ending);
        return Ok(stream_of(follower, place).into_response());
    }
    Ok(Json(events.page(&query)).into_response())
}

/// The kinds that are named.
fn kinds(named: Option<&str>) -> Result<Vec<EventKind>, Problem> {
    let kind = |name: &str| {
        name.parse().map_err(|()| {
            let known = EventKind::ALL.iter().map(|kind| kind.name());
            Problem::bad_request(ControlError::unknown("kind of event", name, known).to_string())
        })
    };
    named.map_or(Ok(Vec::new()), |named| named.split(',').map(kind).collect())
}

/// Whether a client wants a stream of server-sent events.
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

/// A client that was there before says what it heard last.
fn resumed(query: EventQuery, headers: &HeaderMap) -> Result<EventQuery, Problem> {
    let Some(heard) = headers.get("last-event-id") else { return Ok(query) };
    let number = heard.to_str().ok().and_then(|heard| heard.trim().parse().ok());
    let number = number.ok_or_else(|| {
        Problem::bad_request("Last-Event-ID is the number of an event, as in the `id` of what was sent")
    })?;
    Ok(EventQuery { since: Some(number), last: None, ..query })
}

/// A stream of what a follower hears, which takes up a place as long as it goes on.
fn stream_of<P: Send + 'static>(follower: Follower, place: P) -> impl IntoResponse {
    let messages = stream::unfold((follower, place), |(mut follower, place)| async move {
        follower.next().await.map(|message| (Ok::<_, Infallible>(message), (follower, place)))
    });
    Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// A client that follows the log. It reads at its own pace: what is gone before it was read is counted and told.
struct Follower {
    events: Events,
    newest: watch::Receiver<u64>,
    query: EventQuery,
    ready: VecDeque<Message>,
    ending: watch::Receiver<bool>,
}

impl Follower {
    fn new(events: Events, mut query: EventQuery, ending: watch::Receiver<bool>) -> Self {
        let newest = events.newest();
        query.limit = Some(PORTION);
        if let Some(last) = query.last.take() {
            // Where the last ones begin.
            let all = EventQuery { last: Some(last), limit: None, ..query.clone() };
            let first = events.page(&all).events.first().map(|event| event.number - 1);
            query.since = first.or(Some(*newest.borrow()));
        }
        query.since = query.since.or(Some(*newest.borrow()));
        let ready = VecDeque::from([Message::default().retry(RETRY).comment("events of a Millrace router")]);
        Self { events, newest, query, ready, ending }
    }

    /// The next message; `None` at the end of the router.
    async fn next(&mut self) -> Option<Message> {
        while self.ready.is_empty() {
            // Looked at before the log is, so that nothing is missed in between.
            self.newest.mark_unchanged();
            let page = self.events.page(&self.query);
            if page.missed > 0 {
                self.ready.push_back(missed(page.missed));
            }
            self.ready.extend(page.events.iter().map(message));
            let is_all = page.next == page.newest;
            self.query.since = Some(page.next);
            if self.ready.is_empty() && is_all {
                tokio::select! {
                    changed = self.newest.changed() => changed.ok()?,
                    _ = self.ending.wait_for(|ending| *ending) => return None,
                }
            }
        }
        self.ready.pop_front()
    }
}

fn message(event: &Event) -> Message {
    let data = json!(event).to_string();
    Message::default().id(event.number.to_string()).event(event.kind.name()).data(data)
}

/// What is told in the place of events that are gone.
fn missed(count: u64) -> Message {
    Message::default().event("missed").data(json!({"missed": count}).to_string())
}

#[cfg(test)]
mod tests;
