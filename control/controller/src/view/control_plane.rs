//! Views of control-plane policing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// State of control-plane policing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ControlPlaneView {
    /// Whether control-plane policing is on.
    pub police: bool,
    /// Classes, each with its rate.
    pub classes: Vec<ControlClassView>,
}

/// Class of packets to the router itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ControlClassView {
    /// Name of the class, as in the settings.
    pub class: &'static str,
    /// Description of the packets in the class.
    pub meaning: &'static str,
    /// Rate limit for each port, in packets per second.
    pub rate: u32,
    /// Burst for each port, in packets.
    pub burst: u32,
    /// Number of packets passed.
    pub passed: u64,
    /// Number of packets dropped because they exceeded the rate.
    pub dropped: u64,
    /// Packets dropped per second since the last request.
    pub dropped_rate: f64,
    /// Counts by port; ports without packets of the class are absent.
    pub ports: BTreeMap<String, PortClassView>,
}

/// Counts of a class at a port.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct PortClassView {
    /// Packets passed.
    pub passed: u64,
    /// Packets dropped because they exceeded the rate.
    pub dropped: u64,
}
