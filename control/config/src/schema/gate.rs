//! Gates, filters and placements of flows.

use std::fmt;
use std::str::FromStr;

use millrace_plugin_abi::Position;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::principal::Principal;
use crate::values::action::FilterAction;
use crate::values::{Named, Text, is_default, written};

/// Additional gate, or the filter table kind of a default gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gate {
    /// Name of the gate.
    pub name: Named,
    /// Position of an additional gate: early, route, late, queue or copy. Absent for a default gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Text<Position>>,
    /// Kind of the gate's filter table. Default `auto`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub table: GateTable,
}

/// Kind of a filter table, which is its search algorithm. All kinds find the same filter, but need different
/// time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateTable {
    /// The router chooses; at present, tuple space search.
    #[default]
    Auto,
    /// Linear search.
    Linear,
    /// Tuple space search: a hash table for each combination of prefix lengths.
    TupleSpace,
    /// Decision tree that cuts the ranges of addresses and ports. If the tree becomes too large, the gate
    /// uses another kind.
    CuttingTree,
    /// Decision graph that finds addresses by binary search on prefix lengths. If the graph becomes too
    /// large, the gate uses another kind.
    Dag,
    /// Decision graph with PATRICIA tries for addresses.
    DagPatricia,
    /// Decision graph with tree bitmaps for addresses.
    DagTreeBitmap,
}

/// Filter: condition on packets, and action on matching packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Filter {
    /// Filter expression that packets must match; `*` matches all packets.
    pub r#match: Text<millrace_classify::FilterExpression>,
    /// Action on matching packets.
    pub action: Text<FilterAction>,
    /// Name of the gate. Default: `tap` for copies, `schedule` for queues and `principal`, `firewall` for
    /// `police`, and `route` for other actions. The action `instance` has no default gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Named>,
    /// Priority; of several filters that match, the highest priority wins. Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
}

impl Filter {
    /// Returns the principal that the action names: one that it gives to the packets, or one whose queue it
    /// selects.
    #[must_use]
    pub fn named_principal(&self) -> Option<&str> {
        match self.action.value() {
            FilterAction::Queue(queue) => queue.strip_prefix(Principal::QUEUE_PREFIX),
            action => action.principal(),
        }
    }
}

/// Target of a placement: a filter, or `instance NAME`.
#[derive(Clone, Debug, PartialEq)]
pub enum Placeable {
    /// Flows that match a filter.
    Flows(millrace_classify::Selection),
    /// Packets of an instance with an eBPF variant.
    Instance(String),
}

impl Placeable {
    /// Returns the number of comparisons that matching a flow takes; 0 for an instance.
    pub fn comparisons(&self) -> usize {
        match self {
            Self::Flows(filter) => filter.comparisons(),
            Self::Instance(_) => 0,
        }
    }
}

impl fmt::Display for Placeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flows(filter) => filter.fmt(f),
            Self::Instance(name) => write!(f, "instance {name}"),
        }
    }
}

impl FromStr for Placeable {
    type Err = millrace_classify::FilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().strip_prefix("instance ") {
            Some(name) => Ok(Self::Instance(name.trim().to_owned())),
            None => text.parse().map(Self::Flows),
        }
    }
}

written!(Placeable);

/// Placement of flows at a level. The first placement that matches a flow decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// Flows to place: a filter, `*` for all flows, or `instance NAME` for the flows of an instance with an
    /// eBPF variant.
    pub flow: Text<Placeable>,
    /// Level of the flows.
    pub level: PlacementLevel,
}

/// Level at which flows can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementLevel {
    /// Offloads the flows as soon as possible, and keeps idle flows offloaded. `xdp` and `driver` are read as
    /// well.
    #[serde(alias = "xdp", alias = "driver")]
    Offload,
    /// Keeps the flows at the workers.
    Worker,
}
