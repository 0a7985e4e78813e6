//! Commands that change ports, routes, filters, schedulers and flows.

pub(super) mod connection;
pub(super) mod control_plane;
pub(super) mod filter;
pub(super) mod flow;
pub(super) mod lists;
pub(super) mod place;
pub(super) mod route;
pub(super) mod router;
pub(super) mod scheduler;
