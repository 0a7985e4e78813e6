//! Owns the router's state, and connects the control side to the pipeline.
//!
//! # Levels of state
//! Control holds the tables as configured. Each lower level holds a reduced form of them, and gets a new one
//! when a level above changes. (Control is the master processor of *VERA*, section 3.2.1.)
//!
//! | state | control | worker | XDP program |
//! |---|---|---|---|
//! | routes | routes of kernel and user, FIB | shared prefix table, routes by number | egress port |
//! | filters, bindings | filters, instances by name | table of each gate | fate, bucket, eBPF variant |
//! | neighbours | neighbours of kernel and workers | table, link headers | link header |
//! | schedulers | nodes and settings | tree, at the owner of the port | none: flows stay at workers |
//! | addresses, VLANs | addresses and VLANs of kernel and user | settings of ports | maps of the classifier |
//! | placements | placements, device capabilities | placements, device capabilities | devices of entries |
//!
//! A worker derives further state by itself: a flow record holds path and route, an adjacency holds the link
//! header, and a flow cache entry holds both. Limits for the whole router (flows, ICMP errors, rates of
//! control-plane policing) are divided by the number of workers.

mod access;
mod admission;
mod background;
mod configuration;
mod error;
mod events;
mod filters;
mod flows;
mod follow;
mod kernel;
mod model;
mod observe;
pub mod offline;
pub mod operation;
mod overrides;
mod plan;
mod planning;
mod plugins;
mod ports;
mod principals;
mod request;
mod router;
mod routes;
mod schedulers;
mod settings;
mod show;
mod start;
pub mod view;
mod workers;

/// Settings of a new allowance.
pub use millrace_config::Allowance as NewAllowance;
/// Settings of a principal that owns resources.
pub use millrace_config::Principal as PrincipalSettings;
pub use millrace_config::{Role, SchedulerNode};
pub use millrace_store::{AuditEntry, AuditLog, Outcome, Revision, Store, Who, Written};
pub use millrace_telemetry::{Event, EventKind, EventPage, EventQuery, Severity, utc};

pub use access::tokens::{Holder, NewToken, TokenTime, Tokens};
pub use configuration::{AddedFilters, Apply, Keep, RollBack, Save, words};
pub use error::{ControlError, Refused, Wrong};
pub use events::Events;
/// Router-wide settings.
pub use millrace_config::Router as RouterSettings;
pub use observe::capture::{Capture, CaptureAt, CaptureRequest, SnapSize};
pub use observe::last_drops::DropCursor;
pub use observe::trace::{TraceRequest, TraceTime};
pub use offline::replay;
pub use operation::{Call, Caller, Effect, Operation, Principal, Trace};
pub use overrides::Overrides;
pub use plan::{Plan, plan};
pub use planning::state_directory;
pub use plugins::built_in::manual_page;
pub use ports::packet_file::PacketFile;
pub use request::page::{Page, PageQuery};
pub use request::{
    FlowOrder, FlowQuery, NewBinding, NewFilter, NewNeighbour, NewPlacement, NewPlugin, NewRoute,
    NodeRemoval, OldFilter, OldNeighbour, RouteQuery, Upgrade, WantedLevel,
};
pub use router::Router;
pub use start::{Source, StartOptions, check, check_rest, revisions, start};
pub use view::{ConfirmTime, CrashView, Pending};
pub use workers::crash_capture::crashes;
pub use workers::memory_guard::MemoryGuard;
