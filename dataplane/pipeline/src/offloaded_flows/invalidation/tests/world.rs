//! Test worker with two offloaded flows.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_classify::{CompiledExpression, Filter};
use millrace_forward::{NextHop, NextHops, Route, SharedFib};
use millrace_packet::{FlowKey, OffloadTotals, OffloadedFlow, Pool};
use millrace_plugin::{Action, BindingId, CallLimits, GateOrder, PluginChange, Policer};
use millrace_plugin_abi::{Instance, Message, Packets, Position, Progress, Reply};
use millrace_port::{Memory, MemoryHandle};
use millrace_units::{GateId, InstanceId, Instant, NextHopIndex, PortId};
use millrace_wire::{MacAddr, Protocol};

use crate::commands::{
    Command, NeighbourCommand, OffloadCommand, PluginCommand, PortCommand, ReplyTo, RouteCommand,
};
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge, RouteChange};
use crate::gate_tables::GateTables;
use crate::offloaded_flows::invalidation::Invalidation;
use crate::offloaded_flows::{OffloadPort, WorkerFlowCache};
use crate::parse::tags::Tags;
use crate::ports::tests::settings;
use crate::ports::{DeviceId, PortSettings, Stack};
use crate::punt::host_path::NoHost;
use crate::worker::{Worker, WorkerLink};

/// Ingress port of both flows.
pub(super) const IN: PortId = PortId(1);
/// Egress ports of the flows, one for each.
pub(super) const OUT: [PortId; 2] = [PortId(2), PortId(3)];
/// Sources and destinations of the flows. Each address is in a separate address region of the change log, so
/// that the change of a prefix affects one flow.
pub(super) const SOURCES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 128, 0, 1), Ipv4Addr::new(10, 160, 0, 1)];
pub(super) const DESTINATIONS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 16, 0, 1), Ipv4Addr::new(10, 64, 0, 1)];
pub(super) const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 1, 0, 3)];
/// Gate at which the second flow has a binding.
pub(super) const GATE: GateId = GateId(1);
/// Gate without bindings.
pub(super) const FREE_GATE: GateId = GateId(2);
pub(super) const INSTANCE: InstanceId = InstanceId(1);

pub(super) const NEITHER: [bool; 2] = [false, false];
pub(super) const BOTH: [bool; 2] = [true, true];
pub(super) const FIRST: [bool; 2] = [true, false];
pub(super) const SECOND: [bool; 2] = [false, true];

/// Contents of a flow cache: the published generation, and the flow key and generation of each entry.
#[derive(Debug, Default)]
pub(super) struct Contents {
    published: u64,
    entries: Vec<Option<(FlowKey, u64)>>,
}

impl Contents {
    /// Returns for each flow whether its entry has the published generation, so that the offload would use
    /// it.
    pub fn in_force(&self) -> [bool; 2] {
        DESTINATIONS.map(|destination| {
            let is_used = |(key, generation): &(FlowKey, u64)| {
                key.destination() == destination && *generation == self.published
            };
            self.entries.iter().flatten().any(is_used)
        })
    }

    fn set(&mut self, slot: u32, generation: u64) {
        self.entries[slot as usize].as_mut().unwrap().1 = generation;
    }
}

/// Flow cache of the tests, which no XDP program reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache(pub Arc<Mutex<Contents>>);

impl WorkerFlowCache for Cache {
    fn room(&self) -> usize {
        8
    }

    fn publish(&mut self, generation: u64) {
        self.0.lock().unwrap().published = generation;
    }

    fn police(&mut self, _policer: &Policer) -> Option<u16> {
        None
    }

    fn insert(&mut self, key: &FlowKey, _flow: &OffloadedFlow) -> Option<u32> {
        let entries = &mut self.0.lock().unwrap().entries;
        entries.push(Some((*key, 0)));
        Some(entries.len() as u32 - 1)
    }

    fn begin(&mut self, slot: u32, _port: PortId, generation: u64) {
        self.0.lock().unwrap().set(slot, generation);
    }

    fn renew(&mut self, slot: u32, _flow: &OffloadedFlow, generation: u64) {
        self.0.lock().unwrap().set(slot, generation);
    }

    fn remove(&mut self, _key: &FlowKey, slot: u32) -> OffloadTotals {
        self.0.lock().unwrap().entries[slot as usize] = None;
        OffloadTotals::default()
    }

    fn totals(&self, _slot: u32) -> OffloadTotals {
        OffloadTotals::default()
    }

    fn up(&self, _port: PortId) -> u64 {
        0
    }

    fn up_by(&self, _port: PortId, _queue: usize) -> u64 {
        0
    }

    fn note_read(&self, _queue: (PortId, usize), _epoch: u64, _read: u64) {}

    fn noted_read(&self, _queue: (PortId, usize), _epoch: u64) -> u64 {
        0
    }

    fn set_done(&mut self, _port: PortId, _done: u64) {}

    fn set_overloaded(&self, _queue: (PortId, usize), _overloaded: bool) {}

    fn is_overloaded(&self, _port: PortId) -> bool {
        false
    }
}

/// Instance that lets packets pass.
pub(super) struct Pass;

impl Instance for Pass {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Test worker with two offloaded flows.
pub(super) struct World {
    worker: Worker,
    pub link: WorkerLink,
    fib: SharedFib,
    tables: GateTables,
    wire: MemoryHandle,
    pub cache: Cache,
    now: Instant,
    /// Route number of each flow.
    pub routes: [NextHopIndex; 2],
}

impl World {
    pub fn new() -> Self {
        let (mut fib, pool) = (SharedFib::new().unwrap(), Pool::new(256).unwrap());
        let (mut worker, link) = Worker::new(pool, fib.reader(), Box::new(NoHost), 1).unwrap();
        let mut wires = [0, 1, 2].map(|device| {
            let (memory, wire) = Memory::new(mac(device), 1500);
            worker.add_device(DeviceId(device), Box::new(memory));
            Some(wire)
        });
        let wire = wires[0].take().unwrap();
        let numbers = [0, 1].map(|flow| fib.intern(route(flow)).0);
        let cache = Cache::default();
        let tables = GateTables::default();
        let now = Instant::from_millis(1);
        let mut world = Self { worker, link, fib, tables, wire, cache: cache.clone(), now, routes: numbers };
        world.tell(OffloadCommand::SetCache(Box::new(cache)));
        for (port, device) in [IN, OUT[0], OUT[1]].into_iter().zip(0..) {
            world.tell(PortCommand::Set(port, port_settings(device)));
            let can = OffloadPort { receives: true, sends: true, receive_queues: 1, queues: false };
            world.tell(OffloadCommand::SetPort(port, can));
        }
        world.set_up_flows();
        world
    }

    /// Gives both flows routes, neighbours, a gate and a binding, and sends packets until both are offloaded.
    fn set_up_flows(&mut self) {
        let numbered = [0, 1].map(|flow| (self.routes[flow], route(flow)));
        self.tell(RouteCommand::Set(numbered.into(), nobody()));
        for flow in [0, 1] {
            let prefix = host(DESTINATIONS[flow]);
            self.fib.store(prefix, self.routes[flow]).unwrap();
            self.tell(RouteCommand::Changed(vec![RouteChange { prefix, own: false }]));
            self.tell(moved(flow, NeighbourKnowledge::Known(mac(7))));
        }
        let gate =
            |gate, order| PluginChange::AddGate { gate, position: Position::Early, order: GateOrder(order) };
        let bind = self.bind(1, 1, Action::Accept);
        let changes = self.tables.publish(vec![gate(GATE, 1), gate(FREE_GATE, 2), new_instance(), bind]);
        self.tell(PluginCommand::Change(changes));
        for _ in 0..4 {
            [0, 1].into_iter().for_each(|flow| self.wire.inject(&frame(flow)));
            self.iterate();
        }
        assert_eq!(self.in_force(), BOTH, "both flows are offloaded");
    }

    /// Returns a change that binds an action to a flow's packets.
    pub fn bind(&self, flow: usize, binding: u32, action: Action) -> PluginChange<CompiledExpression> {
        let (binding, gate, call_limits) = (BindingId(binding), GATE, CallLimits::default());
        PluginChange::Bind { binding, gate, filter: filter(flow), priority: 0, action, call_limits }
    }

    /// Returns a command that makes a change of plugins.
    pub fn change(&mut self, change: PluginChange<CompiledExpression>) -> Command {
        PluginCommand::Change(self.tables.publish(vec![change])).into()
    }

    pub fn tell(&mut self, command: impl Into<Command>) {
        assert!(self.link.commands.push(command.into()).is_ok());
        self.iterate();
    }

    pub fn iterate(&mut self) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        self.worker.iterate(now, || now);
    }

    pub fn in_force(&self) -> [bool; 2] {
        self.cache.0.lock().unwrap().in_force()
    }

    /// Returns for each flow whether a declared invalidation ends its entry; `None` if that depends on the
    /// table of neighbours.
    pub fn declared(&self, invalidation: Invalidation<'_>) -> Option<[bool; 2]> {
        let flows = |ends: &dyn Fn(usize) -> bool| [0, 1].map(ends);
        Some(match invalidation {
            Invalidation::Nothing => NEITHER,
            Invalidation::Entries | Invalidation::Records => BOTH,
            Invalidation::Prefixes(changes) => flows(&|flow| {
                let addresses = [SOURCES[flow], DESTINATIONS[flow]].map(IpAddr::V4);
                changes.iter().any(|change| addresses.iter().any(|address| change.prefix.contains(address)))
            }),
            Invalidation::Routes(routes) => {
                let is_used = routes.iter().any(|(number, _)| self.routes.contains(number));
                [is_used; 2]
            }
            Invalidation::Neighbours => return None,
            Invalidation::Plugins(changes) => flows(&|flow| {
                changes.iter().any(|change| match change {
                    PluginChange::Bind { filter, .. } | PluginChange::Unbind { filter, .. } => {
                        filter.filter.alternatives().iter().any(|one| one.may_match_flow(&key(flow)))
                    }
                    PluginChange::Quarantine { .. } => true,
                    _ => false,
                })
            }),
        })
    }
}

pub(super) fn mac(number: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number as u8])
}

pub(super) fn port_settings(device: u16) -> PortSettings {
    let stack = Stack::Kernel { ifindex: u32::from(device) + 1 };
    PortSettings { stack, mac: mac(device), addresses: Vec::new(), ..settings(device, Tags::NONE) }
}

pub(super) fn route(flow: usize) -> Route {
    Route::Forward(NextHops::single(NextHop::new(OUT[flow], Some(GATEWAYS[flow].into()))))
}

pub(super) fn host(address: Ipv4Addr) -> ipnet::IpNet {
    IpAddr::V4(address).into()
}

pub(super) fn key(flow: usize) -> FlowKey {
    FlowKey::v4(SOURCES[flow], DESTINATIONS[flow], Protocol::UDP.0, (1000, 2000), IN)
}

/// Returns a filter that the packets of a flow match.
pub(super) fn filter(flow: usize) -> CompiledExpression {
    let filter: Filter = format!("dst {}/32", DESTINATIONS[flow]).parse().unwrap();
    filter.compile(|_| None).unwrap().into()
}

/// Returns a frame of a flow.
pub(super) fn frame(flow: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, Protocol::UDP.0, 0, 0];
    header.extend([SOURCES[flow], DESTINATIONS[flow]].map(|address| address.octets()).concat());
    let sum = millrace_wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let link = [&mac(0).0[..], &mac(9).0[..], &[8, 0]].concat();
    let ports = [1000_u16, 2000].map(u16::to_be_bytes).concat();
    [link, header, ports, vec![0, 26, 0, 0], vec![0; 18]].concat()
}

pub(super) fn moved(flow: usize, state: NeighbourKnowledge) -> NeighbourCommand {
    NeighbourCommand::Set(vec![NeighbourChange { port: OUT[flow], address: GATEWAYS[flow].into(), state }])
}

pub(super) fn new_instance() -> PluginChange<CompiledExpression> {
    PluginChange::AddInstance { id: INSTANCE, instance: Box::new(Pass) }
}

pub(super) fn nobody<T>() -> ReplyTo<T> {
    sync_channel(1).0
}

pub(super) fn changed(prefix: &str) -> Command {
    RouteCommand::Changed(vec![RouteChange { prefix: prefix.parse().unwrap(), own: false }]).into()
}
