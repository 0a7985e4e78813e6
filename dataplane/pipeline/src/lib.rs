//! Packet pipeline: the stages that a batch passes from port to port, and the worker that runs them.
//!
//! The stages are receive, parse, classify, gates, route, forward, queue and transmit. A stage decides, and
//! `dispose` carries out the decisions. So every packet ends in exactly one place and is counted there.
//!
//! No stage indexes the bytes of a packet; they are read through checked views. Modules that index a batch's
//! arrays or a table of the router are marked below.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod classify;
mod commands;
mod driver_flows;
#[expect(
    clippy::indexing_slicing,
    reason = "the one place where notes on a batch are indexed: by places in it, of which there are 256"
)]
mod each;
mod egress;
mod fast_path;
mod forward;
mod gates;
mod ingress;
mod observe;
mod options;
mod punt;
mod router;
mod work;
mod worker;

pub use classify::ClassifyCounts;
pub use commands::{
    Barrier, Command, CounterCommand, DeviceCommand, DeviceReport, FilterCommand, FlowCommand, FlowPage,
    FlowReport, FlowScan, NeighbourChange, NeighbourCommand, NeighbourKnowledge, NumberedRoutes,
    ObservationCommand, OffloadCommand, OpenDevice, OpenedDevice, PluginCommand, PortCommand, Question,
    ReplyTo, RouteChange, RouteCommand, SchedulerCommand, UsedNeighbours, WaitingRoutes,
};
pub use driver_flows::{
    ASK, BUDGET, DriverCache, DriverFlowCounts, DriverPort, FORWARD, Level, MOST_OF_FORM, POLICE, Placement,
    StaysUp,
};
pub use egress::accounts::ROUTES;
pub use egress::port_scheduler::{
    FlowQueueReport, FlowTreatment, NodesPage, Piece, PortScheduler, ScheduleChange, ScheduleReport,
};
pub use egress::ports::{DeviceId, PortCount, PortSettings, QUEUE_LIMIT, ReversePath, Stack};
pub use gates::links::GateLinks;
pub use gates::table::{GateTable, SharedTable, TableKind};
pub use gates::tables::{GateTables, Published, WorkerTable};
pub use ingress::host_output::{HostFilters, HostSettings};
pub use ingress::parse::{Parsed, parse};
pub use ingress::tags::Tags;
pub use millrace_classify::flow_hash;
pub use observe::capture::{CapturePlace, CaptureSink, CaptureSource, CapturedFrame, Direction, capture};
pub use observe::drop_log::{DROPS_KEPT, DropQuery, DroppedPacket};
pub use observe::event::Event;
pub use observe::explain::{Explanation, Step};
pub use observe::snapshot::{Created, FlowCounts, Snapshot, Totals, wrapping_sum};
pub use observe::trace::{
    FlowFound, Head, MOST_TRACED, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceOrder, TraceSink,
    TraceSource, TraceStep, Waits, trace,
};
pub use options::Options;
pub use punt::control_plane::{ClassLimit, ClassLimits};
pub use punt::host_path::{HostPath, NoHost};
pub use router::Router;
pub use work::{Fate, Work};
pub use worker::handover::Handover;
pub use worker::post_mortem::PostMortem;
pub use worker::thread;
pub use worker::tsc::cycles;
pub use worker::{Turn, Worker, WorkerLink};
