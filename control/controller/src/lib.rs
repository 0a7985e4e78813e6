//! Owns the router's state, and joins control to the pipeline.

mod audit;
mod built_in;
mod capture;
mod claim;
mod configuration;
mod crash;
mod device;
mod driver_flows;
mod driver_forms;
mod error;
mod events;
mod feed;
mod filter_check;
mod filters;
mod flows;
mod follow;
mod hardware;
mod headers;
mod host_level;
mod host_output;
mod kernel_path;
mod last_drops;
mod load;
mod loader;
mod lookup;
mod maps;
mod merge_patch;
mod model;
mod node_removal;
mod node_settings;
mod observe;
pub mod offline;
mod overrides;
mod packet_file;
mod page;
mod placement;
mod plan;
mod plugin_requests;
mod quarantine;
mod queues;
pub mod replay;
mod request;
mod route_changes;
mod route_list;
mod route_table;
mod router;
mod routes;
mod said;
mod scheduler_tree;
mod scheduler_view;
mod schedulers;
mod show;
mod start;
mod tokens;
mod topology;
mod trace;
mod upgrade;
pub mod view;
mod watchdog;
mod worker_handle;
mod workers;

pub use millrace_config::{Role, SchedulerNode};
pub use millrace_store::{AuditEntry, AuditLog, Outcome, Revision, Store, Who};
pub use millrace_telemetry::{Event, EventKind, EventPage, EventQuery, Severity, utc};

pub use built_in::manual_page;
pub use capture::{Capture, CaptureAt, CaptureRequest};
pub use configuration::{Apply, Pending, RollBack};
pub use error::{ControlError, Refused, Wrong};
pub use events::Events;
pub use last_drops::DropCursor;
/// The settings that hold for the whole router.
pub use millrace_config::Router as RouterSettings;
pub use overrides::Overrides;
pub use packet_file::PacketFile;
pub use page::{Page, PageQuery};
pub use plan::{Plan, plan};
pub use request::{
    FlowOrder, FlowQuery, NewBinding, NewFilter, NewNeighbour, NewPlacement, NewPlugin, NewRoute,
    NodeRemoval, OldNeighbour, RouteQuery, Upgrade, WantedLevel,
};
pub use router::Router;
pub use start::{Source, StartOptions, check, revisions, start, state_directory};
pub use tokens::{Holder, NewToken, Tokens};
pub use trace::{Trace, TraceRequest};
