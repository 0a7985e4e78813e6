//! Owns the router's state, and joins control to the pipeline.

mod capture;
mod claim;
mod device;
mod driver_flows;
mod error;
mod feed;
mod filter_check;
mod filters;
mod flows;
mod follow;
mod host_level;
mod host_output;
mod kernel_path;
mod load;
mod loader;
mod lookup;
mod maps;
mod model;
mod node_settings;
pub mod offline;
mod plan;
mod plugin_requests;
mod quarantine;
mod queues;
pub mod replay;
mod request;
mod route_changes;
mod route_table;
mod router;
mod routes;
mod schedulers;
mod show;
mod start;
mod upgrade;
pub mod view;
mod watchdog;
mod worker_handle;
mod workers;

pub use millrace_config::SchedulerNode;

pub use capture::{Capture, CaptureRequest};
pub use error::ControlError;
pub use plan::{Plan, plan};
pub use request::{FlowOrder, FlowQuery, NewBinding, NewFilter, NewPlugin, NewRoute, Upgrade};
pub use router::Router;
pub use start::{StartOptions, check, start};
