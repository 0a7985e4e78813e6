//! Views of the placement of flows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Placements, and the level of all flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementsView {
    /// Placements of flows; the first placement that matches a flow counts.
    pub placements: Vec<PlacementView>,
    /// Number of offloaded flows.
    pub driver: u64,
    /// Number of flows at a worker.
    pub worker: u64,
    /// Number of flows at a worker, by reason.
    pub why_worker: BTreeMap<String, u64>,
    /// Instruction budget of an XDP program for a packet.
    pub budget: DriverBudgetView,
}

/// Placement of flows, and the level of these flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementView {
    /// Flows of the placement: a filter, or `instance NAME`.
    pub flow: String,
    /// Configured level: `xdp`, `worker`, or `auto` where the router chooses.
    pub level: &'static str,
    /// Number of these flows that are offloaded.
    pub driver: u64,
    /// Number of these flows at a worker.
    pub worker: u64,
    /// Number of these flows at a worker, by reason.
    pub why_worker: BTreeMap<String, u64>,
}

/// Static budget of the offload level, in instructions for each packet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DriverBudgetView {
    /// Budget of a flow.
    pub instructions: u32,
    /// Assumed cost of forwarding or dropping.
    pub forward: u32,
    /// Assumed additional cost of a token bucket.
    pub police: u32,
    /// Assumed additional cost of calling the eBPF variant of a plugin, without the variant's own
    /// instructions.
    pub ask: u32,
    /// Budget of the eBPF variant of a plugin.
    pub form: u32,
    /// Instructions on the longest path through the compiled program, without a token bucket and without
    /// completing a checksum.
    pub longest_way: Option<u32>,
}
