//! Rates, events and captures for people and programs.
#![forbid(unsafe_code)]

mod capture_file;
mod date;
mod event;
mod event_log;
mod rate;

pub use capture_file::{CaptureFile, CaptureFileError};
pub use date::{utc, utc_milliseconds};
pub use event::{Event, EventKind, Occurrence, Severity};
pub use event_log::{EventLog, EventPage, EventQuery, MOST_EVENTS};
pub use rate::Rate;
