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
mod nodes;
mod normal;
mod origin;
mod overhead;
mod quantity;
mod read;
mod save;
mod scheduler;
mod schema;
mod spelling;
mod values;
mod wording;
mod words;

use error::Found;
use origin::LeftOut;
use read::Rest;

pub use action::{FilterAction, Policing, WayOut};
pub use api::{Api, Role};
pub use change::{Change, Heir, Together};
pub use check::{MOST_PLACED_COMPARISONS, MOST_PLACEMENTS};
pub use difference::Difference;
pub use error::{ConfigError, ConfigErrors, Place};
pub use flow::one_flow;
pub use nodes::{Fate, Fates, Nodes, default_leaf};
pub use origin::{Origin, Step};
pub use overhead::Overhead;
pub use quantity::{Bits, CurveText, Length, QueueSize, Size, Time};
pub use scheduler::{
    DelayTime, FlowQueue, HostOutput, LengthUnit, Manage, Scheduler, SchedulerKind, SchedulerNode,
};
pub use schema::{
    Bind, Boot, Budget, Config, ControlPlane, Device, Filter, Forwarding, Gate, GateTable, Impair, Instance,
    Neighbour, OnDeath, OnFault, Placeable, Placement, PlacementLevel, Plugin, Plugins, PollMode, Port,
    PortKind, ReversePath, Route, RouteKind, Router, SharedObjects, Unsigned, Watchdog,
};
pub use spelling::{in_file, in_json};
pub use values::{InputWeight, Named, Text, VlanIds};
pub use wording::explain;

impl Config {
    /// Reads a configuration. `origin` is the name of the file, for messages.
    ///
    /// # Errors
    /// All that is wrong, in the order of the file. What is wrong in itself hides nothing of what stands behind it; what is only
    /// wrong together with others is told of entries that can be read.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigErrors> {
        Self::parse_further(text, origin, |_| None)
    }

    /// Reads a configuration. Where something is wrong with it, `further` says what else is: it looks at what is left without the entries and
    /// tables in which something is ([`Config::lacks`]).
    ///
    /// # Errors
    /// As of [`Self::parse`], and what `further` finds, in the order of the file.
    pub fn parse_further(
        text: &str,
        origin: &str,
        further: impl FnOnce(&Self) -> Option<ConfigErrors>,
    ) -> Result<Self, ConfigErrors> {
        let mut found = Found::default();
        let read = match toml::from_str::<Self>(text) {
            Ok(config) => Some(Rest { config, left_out: LeftOut::default() }),
            Err(_) => read::rest(text, &mut found),
        };
        let Some(mut rest) = read else {
            return found.told(text, origin).map_or(Ok(Self::default()), Err);
        };
        rest.config.origin = Origin::new(origin, text);
        let wrong = check::check(&rest.config, &rest.left_out, &mut found);
        match found.told(text, origin) {
            None => Ok(rest.config),
            Some(errors) => {
                let more = further(&rest.without(&wrong, origin, text));
                Err(ConfigErrors::of([Some(errors.clone()), more].into_iter().flatten()).unwrap_or(errors))
            }
        }
    }

    /// The JSON Schema of the configuration.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).into()
    }
}
