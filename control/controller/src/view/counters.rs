//! Counters read at one time, from which a client computes rates.

use schemars::JsonSchema;
use serde::Serialize;

/// Counters of all ports.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CountersView {
    /// Time of the reading: date and time, UTC.
    pub time: String,
    /// Seconds since the router started.
    pub seconds: f64,
    /// Counters of each port.
    pub ports: Vec<PortCountersView>,
}

/// Counters of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortCountersView {
    /// Name of the port.
    pub name: String,
    /// Frames received, including frames that the kernel kept.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames sent by the router.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that arrived at the port and were dropped, or that the port's device lost.
    pub dropped: u64,
}
