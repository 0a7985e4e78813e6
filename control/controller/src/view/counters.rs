//! Counters at one moment, for who makes rates of them.

use schemars::JsonSchema;
use serde::Serialize;

/// What was counted at ports.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CountersView {
    /// When: date and time, UTC.
    pub time: String,
    /// Seconds since the router started.
    pub seconds: f64,
    /// The ports.
    pub ports: Vec<PortCountersView>,
}

/// What was counted at a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortCountersView {
    /// Its name.
    pub name: String,
    /// Frames received, those that the kernel kept included.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames sent by the router.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames dropped that came in by it.
    pub dropped: u64,
}
