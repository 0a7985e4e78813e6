//! Where flows are treated.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Where flows are wanted, and where all of them are.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementsView {
    /// What was said of flows; the first that concerns a flow counts.
    pub placements: Vec<PlacementView>,
    /// All flows that are in the driver.
    pub driver: u64,
    /// All flows that are at a worker.
    pub worker: u64,
    /// How many of these, for which reason.
    pub why_worker: BTreeMap<String, u64>,
    /// How many instructions a program in the driver may spend on a packet.
    pub budget: DriverBudgetView,
}

/// Where some flows are wanted, and where they are.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlacementView {
    /// Which flows: a filter, or `instance NAME`.
    pub flow: String,
    /// Where they are wanted: `xdp`, `worker`, or `auto` where that is left to the router.
    pub level: &'static str,
    /// Those that are in the driver.
    pub driver: u64,
    /// Those that are at a worker.
    pub worker: u64,
    /// How many of these, for which reason.
    pub why_worker: BTreeMap<String, u64>,
}

/// The static budget of the driver's level, in instructions for each packet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DriverBudgetView {
    /// What a flow may take.
    pub instructions: u32,
    /// What forwarding is taken to cost, or dropping.
    pub forward: u32,
    /// What a token bucket is taken to add.
    pub police: u32,
    /// What asking the form of a plugin is taken to add, beside what the form itself takes.
    pub ask: u32,
    /// What the form of a plugin may take.
    pub form: u32,
    /// Instructions of the longest way through the program as it was compiled, without a token bucket and beside completing a checksum.
    pub longest_way: Option<u32>,
}
