//! Newtypes for what Millrace counts, measures and names, so that no bare integer crosses a signature.
//!
//! Words for people stand here, too: numbers with their nouns, and the nearest known name to a wrong one.
//!
//! Nothing here reads a clock or does I/O. Arithmetic on times and rates saturates: what would wrap stays at its end. Amounts
//! wrap, after 500 years at a billion packets in a second.
#![forbid(unsafe_code)]

mod account;
mod count;
mod id;
mod instant;
mod names;
mod quantity;
mod rate;
mod token_bucket;

pub use account::{Amount, QueueAccount};
pub use count::{by_number, count, plural};
pub use id::{GateId, InstanceId, NextHopIndex, PathId, PortId, QueueId, WorkerId};
pub use instant::Instant;
pub use names::{here, nearest, remedy};
pub use quantity::{QuantityError, read_rate, read_size, read_time, write_rate, write_size, write_time};
pub use rate::{BitRate, PacketRate};
pub use token_bucket::{TokenBucket, TokenRate};
