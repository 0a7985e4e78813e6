//! The configuration file: schema, checks and errors.
//!
//! A configuration is TOML. [`Config::parse`] reads and checks it whole, so that what it returns holds together:
//! names are unique, every name that is used is defined, addresses and filters are valid. Errors say where in the
//! file, what is wrong and what would be right.
#![forbid(unsafe_code)]

mod action;
mod api;
mod change;
mod check;
mod difference;
mod error;
mod flow;
mod nearest;
mod nodes;
mod normal;
mod origin;
mod overhead;
mod save;
mod scheduler;
mod schema;
mod values;
mod wording;
mod words;

pub use action::{FilterAction, Policing, WayOut};
pub use api::{Api, Role};
pub use change::{Change, Heir, Together};
pub use check::MOST_PLACEMENTS;
pub use difference::Difference;
pub use error::{ConfigError, Place};
pub use flow::one_flow;
pub use nearest::nearest;
pub use nodes::{Fate, Fates, Nodes};
pub use origin::{Origin, Step};
pub use overhead::Overhead;
pub use scheduler::{
    Bits, CurveText, FlowQueue, HostOutput, LengthUnit, Manage, Scheduler, SchedulerKind, SchedulerNode,
};
pub use schema::{
    Bind, Boot, Budget, Config, Device, Filter, Gate, GateTable, Impair, InputWeight, Instance, Neighbour,
    OnDeath, OnFault, Placeable, Placement, PlacementLevel, Plugin, Plugins, PollMode, Port, PortKind,
    ReversePath, Route, RouteKind, Router, SharedObjects, Unsigned, Watchdog,
};
pub use values::{Named, Text, VlanIds};
pub use wording::explain;

impl Config {
    /// Reads a configuration. `origin` is the name of the file, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of the file.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let mut config: Self =
            toml::from_str(text).map_err(|error| ConfigError::from_toml(&error, text, origin))?;
        check::check(&config, text, origin)?;
        config.origin = Origin::new(origin, text);
        Ok(config)
    }

    /// The JSON Schema of the configuration.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).into()
    }
}
