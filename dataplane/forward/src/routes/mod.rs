//! Routes: the FIB with its tables for longest prefix match, and next hops.

#[expect(clippy::indexing_slicing, reason = "slots of routes, by numbers that the table of routes gave")]
mod fib;
mod next_hop;
mod retired;
#[expect(clippy::indexing_slicing, reason = "nodes by their links, and words of 256 bits by an octet")]
mod route_table;
#[expect(clippy::indexing_slicing, reason = "nodes by their links, and entries by an octet's bit in a node")]
mod shared_route_table;

pub use self::fib::{FibChange, FibMemory, FibReader, Route, RouteIndex, SharedFib};
pub use self::next_hop::{MAX_NEXT_HOPS, NextHop, NextHops, NextHopsError};
pub use self::retired::Epoch;
pub use self::route_table::{PrefixBits, RouteTable};
pub use self::shared_route_table::FibFull;
