//! Resource `/events`: events, a page at a time or as a stream (server-sent events).

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::Event as Message;
use axum::response::{IntoResponse, Response};
use millrace_controller::{ControlError, Event, EventKind, EventQuery, Events};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, Source, accepts_stream, as_events, continued, message};
use crate::principal::Principal;
use crate::served::Served;

/// Time that a client should wait before it connects again.
const RETRY: Duration = Duration::from_secs(1);
/// Number of events that one read takes from the log.
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
pub(crate) async fn events(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Wanted { since, last, limit, .. } = wanted;
    for (name, number) in [("last", last), ("limit", limit)] {
        if let Some(number) = number.filter(|number| !(1..=10_000).contains(number)) {
            return Err(Problem::bad_request(format!("{name} = {number} is out of range: give 1 to 10000")));
        }
    }
    let query = EventQuery { since, last, limit, kinds: kinds(wanted.kind.as_deref())? };
    let query = resumed(query, &headers)?;
    let events = served.control.events();
    if accepts_stream(&headers) {
        let place = served.limits.streams.enter(&principal)?;
        let follower = Follower::new(events.clone(), query, Ending(served.ending));
        return Ok(as_events(follower, place, |messages| messages));
    }
    Ok(Json(events.page(&query)).into_response())
}

/// Parses the names of kinds.
fn kinds(named: Option<&str>) -> Result<Vec<EventKind>, Problem> {
    let kind = |name: &str| {
        name.parse().map_err(|()| {
            let known = EventKind::ALL.iter().map(|kind| kind.name());
            Problem::bad_request(ControlError::unknown("kind of event", name, known).to_string())
        })
    };
    named.map_or(Ok(Vec::new()), |named| named.split(',').map(kind).collect())
}

/// Continues a query behind the last event that a returning client names.
fn resumed(query: EventQuery, headers: &HeaderMap) -> Result<EventQuery, Problem> {
    let Some(heard) = headers.get("last-event-id") else { return Ok(query) };
    let number = heard.to_str().ok().and_then(|heard| heard.trim().parse().ok());
    let number = number.ok_or_else(|| {
        Problem::bad_request(
            "header Last-Event-ID is no event number: send the `id` of the last event that you received",
        )
    })?;
    Ok(EventQuery { since: Some(number), last: None, ..query })
}

/// Client that follows the log at its own pace. Events that were removed before the client read them are
/// counted and reported.
struct Follower {
    events: Events,
    newest: watch::Receiver<u64>,
    query: EventQuery,
    /// First message of the stream.
    greeting: Option<Message>,
    ending: Ending,
}

impl Follower {
    fn new(events: Events, mut query: EventQuery, ending: Ending) -> Self {
        let newest = events.newest();
        query.limit = Some(PORTION);
        if let Some(last) = query.last.take() {
            // Number before the first of the last events.
            let all = EventQuery { last: Some(last), limit: None, ..query.clone() };
            let first = events.page(&all).events.first().map(|event| event.number - 1);
            query.since = first.or(Some(*newest.borrow()));
        }
        query.since = query.since.or(Some(*newest.borrow()));
        let greeting = Some(Message::default().retry(RETRY).comment("events of a Millrace router"));
        Self { events, newest, query, greeting, ending }
    }
}

impl Source for Follower {
    type Piece = Vec<Message>;

    /// Returns the next messages; `None` at the end of the router.
    async fn next(&mut self) -> Option<Vec<Message>> {
        if let Some(greeting) = self.greeting.take() {
            return Some(vec![greeting]);
        }
        loop {
            // Marked before reading the log, so that no event is missed in between.
            self.newest.mark_unchanged();
            let page = self.events.page(&self.query);
            self.query.since = Some(page.next);
            // Message in place of removed events.
            let missed = (page.missed > 0).then(|| message("missed", &json!({"missed": page.missed})));
            let told: Vec<Message> = missed.into_iter().chain(page.events.iter().map(told)).collect();
            if !told.is_empty() {
                return Some(told);
            }
            if page.next == page.newest {
                self.ending.or(self.newest.changed()).await?.ok()?;
            }
        }
    }
}

fn told(event: &Event) -> Message {
    let begun = Message::default().id(event.number.to_string());
    continued(begun, event.kind.name(), event)
}

#[cfg(test)]
mod tests;
