//! The router's log of events, as everybody has it who tells of some or reads them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millrace_telemetry::{EventKind, EventLog, EventPage, EventQuery, Occurrence, utc_milliseconds};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// A handle on the log of events. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    log: Mutex<EventLog>,
    /// From when on its clock counts, which nobody sets.
    began: Instant,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

/// Letters of a subject, a text or a detail of an event.
const MOST_TEXT: usize = 1024;

impl Default for Events {
    /// An empty log.
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
        // Each change is one step.
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log, the moment by the log's clock, and what that is by the clock on the wall.
    fn now(&self) -> (MutexGuard<'_, EventLog>, u64) {
        let mut log = self.lock();
        let at = self.0.began.elapsed().as_millis() as u64;
        log.set_wall_clock(at, now());
        (log, at)
    }

    /// Notes that something happens: what the kind says happens to `subject`, with a sentence and the same for programs, an
    /// object.
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

    /// Logs what was gathered in seconds that are over. It is called about once a second.
    pub(crate) fn flush(&self) {
        let (mut log, now) = self.now();
        if log.flush(now) {
            self.0.newest.send_replace(log.newest());
        }
    }

    /// The events that are asked for.
    pub fn page(&self, query: &EventQuery) -> EventPage {
        self.lock().page(query)
    }

    /// The number of the newest event, to be watched.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }
}

/// What a detail says, if it isn't long; names and reasons come from outside.
fn without_long(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(cut(&text)),
        other => other,
    }
}

/// The beginning of a text, in one line of letters that no terminal acts upon.
fn cut(text: &str) -> String {
    let letter = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(MOST_TEXT).map(letter).collect()
}

/// The date and the time, UTC.
pub(crate) fn utc_now() -> String {
    utc_milliseconds(now())
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_comes_from_outside_is_cut_and_in_one_line() {
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
