//! Configuration file: its schema, checks and errors.
//!
//! A configuration is TOML. [`Config::parse`] reads and checks the whole text. The result is consistent:
//! names are unique, every used name is defined, and addresses and filters are valid. Each error has its
//! position in the file, the problem and the remedy.
#![forbid(unsafe_code)]

mod change;
mod check;
mod file;
mod normal;
mod origin;
pub mod reading;
mod save;
mod schema;
mod values;

use file::Rest;
use origin::LeftOut;
use origin::error::Found;
use reading::Tree;

pub use change::difference::{Difference, Owner, Restart, Submission};
pub use change::nodes::{Fate, Fates, Nodes, default_leaf};
pub use change::{Change, Heir, Together};
pub use check::{MOST_PLACED_COMPARISONS, MOST_PLACEMENTS};
pub use origin::error::{ConfigError, ConfigErrors, Place};
pub use origin::{Origin, Step};
pub use schema::api::{Api, Role};
pub use schema::principal::{
    CpuLimit, CpuShare, Deadline, LinkReservation, MemoryLimit, QueueLimit, Reservation, Resource,
};
pub use schema::scheduler::{
    DelayTime, FlowQueue, HostOutput, LengthUnit, Manage, Scheduler, SchedulerKind, SchedulerNode,
};
pub use schema::{
    Admission, Allowance, Bind, Boot, Budget, Config, Connections, ControlPlane, CoreOrder, CpuScheduler,
    Device, Filter, Forwarding, Gate, GateTable, Impair, Instance, Neighbour, ObjectRuntime, OnDeath,
    OnFault, Placeable, Placement, PlacementLevel, Plugin, Plugins, PollMode, Port, PortKind, Principal,
    ReversePath, Route, RouteKind, Router, Service, ServiceLevel, SharedObjects, Shed, Unsigned, Watchdog,
};
pub use values::action::{FilterAction, Policing, WayOut};
pub use values::flow::one_flow;
pub use values::overhead::Overhead;
pub use values::quantity::{Bits, CurveText, Length, QueueSize, Size, Time};
pub use values::share::{ByteRate, CoreCeiling, ProcessorShare, PromisedPart};
pub use values::worker_policy::WorkerPolicy;
pub use values::{InputWeight, Named, OutputWeight, Text, VlanIds, Written};

impl Config {
    /// Reads and checks a configuration. `origin` is the name of the file in messages.
    ///
    /// # Errors
    /// Returns all errors, in the order of the file. An error in one entry hides no error in later entries.
    /// Checks across entries cover all entries that can be read.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigErrors> {
        Self::parse_further(text, origin, |_| None)
    }

    /// Reads and checks a configuration. If there are errors, calls `further` with the configuration without
    /// the faulty parts ([`Config::lacks`]). `further` checks it, and returns further errors.
    ///
    /// # Errors
    /// Returns the errors of [`Self::parse`] and of `further`, in the order of the file.
    pub fn parse_further(
        text: &str,
        origin: &str,
        further: impl FnOnce(&Self) -> Option<ConfigErrors>,
    ) -> Result<Self, ConfigErrors> {
        let mut found = Found::default();
        let read = match Tree::of_toml(text).map(Tree::read::<Self>) {
            Ok(Ok(config)) => Some(Rest { config, left_out: LeftOut::default() }),
            Ok(Err(_)) | Err(_) => file::rest(text, &mut found),
        };
        let Some(mut rest) = read else {
            return found.located(text, origin).map_or(Ok(Self::default()), Err);
        };
        rest.config.origin = Origin::new(origin, text);
        let wrong = check::check(&rest.config, &rest.left_out, &mut found);
        match found.located(text, origin) {
            None => Ok(rest.config),
            Some(errors) => {
                let more = further(&rest.without(&wrong, origin, text));
                Err(ConfigErrors::of([Some(errors.clone()), more].into_iter().flatten()).unwrap_or(errors))
            }
        }
    }

    /// Returns the JSON Schema of the configuration.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).into()
    }
}
