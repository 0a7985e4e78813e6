//! Request types, as they stand in JSON.

pub(crate) mod merge_patch;
pub(crate) mod page;
pub(crate) mod reading;

use std::net::IpAddr;

use millrace_config::{Budget, OnFault, RouteKind};
use schemars::JsonSchema;
use serde::Deserialize;

/// Placement of flows at a level.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlacement {
    /// Flows to place: a filter, or the name of an instance.
    pub flow: String,
    /// Level of the flows.
    pub level: WantedLevel,
}

/// Requested level of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WantedLevel {
    /// Offload level.
    Xdp,
    /// Worker level.
    Worker,
    /// Level chosen by the router.
    Auto,
}

/// Binding to create.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// Name of the instance.
    pub instance: String,
    /// Name of the gate.
    pub gate: String,
    /// Filter of the packets.
    pub filter: String,
    /// Priority of the binding; of several filters that match, the highest priority wins.
    #[serde(default)]
    pub priority: i32,
    /// Treatment of packets at which the instance fails.
    #[serde(default)]
    pub on_fault: OnFault,
    /// Time limit of a whole call: `"1ms"`.
    pub budget: Option<Budget>,
    /// Time limit of a call for each of its packets: `"20us"`.
    pub packet_budget: Option<Budget>,
}

/// Upgrade of a plugin to another version.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// File of the new version.
    #[serde(rename = "file")]
    pub path: String,
    /// Number of packets on which the new version first runs as a shadow.
    #[serde(default)]
    pub shadow: Option<u64>,
    /// Whether the new version is put in place although it treats packets differently.
    #[serde(default)]
    pub accept_differences: bool,
    /// Whether the new instances start without the state of the old instances.
    #[serde(default)]
    pub without_state: bool,
    /// Whether a signed version lower than one loaded before is accepted.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// Plugin to load.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlugin {
    /// File of the plugin, on the router's machine.
    #[serde(rename = "file")]
    pub path: String,
    /// Whether a signed version lower than one loaded before is accepted.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// Filter to add.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFilter {
    /// Expression of the packets; `*` matches all packets.
    #[serde(rename = "match")]
    pub filter: String,
    /// Action on the packets, as in the configuration.
    pub action: String,
    /// Name of the gate; by default `route`, `tap` for copies, or `schedule` for queues.
    #[serde(default)]
    pub gate: Option<String>,
    /// Priority of the filter; of several filters that match, the highest priority wins.
    #[serde(default)]
    pub priority: i32,
}

/// Filter to remove, identified by its content.
#[derive(Clone, Debug)]
pub struct OldFilter {
    /// Expression of the packets.
    pub filter: String,
    /// Action on the packets, as in the configuration.
    pub action: String,
    /// Name of the gate, as for a [`NewFilter`].
    pub gate: Option<String>,
    /// Priority of the filter; `None` if the other fields match only one filter.
    pub priority: Option<i32>,
}

/// Route to add.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoute {
    /// Destination prefix.
    pub to: String,
    /// Next hops.
    #[serde(default)]
    pub via: Vec<IpAddr>,
    /// Port by which the packets leave.
    #[serde(default)]
    pub port: Option<String>,
    /// Kind of the route.
    #[serde(default)]
    pub kind: RouteKind,
}

/// Static neighbour to add.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNeighbour {
    /// Port of the neighbour, which has no kernel device.
    pub port: String,
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// MAC address of the neighbour.
    pub mac: String,
}

/// Static neighbour to remove.
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
    /// Prefix that contains the listed routes; all routes by default.
    pub within: Option<String>,
    /// Most routes of the page, 1 to 10,000. The routes of pages are in a fixed order.
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// Cursor that the page before returned; it is the start of this page.
    pub cursor: Option<String>,
}

/// Treatment of packets and filters of a removed scheduler node.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeRemoval {
    /// Leaf that takes the queued packets, and the filters whose queue is removed; without it the packets are
    /// dropped.
    pub to: Option<String>,
    /// Whether filters whose queue is removed are removed as well.
    pub with_filters: bool,
}

/// Selection of flows to list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlowQuery {
    /// Filter that some packet of a listed flow may match; all flows by default.
    pub filter: Option<String>,
    /// Order of the listed flows.
    pub order: FlowOrder,
    /// Most flows in the list, 1 to 10,000; 100 by default.
    pub limit: Option<usize>,
}

/// Order of a list of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOrder {
    /// Descending packets per second, measured over half a second.
    Rate,
    /// Descending bytes.
    #[default]
    Bytes,
    /// Descending packets.
    Packets,
    /// Latest packet first.
    Recent,
}
