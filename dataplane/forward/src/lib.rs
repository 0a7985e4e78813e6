//! Where a packet goes and what it must look like there: routes, next hops, neighbours, TTL, fragments, ICMP errors.
//!
//! Everything here is pure: no clock is read (the moment is passed in), nothing is sent or received. Nothing panics
//! on the bytes of a packet, provided that its network header passed `millrace_wire`'s sanity checks. Tables
//! belong to one worker, which changes them between two batches, but for the table of routes: control changes it while
//! all workers look at it. There is no locking.
#![forbid(unsafe_code)]

mod adjacency;
mod fib;
mod fragment;
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
mod route_table;
mod sanity;
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
pub use rate_limit::{ErrorLimiter, RateLimit, TokenBucket};
pub use redirect::{RedirectQuery, build_redirect6, redirect_target};
pub use resolver::{Action, Heard, Resolver, ResolverSettings, Solicited};
pub use retired::Epoch;
pub use route_table::{PrefixBits, RouteTable};
pub use sanity::{
    MartianPolicy, check_destination4, check_destination6, check_source4, check_source6, is_ordinary4,
    is_ordinary6, leaves_scope6,
};
pub use shared_route_table::FibFull;
pub use ttl::{decrement_hop_limit, decrement_ttl};
