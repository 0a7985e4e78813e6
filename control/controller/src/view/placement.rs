//! Views of the placement of flows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Placements, and the number of flows at each level.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementsView {
    /// Placements of flows; the first placement that matches a flow decides.
    pub placements: Vec<PlacementView>,
    /// Number of offloaded flows.
    pub offload: u64,
    /// Number of flows at a worker.
    pub worker: u64,
    /// Numbers of flows at a worker, by the reason why they stay there.
    pub why_worker: BTreeMap<String, u64>,
    /// Instruction budget of the XDP program for a packet.
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
    /// Numbers of these flows at a worker, by the reason why they stay there.
    pub why_worker: BTreeMap<String, u64>,
}

/// Instruction budget of the XDP program for a packet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OffloadBudgetView {
    /// Maximum number of instructions for a packet of a flow.
    pub instructions: u32,
    /// Instructions that the router assumes for forwarding or dropping a packet.
    pub forward: u32,
    /// Additional instructions that the router assumes for a token bucket.
    pub token_bucket: u32,
    /// Additional instructions that the router assumes for calling a plugin's eBPF variant. The variant's own
    /// instructions count in addition.
    pub ebpf_variant_call: u32,
    /// Maximum number of instructions of a plugin's eBPF variant.
    pub ebpf_variant: u32,
    /// Number of instructions on the longest path through the compiled program. Token buckets and the
    /// completion of checksums are not counted.
    pub longest_path: Option<u32>,
}
