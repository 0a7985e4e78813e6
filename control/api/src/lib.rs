//! The HTTP interface: JSON resources, one per noun, on a Unix socket, and over TCP with TLS.
//!
//! [`Listener`] holds the Unix socket, [`Remote`] the TCP sockets. [`start`] starts the client threads,
//! [`Server::run`] answers their requests. These threads (`entrance/serving.rs`) have no privileges. Each
//! request passes access control (`entrance/access_control.rs`). The caller is identified by its user at the
//! Unix socket or by a token, needs the role of the operation, and has a limited rate. An admitted request
//! crosses to control (`entrance/control_channel.rs`), which alone carries it out at the router.
//!
//! `catalogue.rs` has all resources with their roles, arguments and answers. The router, the list at `/`, and
//! the description at `/openapi.json` are made from it.
//!
//! Errors are problem details (RFC 9457) whose `detail` is one sentence for people.
#![forbid(unsafe_code)]

mod catalogue;
mod effect;
mod entrance;
mod error;
mod http;
#[cfg(feature = "fuzzing")]
pub mod in_process;
mod limits;
mod openapi;
mod operation;
mod principal;
mod resources;
mod served;
mod server;
#[cfg(test)]
mod test_directory;

pub use entrance::listener::Listener;
pub use entrance::remote::{Remote, Unservable};
pub use error::ApiError;
pub use server::{Entrances, Server, start};

/// Returns the description of the interface, as a router serves it at `/openapi.json`.
pub fn description() -> serde_json::Value {
    openapi::document(&catalogue::catalogue())
}

/// Returns the table of operations in `docs/roles.md`.
pub fn roles() -> String {
    catalogue::table()
}
