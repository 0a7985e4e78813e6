//! Resource `/events`: events, in pages or as a stream of server-sent events.

use std::time::Duration;

use axum::Json;
use axum::http::HeaderMap;
use axum::response::sse::Event as Message;
use axum::response::{IntoResponse, Response};
use millrace_controller::operation::{FollowEvents, ListEvents};
use millrace_controller::{ControlError, Event, EventKind, EventQuery, Events};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, Source, accepts_stream, as_events, continued, message};
use crate::served::Session;

/// Time after which a disconnected client should reconnect (field `retry` of server-sent events).
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of events that are read from the event log at a time.
const PORTION: usize = 64;

/// Query arguments that select events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Number of an event; only later events are selected.
    since: Option<u64>,
    /// Kinds of the events, separated by commas; all kinds by default.
    kind: Option<String>,
    /// Number of latest events, 1 to 10,000.
    #[schemars(range(min = 1, max = 10_000))]
    last: Option<usize>,
    /// Maximum number of events in the page, 1 to 10,000. `next` in the answer is the `since` of the next
    /// page.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<usize>,
}

/// Answers with a page, or with a stream if the client accepts one.
pub(crate) async fn events(
    session: Session,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Wanted { since, last, limit, .. } = wanted;
    for (name, number) in [("last", last), ("limit", limit)] {
        number.map(|number| ControlError::in_range(name, number, 1..=10_000)).transpose()?;
    }
    let query = EventQuery { since, last, limit, kinds: kinds(wanted.kind.as_deref())? };
    let query = resumed(query, &headers)?;
    if accepts_stream(&headers) {
        let place = session.served.limits.streams.enter(session.call.principal())?;
        let events = session.execute(FollowEvents).await?;
        let follower = Follower::new(events, query, Ending(session.served.ending));
        return Ok(as_events(follower, place, |messages| messages));
    }
    Ok(Json(session.execute(ListEvents(query)).await?).into_response())
}

/// Parses names of event kinds, separated by commas.
fn kinds(named: Option<&str>) -> Result<Vec<EventKind>, Problem> {
    let kind = |name: &str| {
        name.parse().map_err(|()| {
            let known = EventKind::ALL.iter().map(|kind| kind.name());
            Problem::bad_request(ControlError::unknown("kind of event", name, known).to_string())
        })
    };
    named.map_or(Ok(Vec::new()), |named| named.split(',').map(kind).collect())
}

/// Lets a query start after the event that a reconnecting client names in `Last-Event-ID`.
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

/// Reader of the event log for one client, at the client's own pace. If the log has removed events before
/// this client could read them, the client gets the number of these events.
struct Follower {
    events: Events,
    newest: watch::Receiver<u64>,
    query: EventQuery,
    /// First message of the stream; `None` once it is sent.
    greeting: Option<Message>,
    ending: Ending,
}

impl Follower {
    fn new(events: Events, mut query: EventQuery, ending: Ending) -> Self {
        let newest = events.newest();
        query.limit = Some(PORTION);
        if let Some(last) = query.last.take() {
            // Start just before the first of the last `last` events.
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

    /// Waits for the next messages; `None` when the router stops.
    async fn next(&mut self) -> Option<Vec<Message>> {
        if let Some(greeting) = self.greeting.take() {
            return Some(vec![greeting]);
        }
        loop {
            // Mark before reading, so that an event in between is noticed.
            self.newest.mark_unchanged();
            let page = self.events.page(&self.query);
            self.query.since = Some(page.next);
            // Message about events removed before they were read.
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
