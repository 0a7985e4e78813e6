//! The HTTP interface: JSON resources, one per noun, on a Unix socket.
//!
//! [`Listener`] holds the socket, [`serve`] answers on it. What it answers with comes from a [`Control`], which is the
//! router's own control in the daemon. Whoever may connect may do everything: the socket's mode (0660) is the guard.
//!
//! | resource | methods |
//! |---|---|
//! | `/` | GET: this list |
//! | `/status`, `/summary`, `/ports`, `/ports/{name}`, `/neighbours`, `/plugins`, `/drops` | GET |
//! | `/routes` | GET, POST `{to, via, port, kind}`, DELETE `{to}` |
//! | `/routes/lookup?address=` | GET |
//! | `/instances` | GET, POST `{plugin, name, settings}` |
//! | `/instances/{name}` | GET, DELETE |
//! | `/instances/{name}/control` | POST `{message, arguments, slow}` |
//! | `/gates` | GET, POST `{name, position}` |
//! | `/gates/{name}` | GET, DELETE |
//! | `/bindings` | GET, POST `{instance, gate, filter, priority}`, DELETE `{instance, gate, filter}` |
//! | `/filters` | GET, POST `{filter, action, gate, priority}`, DELETE `{ids}` |
//! | `/filters/{id}` | GET, DELETE |
//! | `/filters/check`, `/filters/explain?packet=` | GET |
//! | `/flows?filter=&order=&limit=` | GET, DELETE (`filter` alone) |
//! | `/events?since=&last=&kind=&limit=` | GET: a page, or a stream of server-sent events |
//! | `/lookup` | POST `{packet}` |
//! | `/metrics` | GET: OpenMetrics text |
//! | `/counters` | DELETE |
//! | `/capture?port=&filter=&snap=&count=` | GET: pcapng until `count` frames or the client's end |
//!
//! Errors are problem details (RFC 9457) whose `detail` is one sentence for people.
#![forbid(unsafe_code)]

mod capture;
mod configuration;
mod control;
mod error;
mod events;
mod extract;
mod frames;
mod listener;
mod metrics;
mod peer;
mod problem;
mod resources;
mod schedulers;
mod server;
#[cfg(test)]
mod test_control;

pub use control::{Control, Recording};
pub use error::ApiError;
pub use listener::Listener;
pub use server::serve;
