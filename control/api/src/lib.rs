//! The HTTP interface: JSON resources, one per noun, on a Unix socket, and over TCP with TLS.
//!
//! [`Listener`] holds the socket, [`Remote`] those of TCP; [`start`] begins threads that speak with clients, [`Server::run`] answers them.
//! These threads (`serving.rs`) have no privileges. Each request passes access control (`access_control.rs`): the caller, known by the user
//! at the other end of the Unix socket or by a token, needs the role of the operation, and is limited in its rate. An admitted request
//! crosses to control (`control_channel.rs`), which alone carries it out at the router.
//!
//! `catalogue.rs` has all resources with who may use them, what they take and answer; from it come the router, the list at `/`, and the
//! description at `/openapi.json`.
//!
//! Errors are problem details (RFC 9457) whose `detail` is one sentence for people.
#![forbid(unsafe_code)]

mod access_control;
mod audit;
mod body_budget;
mod capture;
mod catalogue;
mod certificate;
mod configuration;
mod control_channel;
mod control_plane;
mod drops;
mod effect;
mod error;
mod events;
mod extract;
mod frames;
#[cfg(feature = "fuzzing")]
pub mod in_process;
mod limits;
mod listener;
mod long;
mod metrics;
mod naming;
mod openapi;
mod operation;
mod paging;
mod placement;
mod places;
mod principal;
mod problem;
mod rates;
mod remote;
mod remote_limit;
mod resources;
mod room;
mod schedulers;
mod server;
mod serving;
mod shares;
mod status;
mod streaming;
mod streams;
mod tag;
#[cfg(test)]
mod test_directory;
mod tokens;
mod trace;
mod users;
mod wording;

pub use error::ApiError;
pub use listener::Listener;
pub use remote::{Remote, Unservable};
pub use server::{Entrances, Server, start};

/// The description of the interface, as a router serves it at `/openapi.json`.
pub fn description() -> serde_json::Value {
    openapi::document(&catalogue::catalogue())
}

/// The table of operations in `docs/roles.md`.
pub fn roles() -> String {
    catalogue::table()
}
