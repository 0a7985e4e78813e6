//! Connections: both directions of a flow as one, with the states of their protocols.
//!
//! A [`ConnectionTable`] belongs to one thread. [`track`](ConnectionTable::track) finds or opens the connection
//! of a packet, checks the packet against the connection's state, and advances the state. The state is that of
//! the two hosts, as seen by a router between them: [TCP](tcp) with its windows, SCTP with its verification
//! tags; UDP, ICMP queries and other protocols by the directions of their packets.
//!
//! The table allocates nothing after its creation. Callers pass the time, and take the connections that have
//! ended as values.
//!
//! **Two connections never share a record.** A record belongs to one key, and a [`ConnectionRef`] becomes
//! invalid when its connection ends.
//!
//! **A full table.** A TCP or SCTP connection is *assured* once its originator has answered the other side, which
//! nobody with a forged source address can do. In other protocols, a connection is assured once the other side has
//! answered twice, with a packet of the originator between. Forged packets to a host that answers them can do that.
//!
//! In a full table, a new connection takes the place of a connection that is not assured. There are two lists of such
//! connections: unanswered streams, of UDP and other protocols without a handshake; and all others. The oldest connection
//! of the longer list goes. So a flood of one kind leaves the other kind half of the room.
//! If all connections are assured, the table refuses the new one. So a flood from any number of sources ends no assured
//! connection. Each source also has a maximum.
//!
//! **Dropped packets.** A connection ends when callers have [dropped](ConnectionTable::drop_counted) all its packets so
//! far, so packets that policies drop fill no table.
//!
//! **Invalid packets** change nothing: no state, no idle time.
//!
//! **Epochs.** A table must see all packets of its connections. If packets may pass untracked, as while a path has no
//! instance that needs connections, the caller begins an [epoch](ConnectionTable::begin_epoch) with each such change. A
//! connection whose latest packet is of an earlier epoch is no longer checked against TCP windows, and learns its SCTP
//! tags again, unless its handshake is incomplete.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod config;
mod direction;
mod exchange;
mod hash;
mod invalid;
mod key;
mod listed;
mod query;
mod quoted;
mod record;
mod sctp;
mod state;
#[expect(clippy::indexing_slicing, reason = "records and buckets by slots that the table gave")]
mod table;
mod tcp;
mod timeouts;
mod tracked;

pub use config::{ConnectionConfig, ConnectionTableError};
pub use direction::Direction;
pub use invalid::Invalid;
pub use key::{ConnectionKey, Orientation};
pub use listed::Listed;
pub use quoted::quoted_flow;
pub use state::{Fragment, Transport};
pub use table::{ConnectionTable, Packet};
pub use timeouts::Timeouts;
pub use tracked::{ConnectionRef, EndReason, Ended, Known, Refusal, Relation, Tracked};
