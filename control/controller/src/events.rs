//! Shared event log of the router.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_telemetry::{EventKind, EventLog, EventPage, EventQuery, Occurrence, utc_milliseconds};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// Handle on the event log. Clones share the log.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    log: Mutex<EventLog>,
    /// Start of the log's clock, which is monotonic.
    began: Instant,
    /// Number of the newest event.
    newest: watch::Sender<u64>,
}

/// Maximum number of characters of an event's subject, text or detail.
const MOST_TEXT: usize = 1024;

impl Default for Events {
    /// Creates an empty log.
    fn default() -> Self {
        Self::from(EventLog::default())
    }
}

impl From<EventLog> for Events {
    fn from(log: EventLog) -> Self {
        let newest = watch::Sender::new(log.newest());
        Self(Arc::new(Shared { log: Mutex::new(log), began: Instant::now(), newest }))
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, EventLog> {
        // No panic leaves the log half changed, so a poisoned lock is harmless.
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the log, and the current time of the log's clock in milliseconds. Also updates the offset
    /// between the log's clock and the wall clock.
    fn now(&self) -> (MutexGuard<'_, EventLog>, u64) {
        let mut log = self.lock();
        let at = self.0.began.elapsed().as_millis() as u64;
        log.set_wall_clock(at, milliseconds());
        (log, at)
    }

    /// Logs an event about `subject`. `text` is a sentence for people; `details` is a JSON object for
    /// programs.
    pub fn note(&self, kind: EventKind, subject: &str, text: impl Into<String>, details: Value) {
        let details = match details {
            Value::Object(details) => {
                details.into_iter().map(|(key, value)| (key, without_long(value))).collect()
            }
            _ => Map::new(),
        };
        let (subject, text) = (cut(subject), cut(&text.into()));
        let occurrence = Occurrence { kind, subject, text, details };
        let (mut log, now) = self.now();
        if log.note(occurrence, now) {
            self.0.newest.send_replace(log.newest());
        }
    }

    /// Logs the repeated events that were merged in the past seconds. Control calls this about once a second.
    pub(crate) fn flush(&self) {
        let (mut log, now) = self.now();
        if log.flush(now) {
            self.0.newest.send_replace(log.newest());
        }
    }

    /// Returns the events selected by a query.
    pub fn page(&self, query: &EventQuery) -> EventPage {
        self.lock().page(query)
    }

    /// Returns a channel that reports the number of the newest event.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }
}

/// Shortens a string value: names and reasons that come from outside may be long.
fn without_long(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(cut(&text)),
        other => other,
    }
}

/// Returns the first characters of a text as one line without control characters, up to [`MOST_TEXT`].
fn cut(text: &str) -> String {
    let letter = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(MOST_TEXT).map(letter).collect()
}

/// Returns the date and the time, UTC.
pub(crate) fn utc_now() -> String {
    utc_milliseconds(milliseconds())
}

fn milliseconds() -> u64 {
    since_1970().as_millis() as u64
}

pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn external_text_is_shortened_to_one_line() {
        let events = Events::default();
        let long = "x".repeat(1 << 20);
        let text = format!("\u{1b}[31mbad\n{long}");
        events.note(EventKind::ConfigurationSaved, &long, text, json!({"origin": long, "bytes": 7}));
        let event = events.page(&EventQuery::default()).events.remove(0);
        assert!(event.text.starts_with(" [31mbad x"), "{:?}", &event.text[..20]);
        assert_eq!([&event.subject, &event.text].map(|text| text.chars().count()), [MOST_TEXT; 2]);
        assert_eq!(event.details["origin"].as_str().unwrap().len(), MOST_TEXT);
        assert_eq!(event.details["bytes"], 7);
    }
}
