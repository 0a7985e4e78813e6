//! Schema of the configuration. Each kind of object is a TOML table; keys are field names with hyphens.

mod admission;
mod allowance;
pub(crate) mod api;
mod connections;
mod control_plane;
mod gate;
mod place;
mod plugins;
mod port;
pub(crate) mod principal;
mod route;
mod router;
pub(crate) mod scheduler;
mod service;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::values::is_default;
use api::Api;

pub use admission::Admission;
pub use allowance::Allowance;
pub use connections::Connections;
pub use control_plane::ControlPlane;
pub use gate::{Filter, Gate, GateTable, Placeable, Placement, PlacementLevel};
pub use plugins::{
    Bind, Budget, Instance, ObjectRuntime, OnFault, Plugin, Plugins, SharedObjects, Unsigned, Watchdog,
};
pub use port::{Device, Impair, Port, PortKind, ReversePath};
pub use principal::Principal;
pub use route::{Neighbour, Route, RouteKind};
pub use router::{Boot, CoreOrder, CpuScheduler, Forwarding, OnDeath, PollMode, Router, Shed};
pub use service::{Service, ServiceLevel};

/// Configuration of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Settings of the whole router.
    pub router: Router,
    /// Control-plane policing.
    #[serde(skip_serializing_if = "is_default")]
    pub control_plane: ControlPlane,
    /// Connections that the router tracks for plugins.
    #[serde(skip_serializing_if = "is_default")]
    pub connections: Connections,
    /// How much of the resources may be promised.
    #[serde(skip_serializing_if = "is_default")]
    pub admission: Admission,
    /// Settings of the HTTP API.
    #[serde(skip_serializing_if = "is_default")]
    pub api: Api,
    /// Ports.
    pub port: Vec<Port>,
    /// Static routes, in addition to the routes mirrored from the kernel.
    pub route: Vec<Route>,
    /// Static neighbours.
    pub neighbour: Vec<Neighbour>,
    /// Gates in addition to the default gates, and table kinds of default gates.
    pub gate: Vec<Gate>,
    /// Settings that apply to all plugin files.
    pub plugins: Plugins,
    /// Plugin files to load at the start.
    pub plugin: Vec<Plugin>,
    /// Plugin instances.
    pub instance: Vec<Instance>,
    /// Bindings of instances to flows, at gates.
    pub bind: Vec<Bind>,
    /// Filters, each with its action.
    pub filter: Vec<Filter>,
    /// Placements of flows at levels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub place: Vec<Placement>,
    /// Principals: owners of resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub principal: Vec<Principal>,
    /// File from which the configuration was read.
    #[serde(skip)]
    pub origin: Origin,
}
