//! Forwarding decisions and packet changes: routes, next hops, neighbours, TTL, fragments, ICMP errors.
//!
//! All functions are pure: they read no clock (the caller passes the time), and send or receive nothing. No
//! bytes of a packet cause a panic: only the router's own tables are indexed, by numbers that they returned.
//!
//! Tables belong to one worker, which changes them between two batches. The exception is the route table,
//! which control changes while all workers read it. There are no locks.
//!
//! Ids such as FR-01 name conformance cases of `tests/tests/project/conformance.txt`; `docs/decisions.md`
//! explains the decisions behind many of them.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod fragment;
mod icmp;
mod neighbours;
mod options;
mod routes;
mod sanity;
#[cfg(test)]
mod test_packets;
mod ttl;

pub use fragment::{FragmentError, fragment4};
pub use icmp::{
    ErrorLimiter, ErrorOptions, IcmpError, RateLimit, RedirectQuery, build_error, build_redirect6,
    may_send_error, redirect_target,
};
pub use millrace_memory::MemoryError;
pub use neighbours::{
    Action, Adjacency, AdjacencyTable, Exit, Heard, Held, HoldLimits, HoldQueue, LinkHeader, NO_ADJACENCY,
    NeighbourKey, NeighbourState, NeighbourTable, Origin, Resolution, Resolver, ResolverSettings, START,
    Solicited, TableFull,
};
pub use options::{OptionsVerdict, SourceRoutePolicy, check_options4};
pub use routes::{
    Epoch, FibChange, FibFull, FibMemory, FibReader, MAX_NEXT_HOPS, NextHop, NextHops, NextHopsError,
    PrefixBits, Route, RouteIndex, RouteTable, SharedFib,
};
pub use sanity::{
    MartianPolicy, check_destination4, check_destination6, check_source4, check_source6, is_ordinary4,
    is_ordinary6, leaves_scope6,
};
pub use ttl::{decrement_hop_limit, decrement_ttl};
