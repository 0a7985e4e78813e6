//! Newtypes for what Millrace counts, measures and names, so that no bare integer crosses a signature.
//!
//! Nothing here reads a clock or does I/O. Arithmetic saturates: a counter that would wrap stays at its end.
#![forbid(unsafe_code)]

mod account;
mod id;
mod instant;
mod rate;

pub use account::{Amount, QueueAccount};
pub use id::{GateId, InstanceId, NextHopIndex, PathId, PortId, QueueId, WorkerId};
pub use instant::Instant;
pub use rate::{BitRate, PacketRate};
