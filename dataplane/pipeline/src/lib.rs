//! The packet's journey, stage by stage, and the worker that runs it.
//!
//! receive, parse, classify, gates, route, forward, queue, transmit: one stage, one file. A stage decides; `dispose`
//! carries out what was decided, so that every packet ends in exactly one place and is counted there.
//!
//! No stage indexes the bytes of a packet: they are read through checked views, and a module that indexes notes on a
//! batch, or a table of the router's own, says so below.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod accounts;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod ahead;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod bare;
#[expect(clippy::indexing_slicing, reason = "a record of fixed length in a ring of the router")]
mod capture;
mod carry_out;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod classify;
mod command;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod control_plane;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod dispose;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod driver_flows;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod drop_log;
mod explain;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod express;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod fib;
mod filter_route;
mod flows;
mod forward;
mod from_plugins;
mod gate_links;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod gate_table;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod gate_tables;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod gates;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod go_on;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod groups;
#[expect(clippy::indexing_slicing, reason = "a record of fixed length in a ring of the router")]
mod handover;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod host_output;
mod host_path;
mod neighbours;
mod options;
mod own_stack;
mod parse;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod plain;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod port_scheduler;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod ports;
mod post_mortem;
mod queue_backlog;
mod receive;
mod reserved_flows;
mod route;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod router;
mod snapshot;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod steer;
mod tags;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
pub mod thread;
mod trace;
mod transmit;
mod tsc;
#[expect(
    clippy::indexing_slicing,
    reason = "notes on a batch and its packets, by the place of a packet in it"
)]
mod work;
#[expect(clippy::indexing_slicing, reason = "tables of the router, by numbers that they gave")]
mod worker;

pub use accounts::ROUTES;
pub use capture::{CapturePlace, CaptureSink, CaptureSource, CapturedFrame, Direction, capture};
pub use classify::ClassifyCounts;
pub use command::{
    Command, DeviceReport, Event, FlowPage, FlowReport, FlowScan, NeighbourChange, NeighbourKnowledge,
    NumberedRoutes, OpenDevice, OpenedDevice, Question, ReplyTo, RouteChange, UsedNeighbours, WaitingRoutes,
};
pub use control_plane::{ClassLimit, ClassLimits};
pub use driver_flows::{
    ASK, BUDGET, DriverAction, DriverCache, DriverFlow, DriverFlowCounts, DriverPort, DriverTotals,
    DriverWay, FORWARD, Level, MOST_OF_FORM, POLICE, Placement, StaysUp,
};
pub use drop_log::{DROPS_KEPT, DropQuery, DroppedPacket};
pub use explain::{Explanation, Step};
pub use gate_links::GateLinks;
pub use gate_table::{GateTable, SharedTable, TableKind};
pub use gate_tables::{CompiledFilters, GateTables, Published, WorkerTable};
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
pub use snapshot::{Created, FlowCounts, Snapshot, Totals};
pub use tags::Tags;
pub use trace::{
    FlowFound, Head, MOST_TRACED, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceOrder, TraceSink,
    TraceSource, TraceStep, Waits, trace,
};
pub use tsc::cycles;
pub use work::{Fate, Work};
pub use worker::{Turn, Worker, WorkerLink};
