//! Control-plane policing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// How much of what is for the router itself gets there.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ControlPlaneView {
    /// Whether it is policed at all.
    pub police: bool,
    /// The classes, each with its rate.
    pub classes: Vec<ControlClassView>,
}

/// A class of packets for the router itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ControlClassView {
    /// Its name, which is the setting's.
    pub class: &'static str,
    /// What belongs to it.
    pub meaning: &'static str,
    /// Packets per second that each port lets through.
    pub rate: u32,
    /// Packets that may come at once.
    pub burst: u32,
    /// Packets that got through.
    pub passed: u64,
    /// Packets that were dropped because more came.
    pub dropped: u64,
    /// Those per second since the last look.
    pub dropped_rate: f64,
    /// The same counts by port, of those that had any.
    pub ports: BTreeMap<String, PortClassView>,
}

/// What became of a class at a port.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct PortClassView {
    /// Packets that got through.
    pub passed: u64,
    /// Packets that were dropped because more came.
    pub dropped: u64,
}
