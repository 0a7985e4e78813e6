//! The router's log of events, as everybody has it who tells of some or reads them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_telemetry::{EventKind, EventLog, EventPage, EventQuery, Occurrence, utc_milliseconds};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// A handle on the log of events. Clones name the same one.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    log: Mutex<EventLog>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

impl Default for Events {
    /// An empty log.
    fn default() -> Self {
        Self::from(EventLog::default())
    }
}

impl From<EventLog> for Events {
    fn from(log: EventLog) -> Self {
        let newest = watch::Sender::new(log.newest());
        Self(Arc::new(Shared { log: Mutex::new(log), newest }))
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, EventLog> {
        // Each change is one step.
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something happens: what the kind says happens to `subject`, with a sentence and the same for programs, an
    /// object.
    pub fn note(&self, kind: EventKind, subject: &str, text: impl Into<String>, details: Value) {
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        let occurrence = Occurrence { kind, subject: subject.to_owned(), text: text.into(), details };
        let mut log = self.lock();
        if log.note(occurrence, now()) {
            self.0.newest.send_replace(log.newest());
        }
    }

    /// Logs what was gathered in seconds that are over. It is called about once a second.
    pub(crate) fn flush(&self) {
        let mut log = self.lock();
        if log.flush(now()) {
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

/// The date and the time, UTC.
pub(crate) fn utc_now() -> String {
    utc_milliseconds(now())
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
