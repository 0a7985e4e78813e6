//! Forwarding decisions and packet changes: routes, next hops, neighbours, TTL, fragments, ICMP errors.
//!
//! All functions are pure: they read no clock (the caller passes the time), and send or receive nothing. No
//! bytes of a packet cause a panic: only the router's own tables are indexed, by numbers that they returned.
//! Tables belong to one worker, which changes them between two batches. The exception is the route table,
//! which control changes while all workers read it. There are no locks.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod adjacency;
#[expect(clippy::indexing_slicing, reason = "slots of routes, by numbers that the table of routes gave")]
mod fib;
mod fragment;
#[expect(
    clippy::indexing_slicing,
    reason = "slots of held packets, by links between them; packets are not read"
)]
mod hold;
mod icmp_error;
mod link_header;
mod neighbour;
mod next_hop;
mod options;
mod rate_limit;
mod redirect;
mod resolver;
mod retired;
#[expect(clippy::indexing_slicing, reason = "nodes by their links, and words of 256 bits by an octet")]
mod route_table;
mod sanity;
#[expect(clippy::indexing_slicing, reason = "nodes by their links, and entries by an octet's bit in a node")]
mod shared_route_table;
#[cfg(test)]
mod test_packets;
mod ttl;

pub use adjacency::{Adjacency, AdjacencyTable, Exit, NO_ADJACENCY, START};
pub use fib::{FibChange, FibMemory, FibReader, Route, RouteIndex, SharedFib};
pub use fragment::{FragmentError, fragment4};
pub use hold::{Held, HoldLimits, HoldQueue};
pub use icmp_error::{ErrorOptions, IcmpError, build_error, may_send_error};
pub use link_header::LinkHeader;
pub use millrace_memory::MemoryError;
pub use neighbour::{NeighbourKey, NeighbourState, NeighbourTable, Resolution, TableFull};
pub use next_hop::{MAX_NEXT_HOPS, NextHop, NextHops, NextHopsError};
pub use options::{OptionsVerdict, SourceRoutePolicy, check_options4};
pub use rate_limit::{ErrorLimiter, RateLimit};
pub use redirect::{RedirectQuery, build_redirect6, redirect_target};
pub use resolver::{Action, Heard, Origin, Resolver, ResolverSettings, Solicited};
pub use retired::Epoch;
pub use route_table::{PrefixBits, RouteTable};
pub use sanity::{
    MartianPolicy, check_destination4, check_destination6, check_source4, check_source6, is_ordinary4,
    is_ordinary6, leaves_scope6,
};
pub use shared_route_table::FibFull;
pub use ttl::{decrement_hop_limit, decrement_ttl};
