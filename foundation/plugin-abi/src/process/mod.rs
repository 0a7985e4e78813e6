//! Format of the memory that a worker of the router shares with the process of a plugin.
//!
//! ```text
//!   worker                    shared memory                 process
//!   REQUEST_LANE: Writer ──▶ requests, results ──────────▶ Reader
//!                            packets, states   ◀─────────▶ plugin
//!   ANSWER_LANE:  Reader ◀── host functions, ends ◀─────── Writer
//!                            bell              ◀────────── sleeps
//! ```
//!
//! The worker sends one [`request`] at a time. The process carries it out, and sends [`answer::DONE`]. Until
//! then, the process may call host functions: it sends an answer of the function's kind, and waits for
//! [`request::RESULT`] if the function has a result. `docs/plugin-process.md` describes the format for other
//! languages.
//!
//! The module has no I/O: each side maps the memory, and sleeps and wakes the other side, by itself.

mod kinds;
mod layout;
mod ring;
mod words;
mod work;

pub use kinds::{answer, request};
pub use layout::{
    ADDRESS, ANSWER_LANE, ASLEEP, BELL, DESCRIPTION, LOOKED, Layout, NoLayout, PROCESSOR, REQUEST_LANE,
    VERSION,
};
pub use ring::{Broken, Lane, MOST_BYTES, MOST_READ, Reader, Record, Writer};
pub use words::{load, store};
pub use work::ProcessWork;
