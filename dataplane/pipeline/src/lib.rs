//! Packet pipeline: the stages that a batch passes from port to port, and the worker that runs them.
//!
//! The stages are receive, parse, steer, classify, gates, forward, queue and transmit. A stage decides the
//! fates of packets, and `dispose` carries them out. So every packet ends in exactly one place and is counted
//! there.
//!
//! A module imports only modules of earlier lines, and within a line only modules to its left:
//!
//! ```text
//! each work subject options tsc wake route_number parse           values
//! gate_tables accounts connections ports pending forward handover observe     tables and other state
//! gates classify ingress fast_path punt offloaded_flows egress       stages
//! router                                                          order of the stages
//! snapshot flow_reports lookup                                    reports on the whole router
//! commands worker                                                 control, devices and the thread
//! ```
//!
//! A stage that changes the state of several modules borrows them in a struct of its own, such as
//! `Classification` or `Disposal`. `Router` owns all state, makes these structs, and calls the stages in
//! order.
//!
//! No stage indexes the bytes of a packet; stages read them through checked views. Modules that index a
//! batch's arrays or a table of the router are marked below.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod accounts;
mod classify;
mod commands;
mod connections;
#[expect(
    clippy::indexing_slicing,
    reason = "the one place where notes on a batch are indexed: by places in it, of which there are 256"
)]
mod each;
mod egress;
mod fast_path;
#[cfg(test)]
mod filter_consumers;
mod flow_reports;
mod forward;
mod gate_tables;
mod gates;
#[expect(
    clippy::indexing_slicing,
    reason = "headers of fixed length in a ring of the router, and workers by their numbers"
)]
mod handover;
mod ingress;
mod lookup;
mod observe;
mod offloaded_flows;
mod options;
mod parse;
mod pending;
mod ports;
mod punt;
mod route_number;
mod router;
mod snapshot;
mod subject;
mod tsc;
mod wake;
mod work;
mod worker;

pub use accounts::WaitingRoutes;
pub use classify::{ClassifyCounts, FlowCounts};
pub use commands::{
    Command, ConnectionCommand, CounterCommand, DeviceCommand, DeviceReport, FilterCommand, FlowCommand,
    NeighbourCommand, ObservationCommand, OffloadCommand, OpenDevice, OpenedDevice, PluginCommand,
    PortCommand, PrincipalCommand, ReplyTo, RouteCommand, SchedulerCommand,
};
pub use connections::{ConnectionCounts, ConnectionPage, ConnectionReport, ConnectionScan};
pub use egress::errors::ErrorSender;
pub use flow_reports::{FlowPage, FlowPayment, FlowReport, FlowScan};
pub use forward::changes::{
    NeighbourChange, NeighbourKnowledge, NumberedRoutes, RouteChange, UsedNeighbours,
};
pub use gate_tables::links::GateLinks;
pub use gate_tables::table::{GateTable, SharedTable, TableKind};
pub use gate_tables::{GateTables, Published, WorkerTable};
pub use handover::{Handover, HandoverRings};
pub use lookup::{Lookup, LookupStep, Question, Verdict};
pub use millrace_classify::{connection_hash, flow_hash};
pub use observe::capture::{CapturePlace, CaptureSink, CaptureSource, CapturedFrame, Direction, capture};
pub use observe::drop_log::{DROPS_KEPT, DropQuery, DroppedPacket};
pub use observe::event::{Discarded, Event};
pub use observe::totals::{Created, Totals, wrapping_sum};
pub use observe::trace::{
    FlowFound, Head, MOST_TRACED, RouteEnd, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceOrder,
    TraceSink, TraceSource, TraceStep, Waits, trace,
};
pub use offloaded_flows::{
    BUDGET, EBPF_VARIANT_CALL, EBPF_VARIANT_LIMIT, FORWARD, Level, OffloadPort, OffloadedFlowCounts,
    Placement, StaysUp, TOKEN_BUCKET, WorkerFlowCache,
};
pub use options::{ClassLimit, ClassLimits, Options};
pub use parse::tags::Tags;
pub use parse::{Parsed, parse};
pub use pending::control_work::CONTROL_PART;
pub use pending::core_settings::{CoreDivision, CoreOrder, CoreSettings, Shed};
pub use pending::core_time::{CORE_BURST, CoreCounts};
pub use pending::for_processor::PrincipalSettings;
pub use pending::loads::PrincipalLoads;
pub use pending::principal_counts::{DeadlineCounts, PrincipalCounts, PrincipalDrops, PrincipalUse};
pub use ports::host_output::{HostFilters, HostSettings};
pub use ports::scheduler::{
    FlowQueueReport, FlowTreatment, NodesPage, Piece, PortScheduler, ScheduleChange, ScheduleReport,
};
pub use ports::{DeviceId, PortCoreTime, PortCount, PortSettings, QUEUE_LIMIT, ReversePath, Stack};
pub use punt::host_path::{HostPath, NoHost};
pub use route_number::ROUTES;
pub use router::Router;
pub use snapshot::Snapshot;
pub use tsc::cycles;
pub use work::{Fate, Work};
pub use worker::post_mortem::PostMortem;
pub use worker::thread;
pub use worker::{Iteration, Worker, WorkerLink};
