//! Views of connections.

use schemars::JsonSchema;
use serde::Serialize;

/// List of connections.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConnectionsView {
    /// Number of matching connections, including connections that are not listed.
    pub found: usize,
    /// First of the matching connections, in no particular order.
    pub connections: Vec<ConnectionView>,
}

/// Connection.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConnectionView {
    /// IP protocol: its name, or its number.
    pub protocol: String,
    /// Address of the side that opened the connection.
    pub source: String,
    /// Port of the side that opened the connection; 0 where the protocol has none.
    pub source_port: u16,
    /// Address of the other side.
    pub destination: String,
    /// Port of the other side; 0 where the protocol has none.
    pub destination_port: u16,
    /// Identifier of an ICMP query; absent for other protocols.
    pub identifier: Option<u16>,
    /// Phase of the protocol, such as `established`.
    pub state: &'static str,
    /// Whether the other side has answered.
    pub answered: bool,
    /// Whether both sides have confirmed the connection: no new connection takes its place in a full table.
    pub confirmed: bool,
    /// Seconds until the connection ends if no packet comes.
    pub expires: f64,
    /// Number of the worker that tracks the connection, counted from 0.
    pub worker: usize,
}

/// Numbers of connections that the workers track.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ConnectionCountsView {
    /// Connections.
    pub known: u64,
    /// Maximum number of connections.
    pub limit: u64,
    /// Addresses that have opened connections.
    pub sources: u64,
    /// Packets tracked.
    pub packets: u64,
    /// Packets that belong to no connection, or contradict its state.
    pub invalid: u64,
    /// Connections that ended because no packet came.
    pub expired: u64,
    /// Unconfirmed connections whose place a new one took in a full table.
    pub recycled: u64,
    /// New connections refused because the table was full.
    pub refused_full: u64,
    /// New connections refused because their source had its maximum.
    pub refused_source: u64,
}
