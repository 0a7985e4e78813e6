//! What can be asked for, as it stands in JSON.

use std::net::IpAddr;

use millrace_config::{Budget, OnFault, RouteKind};
use schemars::JsonSchema;
use serde::Deserialize;

/// Where flows are to be treated.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlacement {
    /// Which flows: a filter, or the name of an instance.
    pub flow: String,
    /// Where.
    pub level: WantedLevel,
}

/// A level, or none in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WantedLevel {
    /// In the driver.
    Xdp,
    /// At a worker.
    Worker,
    /// Where the router finds best.
    Auto,
}

/// An instance to be bound.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// The instance.
    pub instance: String,
    /// The gate.
    pub gate: String,
    /// Which packets.
    pub filter: String,
    /// Of several filters that match, the highest priority wins.
    #[serde(default)]
    pub priority: i32,
    /// What becomes of packets that the instance fails at.
    #[serde(default)]
    pub on_fault: OnFault,
    /// Time that a call may take in all: `"1ms"`.
    pub budget: Option<Budget>,
    /// Time that a call may take for each of its packets: `"20us"`.
    pub packet_budget: Option<Budget>,
}

/// A plugin to be replaced by another version of itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// The file of the new version.
    #[serde(rename = "file")]
    pub path: String,
    /// How many packets it is to be tried out on before.
    #[serde(default)]
    pub shadow: Option<u64>,
    /// Whether it takes the place although it treats packets differently.
    #[serde(default)]
    pub accept_differences: bool,
    /// Whether its instances begin without what the old ones know.
    #[serde(default)]
    pub without_state: bool,
    /// Whether it takes the place also when it is signed and older than one that was loaded before.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// A plugin to be loaded.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlugin {
    /// Its file, on the router's machine.
    #[serde(rename = "file")]
    pub path: String,
    /// Load it also when it is signed and older than one that was loaded before.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// A filter to be added.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFilter {
    /// Which packets; `*` is all.
    #[serde(rename = "match")]
    pub filter: String,
    /// What is done with them, as in the configuration.
    pub action: String,
    /// The gate; `route`, `tap` for copies, or `schedule` for queues, if none is named.
    #[serde(default)]
    pub gate: Option<String>,
    /// Of several filters that match, the highest priority wins.
    #[serde(default)]
    pub priority: i32,
}

/// A filter to be removed, told by what it is.
#[derive(Clone, Debug)]
pub struct OldFilter {
    /// Which packets.
    pub filter: String,
    /// What is done with them, as in the configuration.
    pub action: String,
    /// The gate, as for a [`NewFilter`].
    pub gate: Option<String>,
    /// The priority; any, where no other filter has the rest of this.
    pub priority: Option<i32>,
}

/// A route to be added.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoute {
    /// Destination prefix.
    pub to: String,
    /// Next hops.
    #[serde(default)]
    pub via: Vec<IpAddr>,
    /// Port to leave by.
    #[serde(default)]
    pub port: Option<String>,
    /// What the route does.
    #[serde(default)]
    pub kind: RouteKind,
}

/// A neighbour that is to be known for good.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNeighbour {
    /// The port it is behind, which has no kernel device.
    pub port: String,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: String,
}

/// A neighbour that was known for good.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OldNeighbour {
    /// The port it is behind.
    pub port: String,
    /// Its address.
    pub address: IpAddr,
}

/// Which routes are to be shown.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteQuery {
    /// Those to this prefix, and to prefixes within; all, if there is none.
    pub within: Option<String>,
    /// How many routes at most, 1 to 10,000. They are in an order that doesn't change then.
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// What the page before said where this one begins.
    pub cursor: Option<String>,
}

/// What becomes of packets and filters of a scheduler's node that is removed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeRemoval {
    /// The leaf that gets what waits there, and is named by filters whose queue is gone; without it packets are dropped.
    pub to: Option<String>,
    /// Whether filters whose queue is gone are removed as well.
    pub with_filters: bool,
}

/// Which flows are to be shown.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlowQuery {
    /// Those of which some packet may match; all, if there is none.
    pub filter: Option<String>,
    /// Which come first.
    pub order: FlowOrder,
    /// How many, 1 to 10,000; 100, if nothing is said.
    pub limit: Option<usize>,
}

/// Which flows come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOrder {
    /// Those with the most packets per second, over half a second.
    Rate,
    /// Those with the most bytes.
    #[default]
    Bytes,
    /// Those with the most packets.
    Packets,
    /// Those whose last packet is the latest.
    Recent,
}
