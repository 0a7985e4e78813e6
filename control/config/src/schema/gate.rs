//! Gates, filters, and where flows are to be treated.

use std::fmt;
use std::str::FromStr;

use millrace_plugin_abi::Position;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::FilterAction;
use crate::values::{Named, Text, is_default};

/// A gate beside the default ones, or the table of one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gate {
    /// Its name.
    #[schemars(with = "String")]
    pub name: Named,
    /// Its position: early, route, late, queue or copy. Those of the default gates are given.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Text<Position>>,
    /// How its filters are searched. Default `auto`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub table: GateTable,
}

/// How the filters of a gate are searched. All find the same; they differ in time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateTable {
    /// As the router thinks best, which is by tuple space search.
    #[default]
    Auto,
    /// One after the other.
    Linear,
    /// By a hash table for each combination of prefix lengths.
    TupleSpace,
    /// By a tree that cuts addresses and ports into parts, as long as it stays small enough.
    CuttingTree,
    /// By a graph with a node for each decision, as long as it stays small enough; addresses by binary search on the
    /// lengths of their prefixes.
    Dag,
    /// The same with addresses in PATRICIA tries.
    DagPatricia,
    /// The same with addresses in tree bitmaps.
    DagTreeBitmap,
}

/// What is done with the packets that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Filter {
    /// Which packets; `*` is all.
    #[schemars(with = "String")]
    pub r#match: Text<millrace_classify::FilterExpression>,
    /// What is done with them.
    #[schemars(with = "String")]
    pub action: Text<FilterAction>,
    /// The gate's name. Default: `tap` for copies, `schedule` for queues, else `route`; for an instance it must be said.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Named>,
    /// Of several filters that match, the highest priority wins. Default 0.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
}

/// What can be placed: written as a filter, or as `instance NAME`.
#[derive(Clone, Debug, PartialEq)]
pub enum Placeable {
    /// Flows.
    Flows(millrace_classify::Selection),
    /// The packets of an instance that has a form for the driver.
    Instance(String),
}

impl Placeable {
    /// Number of comparisons that the filter takes for a flow; 0 for an instance.
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

/// At which level flows are treated; the first that concerns a flow counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// Which flows; `*` is all, and `instance NAME` those of an instance that has a form for the driver.
    #[schemars(with = "String")]
    pub flow: Text<Placeable>,
    /// Where.
    pub level: PlacementLevel,
}

/// A level that flows can be placed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementLevel {
    /// In the driver, as soon as they can be there, and also while they are idle.
    Xdp,
    /// At a worker.
    Worker,
}
