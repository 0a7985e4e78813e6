//! The packet's journey, stage by stage, and the worker that runs it.
//!
//! receive, parse, classify, gates, route, forward, queue, transmit: one stage, one file. A stage decides; `dispose`
//! carries out what was decided, so that every packet ends in exactly one place and is counted there.
//!
//! No stage indexes the bytes of a packet: they are read through checked views, and a module that indexes notes on a
//! batch, or a table of the router's own, says so below.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod accounts;
mod ahead;
#[expect(
    clippy::indexing_slicing,
    reason = "packets and fates of a batch by places that were asked for in it"
)]
mod bare;
mod capture;
mod carry_out;
mod classify;
mod commands;
mod control_plane;
mod dispose;
mod driver_flows;
mod drop_log;
#[expect(
    clippy::indexing_slicing,
    reason = "the one place where notes on a batch are indexed: by places in it, of which there are 256"
)]
mod each;
mod event;
mod explain;
#[expect(clippy::indexing_slicing, reason = "runs of a batch, by places in it")]
mod express;
mod fib;
#[cfg(test)]
mod filter_consumers;
mod filter_route;
mod flows;
mod forward;
mod from_plugins;
mod gate_links;
mod gate_table;
mod gate_tables;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod gates;
#[expect(clippy::indexing_slicing, reason = "groups of a batch by numbers that were given in it")]
mod groups;
#[expect(
    clippy::indexing_slicing,
    reason = "headers of fixed length in a ring of the router, and workers by their numbers"
)]
mod handover;
mod host_output;
mod host_path;
mod neighbours;
mod options;
mod own_stack;
mod parse;
#[expect(clippy::indexing_slicing, reason = "notes on a batch side by side, by places in it")]
mod plain;
mod port_scheduler;
mod ports;
mod post_mortem;
mod punt;
mod queue_backlog;
mod receive;
mod reserved_flows;
mod resume;
mod route;
mod router;
mod snapshot;
mod steer;
mod tags;
pub mod thread;
mod trace;
mod transmit;
mod tsc;
mod work;
mod worker;

pub use accounts::ROUTES;
pub use capture::{CapturePlace, CaptureSink, CaptureSource, CapturedFrame, Direction, capture};
pub use classify::ClassifyCounts;
pub use commands::{
    Barrier, Command, CounterCommand, DeviceCommand, DeviceReport, FilterCommand, FlowCommand, FlowPage,
    FlowReport, FlowScan, NeighbourChange, NeighbourCommand, NeighbourKnowledge, NumberedRoutes,
    ObservationCommand, OffloadCommand, OpenDevice, OpenedDevice, PluginCommand, PortCommand, Question,
    ReplyTo, RouteChange, RouteCommand, SchedulerCommand, UsedNeighbours, WaitingRoutes,
};
pub use control_plane::{ClassLimit, ClassLimits};
pub use driver_flows::{
    ASK, BUDGET, DriverCache, DriverFlowCounts, DriverPort, FORWARD, Level, MOST_OF_FORM, POLICE, Placement,
    StaysUp,
};
pub use drop_log::{DROPS_KEPT, DropQuery, DroppedPacket};
pub use event::Event;
pub use explain::{Explanation, Step};
pub use gate_links::GateLinks;
pub use gate_table::{GateTable, SharedTable, TableKind};
pub use gate_tables::{GateTables, Published, WorkerTable};
pub use handover::Handover;
pub use host_output::{HostFilters, HostSettings};
pub use host_path::{HostPath, NoHost};
pub use millrace_classify::flow_hash;
pub use options::Options;
pub use parse::{Parsed, parse};
pub use port_scheduler::{
    FlowQueueReport, FlowTreatment, NodesPage, Piece, PortScheduler, ScheduleChange, ScheduleReport,
};
pub use ports::{DeviceId, PortCount, PortSettings, QUEUE_LIMIT, ReversePath, Stack};
pub use post_mortem::PostMortem;
pub use router::Router;
pub use snapshot::{Created, FlowCounts, Snapshot, Totals, wrapping_sum};
pub use tags::Tags;
pub use trace::{
    FlowFound, Head, MOST_TRACED, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceOrder, TraceSink,
    TraceSource, TraceStep, Waits, trace,
};
pub use tsc::cycles;
pub use work::{Fate, Work};
pub use worker::{Turn, Worker, WorkerLink};
