//! Kernel beside the router: mirrored state, policies, routing daemons, neighbours.

mod mirror;
mod neighbours;
mod policy;
mod routing_daemon;
