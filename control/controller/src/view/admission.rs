//! Views of admission: what the router may promise, and what it has promised.

use std::collections::BTreeMap;

use millrace_config::{Bits, CpuShare, MemoryLimit, Role, ServiceLevel};
use schemars::JsonSchema;
use serde::Serialize;

/// What the router may promise, and what it has promised.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AdmissionView {
    /// Part of the processor time that may be promised, such as `90 %`.
    pub cpu: String,
    /// Part of the rate of each port that may be promised, such as `90 %`.
    pub link: String,
    /// Largest sum of the principals' memory; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Components: the processors, the levels, each port with a rate, and memory.
    pub components: Vec<ComponentView>,
}

/// Component of the router.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComponentView {
    /// `processors`, `workers`, `worker NUMBER`, `host`, `offload`, `process rings`, `XDP redirect`, `socket rings`,
    /// `worker rings`, `link PORT` or `memory`. The levels beside the workers are there once a service is, the single
    /// workers once a service is pinned to them, and the other switches if they were measured.
    pub component: String,
    /// Unit of the amounts: `%` of one processor, `bit/s` on the wire, `bytes`, `transfers/s` or
    /// `eBPF variants`.
    pub unit: &'static str,
    /// Amount that may be promised; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<f64>,
    /// Sum of the promised amounts.
    pub promised: f64,
    /// Amount that can still be promised; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<f64>,
    /// Promised amounts.
    pub claims: Vec<ClaimView>,
}

impl ComponentView {
    /// Returns the component with the amount that is left.
    pub(crate) fn complete(self) -> Self {
        // The sum of no amounts is -0.
        let promised = self.promised + 0.0;
        let left = self.whole.map(|whole| (whole - promised).max(0.0));
        Self { promised, left, ..self }
    }
}

/// Promised amount of a component.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClaimView {
    /// Name of the principal, `instance NAME` for a service, or `nodes of the scheduler` for guarantees that a port's
    /// own nodes have.
    pub by: String,
    /// Amount in the unit of the component.
    pub amount: f64,
}

/// Level at which a service would go, and what would be promised then.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ServicePlaceView {
    /// Level: `offload`, `worker` or `host`.
    pub level: &'static str,
    /// Instances that would move to make room, with their new levels.
    pub moves: BTreeMap<String, &'static str>,
    /// Components with the service.
    pub components: Vec<ComponentView>,
}

/// What users may request and hold at most, and what they hold.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AllowanceView {
    /// Name of the allowance.
    pub name: String,
    /// Users, named as in the audit log.
    pub user: Vec<String>,
    /// Roles whose users the allowance concerns.
    pub role: Vec<Role>,
    /// Levels at which instances and flows may run; empty for all.
    pub level: Vec<ServiceLevel>,
    /// Processors on which they may run; empty for all.
    pub processor: Vec<String>,
    /// Largest sum of the users' `cpu`, for each user; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// Largest sums of reserved rates, by port; empty if unlimited.
    pub link: BTreeMap<String, Bits>,
    /// Largest sum of the users' `memory`, for each user; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLimit>,
    /// Largest number of principals, for each user; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principals: Option<u32>,
    /// What each named user holds, and the user who asks if the allowance concerns that user by a role.
    pub held: Vec<HoldingView>,
}

/// What the principals of a user hold.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HoldingView {
    /// User.
    pub user: String,
    /// Reserved processor time, in percent of one processor.
    pub cpu: f64,
    /// Reserved rates in bits per second, by port.
    pub link: BTreeMap<String, u64>,
    /// Memory in bytes.
    pub memory: u64,
    /// Number of principals.
    pub principals: u64,
}

/// What a request would change, and what would be promised and left afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TrialView {
    /// Changes, as commands.
    pub changes: Vec<String>,
    /// Components after these changes.
    pub components: Vec<ComponentView>,
    /// Levels of the services that the request places or moves, by instance: `offload`, `worker` or `host`.
    pub levels: BTreeMap<String, &'static str>,
    /// Allowance after these changes, with what its users hold; absent if the request changes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance: Option<AllowanceView>,
}
