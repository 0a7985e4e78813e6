//! Plugins outside of a router: what they say of themselves, what they do to packets, and what they cost.
//!
//! [`inspect`] reads a plugin's file, [`try_out`] has it handle the packets of a capture, and [`measure`] takes its time. All
//! three use the router's own sandbox and the instance that a worker would have, and packets are read by the stage of the
//! pipeline that reads them in the router, so that keys and offsets are the same.
#![deny(unsafe_code)]

mod bench;
mod changes;
mod error;
mod expectation;
mod frames;
mod inspect;
mod module;
mod ready;
mod trial;

pub use bench::{BatchCost, Costs, Spread, measure};
pub use changes::{Change, changes};
pub use error::WorkbenchError;
pub use expectation::Expectation;
pub use frames::{Frame, built_in};
pub use millrace_pipeline::cycles;
pub use millrace_plugin_abi::Message;

pub use inspect::{CostStatement, Inspection, check, inspect};
pub use module::Module;
pub use trial::{Exchange, FaultReport, Outcome, Trial, TrialOptions, try_out};
