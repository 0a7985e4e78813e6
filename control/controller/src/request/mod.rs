//! Types of request bodies, in their JSON form.

pub(crate) mod merge_patch;
pub(crate) mod page;
pub(crate) mod reading;

use std::net::IpAddr;

use millrace_config::{Budget, ObjectRuntime, OnFault, RouteKind};
use schemars::JsonSchema;
use serde::Deserialize;

/// Request body that pins flows to an offload level.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlacement {
    /// Flows to place: a filter, or the name of an instance.
    pub flow: String,
    /// Level of the flows.
    pub level: WantedLevel,
}

/// Requested level for flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WantedLevel {
    /// Offload level. `xdp` and `driver` are read as well.
    #[serde(alias = "xdp", alias = "driver")]
    Offload,
    /// Worker level: no flow is offloaded.
    Worker,
    /// No pinning: the router chooses the level.
    Auto,
}

/// Request body that binds an instance to flows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// Name of the instance.
    pub instance: String,
    /// Name of the gate.
    pub gate: String,
    /// Filter that selects the flows of the binding.
    pub filter: String,
    /// Priority of the binding; of several filters that match, the highest priority wins.
    #[serde(default)]
    pub priority: i32,
    /// Treatment of a packet when the instance's call fails.
    #[serde(default)]
    pub on_fault: OnFault,
    /// Principal that pays for the instance's calls. Default: the principal that a filter gives to the packets;
    /// otherwise `default`, or none for a built-in plugin, which the workers call at once.
    pub principal: Option<String>,
    /// Time limit of a call as a whole, however many packets it has: `"1ms"`.
    pub budget: Option<Budget>,
    /// Time limit of a call per packet: a call with N packets may take N times as long, but at most `budget`.
    /// Example: `"20us"`.
    pub packet_budget: Option<Budget>,
    /// Whether packets wait in a queue of their own before the instance, also when they come from an earlier
    /// instance of the same principal.
    #[serde(default)]
    pub queue: bool,
    /// Weight of this queue among the queues of a flow, 1 to 100. Default 1.
    pub queue_weight: Option<u32>,
}

/// Request body that upgrades a plugin to another version.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// File of the new version.
    #[serde(rename = "file")]
    pub path: String,
    /// Number of packets in a trial before the upgrade: the new version runs as shadow on copies of these
    /// packets. Without a number, there is no trial.
    #[serde(default)]
    pub shadow: Option<u64>,
    /// Whether the upgrade happens even if the trial finds differences.
    #[serde(default)]
    pub accept_differences: bool,
    /// Whether the new instances start without the old instances' state.
    #[serde(default)]
    pub without_state: bool,
    /// Whether to accept a signed version below the highest one loaded before.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// Request body that loads a plugin file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlugin {
    /// File of the plugin, on the router's machine.
    #[serde(rename = "file")]
    pub path: String,
    /// Whether to accept a signed version below the highest one loaded before.
    #[serde(default)]
    pub allow_downgrade: bool,
    /// Runtime of a shared object.
    #[serde(default)]
    pub runtime: ObjectRuntime,
}

impl NewPlugin {
    /// Returns the request that loads a configured plugin.
    pub(crate) fn configured(plugin: &millrace_config::Plugin) -> Self {
        let millrace_config::Plugin { file, allow_downgrade, runtime } = plugin;
        Self { path: file.display().to_string(), allow_downgrade: *allow_downgrade, runtime: *runtime }
    }
}

/// Request body that adds a filter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFilter {
    /// Filter expression; `*` matches all packets.
    #[serde(rename = "match")]
    pub filter: String,
    /// Action on the packets, as in the configuration.
    pub action: String,
    /// Name of the gate. Default: `tap` for copies, `schedule` for queues and `principal`, `firewall` for
    /// `police`, and `route` for other actions. The action `instance` has no default gate.
    #[serde(default)]
    pub gate: Option<String>,
    /// Priority of the filter; of several filters that match, the highest priority wins.
    #[serde(default)]
    pub priority: i32,
}

/// Request body that removes a filter. The filter is identified by its fields instead of its id.
#[derive(Clone, Debug)]
pub struct OldFilter {
    /// Filter expression.
    pub filter: String,
    /// Action on the packets, as in the configuration.
    pub action: String,
    /// Name of the gate, with the same defaults as for a [`NewFilter`].
    pub gate: Option<String>,
    /// Priority of the filter; needed only if several filters have this expression, action and gate.
    pub priority: Option<i32>,
}

/// Request body that adds a route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoute {
    /// Destination prefix.
    pub to: String,
    /// Next hops; empty for a directly connected prefix.
    #[serde(default)]
    pub via: Vec<IpAddr>,
    /// Egress port; by default the port whose subnet contains the next hop.
    #[serde(default)]
    pub port: Option<String>,
    /// Kind of the route.
    #[serde(default)]
    pub kind: RouteKind,
}

/// Request body that adds a static neighbour.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNeighbour {
    /// Port of the neighbour; it must be a port without a kernel device.
    pub port: String,
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// MAC address of the neighbour.
    pub mac: String,
}

/// Request body that removes a static neighbour.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OldNeighbour {
    /// Port of the neighbour.
    pub port: String,
    /// IP address of the neighbour.
    pub address: IpAddr,
}

/// Selection of routes to list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteQuery {
    /// Prefix within which routes are listed; all routes by default.
    pub within: Option<String>,
    /// Maximum number of routes in the page, 1 to 10,000. Routes are ordered by prefix.
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// Cursor that the previous page returned; this page starts after it.
    pub cursor: Option<String>,
}

/// Treatment of packets and filters when a scheduler node is removed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeRemoval {
    /// Leaf that gets the waiting packets, and becomes the queue of the filters that lose their queue.
    /// Without a leaf, the waiting packets are dropped.
    pub to: Option<String>,
    /// Whether filters whose queue is removed are removed as well.
    pub with_filters: bool,
}

/// Selection of flows to list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlowQuery {
    /// Filter of the flows; a flow is listed if any of its packets could match. All flows by default.
    pub filter: Option<String>,
    /// Order of the listed flows.
    pub order: FlowOrder,
    /// Maximum number of listed flows, 1 to 10,000; 100 by default.
    pub limit: Option<usize>,
    /// Principal: lists the flows that have a queue for its processor time, and no account of other principals.
    pub principal: Option<String>,
}

/// Order of a list of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOrder {
    /// By packets per second, measured over half a second, the highest first.
    Rate,
    /// By bytes, the highest first.
    #[default]
    Bytes,
    /// By packets, the highest first.
    Packets,
    /// By time of the last packet, the latest first.
    Recent,
    /// By processor time since the flow's packets began to wait for the processor, the most first.
    Cycles,
}
