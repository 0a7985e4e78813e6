//! HTTP API: JSON resources, one for each noun, on a Unix socket, and over TCP with TLS.
//!
//! [`Listener`] holds the Unix socket, and [`Remote`] the TCP sockets. [`start`] starts the client threads
//! (`entrance/serving.rs`), which have no privileges. Each request passes access control
//! (`entrance/access_control.rs`). Access control identifies the caller: by the user at the Unix socket, by a
//! token over TCP. Then it checks the caller's role and rate. An admitted request crosses to control
//! (`entrance/control_channel.rs`), which alone carries out requests: [`Server::run`] answers it.
//!
//! `catalogue.rs` has all resources with their roles, arguments and answers. The HTTP service, the list at
//! `/`, and the description at `/openapi.json` are generated from it.
//!
//! Errors are problem details (RFC 9457) whose `detail` is one sentence for people.
#![forbid(unsafe_code)]

mod catalogue;
mod endpoint;
mod entrance;
mod error;
mod http;
#[cfg(feature = "fuzzing")]
pub mod in_process;
mod limits;
mod openapi;
mod resources;
mod served;
mod server;
#[cfg(test)]
mod test_directory;

pub use entrance::listener::Listener;
pub use entrance::remote::{Remote, Unservable};
pub use error::ApiError;
pub use server::{Entrances, Server, start};

/// Returns the OpenAPI description, as a router serves it at `/openapi.json`.
pub fn description() -> serde_json::Value {
    openapi::document(&catalogue::catalogue())
}

/// Returns the table of operations for `docs/roles.md`.
pub fn roles() -> String {
    catalogue::table()
}
