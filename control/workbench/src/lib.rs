//! Plugins outside of a router: inspection, trials on packets, and measurement of costs.
//!
//! [`inspect`] reads a plugin's file. [`try_out`] passes the packets of a capture to the plugin. [`measure`]
//! measures the plugin's time and memory. All three use the router's own runtimes, and instances as a worker
//! has them. Shared objects and executables run in confined processes, unless the caller asks for this process. The router's parse stage reads the packets, so flow keys and offsets are the same as in a
//! router.
#![deny(unsafe_code)]

mod bench;
mod changes;
mod error;
mod expectation;
mod frames;
mod impact;
mod inspect;
mod manifest_section;
mod memory;
mod meter;
mod module;
mod ready;
mod trial;

pub use bench::{Costs, RingUse, StartCosts, measure};
pub use changes::{Change, changes};
pub use error::WorkbenchError;
pub use expectation::Expectation;
pub use frames::{Frame, built_in};
pub use inspect::{Inspection, check, inspect};
pub use manifest_section::with_cost;
pub use meter::{BatchCost, Spread};
pub use millrace_pipeline::cycles;
pub use millrace_plugin::process::Keeper;
pub use millrace_plugin::{ANY_KIND, Cost, KindCost};
pub use millrace_plugin_abi::Message;
pub use module::{Module, ObjectRuntime};
pub use trial::{Exchange, FaultReport, Outcome, Trial, TrialOptions, try_out};
