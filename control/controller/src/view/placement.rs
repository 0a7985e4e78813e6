//! Views of the placement of flows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Placements, and the number of flows at each level.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementsView {
    /// Placements of flows; the first placement that matches a flow counts.
    pub placements: Vec<PlacementView>,
    /// Number of offloaded flows.
    pub offload: u64,
    /// Number of flows at a worker.
    pub worker: u64,
    /// Number of flows at a worker, by reason.
    pub why_worker: BTreeMap<String, u64>,
    /// Instruction budget of an XDP program for a packet.
    pub budget: OffloadBudgetView,
}

/// Placement of flows, with the number of these flows at each level.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementView {
    /// Flows of the placement: a filter, or `instance NAME`.
    pub flow: String,
    /// Configured level: `offload`, `worker`, or `auto` where the router chooses.
    pub level: &'static str,
    /// Number of these flows that are offloaded.
    pub offload: u64,
    /// Number of these flows at a worker.
    pub worker: u64,
    /// Number of these flows at a worker, by reason.
    pub why_worker: BTreeMap<String, u64>,
}

/// Instruction budget of the XDP program for a packet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OffloadBudgetView {
    /// Maximum number of instructions for a packet of a flow.
    pub instructions: u32,
    /// Assumed instructions for forwarding or dropping.
    pub forward: u32,
    /// Assumed additional instructions for a token bucket.
    pub police: u32,
    /// Assumed additional instructions for calling the eBPF variant of a plugin, not counting the variant
    /// itself.
    pub ask: u32,
    /// Maximum number of instructions of a plugin's eBPF variant.
    pub form: u32,
    /// Instructions on the longest path through the compiled program, without token bucket and checksum
    /// completion.
    pub longest_way: Option<u32>,
}
