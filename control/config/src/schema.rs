//! What a configuration holds. One TOML table per noun; keys are the names of the fields, with hyphens.

mod control_plane;
mod gate;
mod place;
mod plugins;
mod port;
mod route;
mod router;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::origin::Origin;
use crate::values::is_default;

pub use control_plane::ControlPlane;
pub use gate::{Filter, Gate, GateTable, Placeable, Placement, PlacementLevel};
pub use plugins::{Bind, Budget, Instance, OnFault, Plugin, Plugins, SharedObjects, Unsigned, Watchdog};
pub use port::{Device, Impair, Port, PortKind, ReversePath};
pub use route::{Neighbour, Route, RouteKind};
pub use router::{Boot, Forwarding, OnDeath, PollMode, Router};

/// A router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// What holds for the whole router.
    pub router: Router,
    /// How much of what is for the router itself gets there.
    #[serde(skip_serializing_if = "is_default")]
    pub control_plane: ControlPlane,
    /// The HTTP interface.
    #[serde(skip_serializing_if = "is_default")]
    pub api: Api,
    /// Its ports.
    pub port: Vec<Port>,
    /// Routes beside those mirrored from the kernel.
    pub route: Vec<Route>,
    /// Neighbours that are known for good.
    pub neighbour: Vec<Neighbour>,
    /// Gates beside the default ones.
    pub gate: Vec<Gate>,
    /// What holds for all plugins that are files.
    pub plugins: Plugins,
    /// Plugins that are files, loaded at the start.
    pub plugin: Vec<Plugin>,
    /// Plugin instances.
    pub instance: Vec<Instance>,
    /// Which flows which instance gets, at which gate.
    pub bind: Vec<Bind>,
    /// What is done with which packets.
    pub filter: Vec<Filter>,
    /// At which level which flows are treated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub place: Vec<Placement>,
    /// The file that it was read from.
    #[serde(skip)]
    pub origin: Origin,
}
