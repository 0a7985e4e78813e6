//! Newtypes for Millrace's counts, measures and ids, so that no signature has a bare integer.
//!
//! The crate also has texts that people read: numbers with their nouns, and proposals for an unknown name.
//!
//! The crate reads no clock and does no I/O. Arithmetic on times and rates saturates instead of wrapping.
//! Amounts wrap, but only after 500 years at a billion packets a second.
#![forbid(unsafe_code)]

mod account;
mod count;
mod cycles;
mod id;
mod instant;
mod message;
mod names;
mod quantity;
mod rate;
mod split_mix;
mod token_bucket;

pub use account::{Amount, QueueAccount};
pub use count::{by_number, count, plural};
pub use cycles::Cycles;
pub use id::{GateId, InstanceId, NextHopIndex, PathId, PortId, PrincipalId, QueueId};
pub use instant::Instant;
pub use message::{Message, Piece, Spelling};
pub use names::{here, nearest, remedy};
pub use quantity::{QuantityError, read_rate, read_size, read_time, write_rate, write_size, write_time};
pub use rate::BitRate;
pub use split_mix::SplitMix;
pub use token_bucket::{TokenBucket, TokenRate};
