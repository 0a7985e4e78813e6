//! Table of connections, as the gates use it. The pipeline has the table.

use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin_abi::PacketConnection;
use millrace_units::Instant;

use crate::connection_state::ConnectionEnd;

/// Result of tracking a packet.
#[derive(Clone, Copy, Debug)]
pub struct TrackedPacket {
    /// Connection of the packet, or the reason to drop it.
    pub connection: Result<PacketConnection, DropReason>,
    /// Connection that ended because of the packet.
    pub ended: Option<ConnectionEnd>,
}

/// Table of connections at a worker.
pub trait TrackConnections {
    /// Finds or opens the connection of a packet. The connection of an earlier packet of the batch may end.
    fn track(&mut self, packet: &Packet, key: &FlowKey, now: Instant) -> TrackedPacket;
}

/// Connections of the packets of a batch.
pub struct Tracking<'a> {
    /// Table of connections.
    pub tracker: &'a mut dyn TrackConnections,
    /// Connection of each packet; the default for a packet that is not tracked yet.
    pub connections: &'a mut [PacketConnection],
}
