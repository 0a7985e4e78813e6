//! The HTTP interface: JSON resources, one per noun, on a Unix socket.
//!
//! [`Listener`] holds the socket, [`serve`] answers on it. What it answers with comes from a [`Control`], which is the
//! router's own control in the daemon. Whoever may connect may do everything: the socket's mode (0660) is the guard.
//!
//! `catalogue.rs` has all resources with what they take and answer; from it come the router, the list at `/`, and the description
//! at `/openapi.json`.
//!
//! Errors are problem details (RFC 9457) whose `detail` is one sentence for people.
#![forbid(unsafe_code)]

mod audit;
mod capture;
mod catalogue;
mod configuration;
mod control;
mod drops;
mod error;
mod events;
mod extract;
mod frames;
mod limits;
mod listener;
mod metrics;
mod openapi;
mod operation;
mod paging;
mod peer;
mod problem;
mod rates;
mod resources;
mod schedulers;
mod server;
mod tag;
#[cfg(test)]
mod test_control;
mod trace;

pub use control::{Control, Recording, Tracing};
pub use error::ApiError;
pub use listener::Listener;
pub use server::serve;
