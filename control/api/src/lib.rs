//! The HTTP interface: JSON resources, one per noun, on a Unix socket, and over TCP with TLS.
//!
//! [`Listener`] holds the socket, [`Remote`] those of TCP; [`start`] begins threads that speak with clients, [`Server::run`] answers them.
//! These threads (`entrance/serving.rs`) have no privileges. Each request passes access control (`entrance/access_control.rs`): the caller, known by the user
//! at the other end of the Unix socket or by a token, needs the role of the operation, and is limited in its rate. An admitted request
//! crosses to control (`entrance/control_channel.rs`), which alone carries it out at the router.
//!
//! `catalogue.rs` has all resources with who may use them, what they take and answer; from it come the router, the list at `/`, and the
//! description at `/openapi.json`.
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

/// The description of the interface, as a router serves it at `/openapi.json`.
pub fn description() -> serde_json::Value {
    openapi::document(&catalogue::catalogue())
}

/// The table of operations in `docs/roles.md`.
pub fn roles() -> String {
    catalogue::table()
}
