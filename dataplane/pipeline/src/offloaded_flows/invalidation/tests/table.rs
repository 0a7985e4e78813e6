//! Table of all commands, each with the flows whose flow cache entries it ends.

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_classify::{Candidate, CompiledSelection};
use millrace_connection::{ConnectionConfig, ConnectionTable, Timeouts};
use millrace_forward::Route;
use millrace_packet::Pool;
use millrace_plugin::{Action, BindingId, ConnectionStates, GateOrder, Inheritance, PluginChange, Successor};
use millrace_plugin_abi::{Message, Position};
use millrace_port::Memory;
use millrace_schedule::{NodeKind, Share};
use millrace_units::{GateId, InstanceId, Instant, NextHopIndex, PortId, QueueId};

use super::world::{
    BOTH, Cache, FIRST, FREE_GATE, GATE, INSTANCE, NEITHER, OUT, Pass, SECOND, World, changed, filter, key,
    mac, moved, nobody, port_settings,
};
use crate::commands::{
    Command, ConnectionCommand, CounterCommand, DeviceCommand, FilterCommand, FlowCommand, NeighbourCommand,
    ObservationCommand, OffloadCommand, OpenedDevice, PluginCommand, PortCommand, RouteCommand,
    SchedulerCommand,
};
use crate::connections::ConnectionScan;
use crate::flow_reports::FlowScan;
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge};
use crate::gate_tables::WorkerTable;
use crate::lookup::Question;
use crate::observe::capture::{CapturePlace, capture};
use crate::observe::drop_log::DropQuery;
use crate::observe::trace::{TraceOrder, trace};
use crate::offloaded_flows::OffloadPort;
use crate::options::Options;
use crate::ports::DeviceId;
use crate::ports::host_output::{HostFilters, HostSettings};
use crate::ports::scheduler::{Piece, ScheduleChange};
use crate::punt::host_path::NoHost;

fn all_flows() -> FlowScan {
    FlowScan { from: 0, records: u32::MAX, filter: CompiledSelection::any() }
}

fn connections() -> Box<ConnectionTable> {
    let timeouts = Timeouts::default();
    let config = ConnectionConfig { maximum: 16, per_source: 8, timeouts, adopts: false, seed: 1 };
    Box::new(ConnectionTable::new(&config, Instant::ZERO).unwrap())
}

/// Name of a command, function that makes it, and whether it ends the entry of each of the two flows.
pub(super) type Row = (&'static str, fn(&mut World) -> Command, [bool; 2]);

const DEVICES: &[Row] = &[
    (
        "add a device",
        |_| {
            let open =
                |_: &Pool| Ok(OpenedDevice { port: Box::new(Memory::new(mac(5), 1500).0), sockets: vec![] });
            DeviceCommand::Add(DeviceId(5), Box::new(open), nobody()).into()
        },
        NEITHER,
    ),
    ("remove a device", |_| DeviceCommand::Remove(DeviceId(1), nobody()).into(), BOTH),
    ("set the host path", |_| DeviceCommand::SetHostPath(Box::new(NoHost)).into(), NEITHER),
];

const HOST_SETTINGS: HostSettings = HostSettings { filters: HostFilters::Queue, weight: 1, mark: [2; 4] };

const PORTS: &[Row] = &[
    ("set a port", |_| PortCommand::Set(PortId(9), port_settings(4)).into(), BOTH),
    ("set host output", |_| PortCommand::SetHostOutput(OUT[0], HOST_SETTINGS).into(), NEITHER),
    ("remove host output", |_| PortCommand::RemoveHostOutput(OUT[0], nobody()).into(), NEITHER),
    (
        "add host output",
        |_| {
            let open =
                |_: &Pool| Ok(OpenedDevice { port: Box::new(Memory::new(mac(5), 1500).0), sockets: vec![] });
            PortCommand::AddHostOutput(OUT[0], HOST_SETTINGS, Box::new(open), nobody()).into()
        },
        NEITHER,
    ),
];

const ROUTES: &[Row] = &[
    (
        "set a route of an offloaded flow",
        |world| RouteCommand::Set(vec![(world.routes[0], Route::Blackhole)], nobody()).into(),
        BOTH,
    ),
    (
        "set a route that no flow has",
        |_| RouteCommand::Set(vec![(NextHopIndex(99), Route::Blackhole)], nobody()).into(),
        NEITHER,
    ),
    (
        "forget a route",
        |_| RouteCommand::Forget(vec![(NextHopIndex(99), Route::Blackhole)], nobody()).into(),
        NEITHER,
    ),
    ("change the prefix of a destination", |_| changed("10.16.0.0/12"), FIRST),
    ("change the prefix of a source", |_| changed("10.160.0.0/12"), SECOND),
    ("change another prefix", |_| changed("192.0.2.0/24"), NEITHER),
    ("change the default route", |_| changed("0.0.0.0/0"), BOTH),
    ("ask for waiting routes", |_| RouteCommand::Waiting(NextHopIndex(0), nobody()).into(), NEITHER),
    ("count routes", |world| RouteCommand::Count(world.routes.into(), nobody()).into(), NEITHER),
    ("clear routes", |_| RouteCommand::Clear(NextHopIndex(0), nobody()).into(), NEITHER),
];

const NEIGHBOURS: &[Row] = &[
    ("move a neighbour", |_| moved(0, NeighbourKnowledge::Known(mac(8))).into(), BOTH),
    ("forget a neighbour", |_| moved(1, NeighbourKnowledge::Forgotten).into(), BOTH),
    ("report a neighbour that fails", |_| moved(1, NeighbourKnowledge::Failed).into(), BOTH),
    ("confirm a neighbour", |_| moved(0, NeighbourKnowledge::Known(mac(7))).into(), NEITHER),
    (
        "report a neighbour of no flow",
        |_| {
            let (address, state) = (Ipv4Addr::new(10, 1, 0, 9).into(), NeighbourKnowledge::Known(mac(8)));
            NeighbourCommand::Set(vec![NeighbourChange { port: OUT[0], address, state }]).into()
        },
        NEITHER,
    ),
    ("take used neighbours", |_| NeighbourCommand::TakeUsed(nobody()).into(), NEITHER),
];

const FILTERS: &[Row] = &[
    ("set a table", |_| FilterCommand::SetTable(FREE_GATE, WorkerTable::default()).into(), NEITHER),
    ("count filters", |_| FilterCommand::Count(BindingId(0), nobody()).into(), NEITHER),
    ("clear filters", |_| FilterCommand::Clear(BindingId(0), nobody()).into(), NEITHER),
];

const PLUGINS: &[Row] = &[
    (
        "bind an action",
        |world| {
            let bind = world.bind(0, 2, Action::Drop);
            world.change(bind)
        },
        FIRST,
    ),
    (
        "unbind an action",
        |world| world.change(PluginChange::Unbind { binding: BindingId(1), gate: GATE, filter: filter(1) }),
        SECOND,
    ),
    (
        "quarantine an instance",
        |world| world.change(PluginChange::Quarantine { id: INSTANCE, why: String::new() }),
        BOTH,
    ),
    (
        "add a gate",
        |world| {
            let (gate, position, order) = (GateId(3), Position::Late, GateOrder(1));
            world.change(PluginChange::AddGate { gate, position, order })
        },
        NEITHER,
    ),
    ("remove a gate", |world| world.change(PluginChange::RemoveGate { gate: FREE_GATE }), NEITHER),
    (
        "give an instance states",
        |world| {
            let states = ConnectionStates::new(8, 1).unwrap();
            world.change(PluginChange::GiveStates { id: InstanceId(2), states })
        },
        NEITHER,
    ),
    (
        "add an instance",
        |world| world.change(PluginChange::AddInstance { id: InstanceId(2), instance: Box::new(Pass) }),
        NEITHER,
    ),
    ("remove an instance", |world| world.change(PluginChange::RemoveInstance { id: INSTANCE }), NEITHER),
    (
        "send a control message",
        |_| {
            let message = Message { name: "show".into(), arguments: Default::default() };
            PluginCommand::Control(INSTANCE, message, nobody()).into()
        },
        NEITHER,
    ),
    ("send a message", |_| PluginCommand::Message(INSTANCE, vec![1]).into(), NEITHER),
    (
        "replace an instance",
        |_| {
            let (instance, inheritance) = (Box::new(Pass), Inheritance::Renounced);
            let successor = Successor::new(vec![instance], inheritance, 1, true);
            PluginCommand::Replace(INSTANCE, successor, nobody()).into()
        },
        BOTH,
    ),
    (
        "shadow an instance",
        |_| PluginCommand::Shadow((INSTANCE, 0), Box::new(Pass), 1, nobody()).into(),
        BOTH,
    ),
    ("end a shadow", |_| PluginCommand::EndShadows(INSTANCE).into(), NEITHER),
];

const SCHEDULERS: &[Row] = &[
    (
        "change a scheduler",
        |_| {
            let (node, kind) = (QueueId(1), NodeKind::Fifo(Default::default()));
            let add = ScheduleChange::Add { node, parent: None, share: Share::Only, kind };
            SchedulerCommand::Change(OUT[0], vec![add], Piece::WHOLE, nobody()).into()
        },
        BOTH,
    ),
    ("show nodes", |_| SchedulerCommand::ShowNodes(OUT[0], 0, nobody()).into(), NEITHER),
    ("show queues", |_| SchedulerCommand::ShowQueues(OUT[0], QueueId(1), 0, nobody()).into(), NEITHER),
    ("find a leaf", |_| SchedulerCommand::FindLeaf(OUT[0], QueueId(1), nobody()).into(), NEITHER),
];

const FLOWS: &[Row] = &[
    ("reserve flows", |_| FlowCommand::Reserve(vec![key(0)]).into(), NEITHER),
    ("scan flows", |_| FlowCommand::Scan(all_flows(), nobody()).into(), NEITHER),
    ("flush flows", |_| FlowCommand::Flush(all_flows(), nobody()).into(), BOTH),
];

const OFFLOAD: &[Row] = &[
    ("set the cache", |_| OffloadCommand::SetCache(Box::new(Cache::default())).into(), BOTH),
    ("set a port's capabilities", |_| OffloadCommand::SetPort(OUT[0], OffloadPort::default()).into(), BOTH),
    ("place flows", |_| OffloadCommand::Place(Vec::new()).into(), BOTH),
    ("set an eBPF variant", |_| OffloadCommand::SetVariant(INSTANCE, None).into(), BOTH),
    ("account offloaded packets", |_| OffloadCommand::Account(0, nobody()).into(), NEITHER),
];

const OBSERVATION: &[Row] = &[
    (
        "start a capture",
        |_| {
            let (sink, _) = capture(1, CapturePlace::Ports, None, 64, 4096);
            ObservationCommand::StartCapture(Box::new(sink)).into()
        },
        BOTH,
    ),
    (
        "start a trace",
        |_| {
            let order = TraceOrder { filter: None, every: 1, count: 1, time: Duration::MAX };
            ObservationCommand::StartTrace(Box::new(trace(1, order).0)).into()
        },
        BOTH,
    ),
    ("stop a capture", |_| ObservationCommand::StopCapture(1).into(), NEITHER),
    ("stop a trace", |_| ObservationCommand::StopTrace(1).into(), NEITHER),
    (
        "ask for the last drops",
        |_| ObservationCommand::LastDrops(DropQuery { reason: None, after: 0 }, nobody()).into(),
        NEITHER,
    ),
    (
        "look up a packet",
        |_| {
            let candidate = Candidate::plain(key(0));
            let question = Question { candidate, length: 46, dont_fragment: false };
            ObservationCommand::Lookup(question, nobody()).into()
        },
        NEITHER,
    ),
];

const ROUTER: &[Row] = &[
    ("ask for a snapshot", |_| CounterCommand::Snapshot(nobody()).into(), NEITHER),
    ("ask for a summary", |_| CounterCommand::Summary(nobody()).into(), NEITHER),
    ("clear counters", |_| CounterCommand::Clear.into(), NEITHER),
    ("set options", |_| Options::default().into(), BOTH),
    ("begin to track connections", |_| ConnectionCommand::Begin(connections()).into(), NEITHER),
    (
        "list connections",
        |_| {
            let scan = ConnectionScan { from: 1, filter: CompiledSelection::any(), most: 1 };
            ConnectionCommand::Scan(scan, nobody()).into()
        },
        NEITHER,
    ),
    ("reach a barrier", |_| Command::Barrier(nobody()), NEITHER),
    ("stop", |_| Command::Stop, NEITHER),
];

/// Commands of all receivers.
pub(super) const RECEIVERS: [&[Row]; 11] =
    [DEVICES, PORTS, ROUTES, NEIGHBOURS, FILTERS, PLUGINS, SCHEDULERS, FLOWS, OFFLOAD, OBSERVATION, ROUTER];
