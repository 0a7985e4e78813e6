//! What a plugin and the router say to each other, the same for every home that a plugin can have.
//!
//! A [`Plugin`] is a type of plugin; an [`Instance`] is one configured copy of it, bound to flows at gates. The
//! router calls an instance with batches of packets of its flows; the instance writes a [`Verdict`] for each.
#![forbid(unsafe_code)]

mod error;
mod gate;
mod instance;
mod packets;

pub use error::PluginError;
pub use gate::{DEFAULT_GATES, Position};
pub use instance::{FlowEnd, Instance, Message, Plugin, Reply, merged};
pub use millrace_packet::{Exceptions, Family, FlowKey, Packet};
pub use millrace_units::Instant;
pub use packets::{Packets, Verdict};
