//! Workers of the tests, with an instance that records packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_classify::{CompiledExpression, Filter};
use millrace_connection::{ConnectionConfig, ConnectionTable};
use millrace_forward::{NextHop, NextHops, Route};
use millrace_plugin::{Action, BindingId, CallLimits, ConnectionStates, GateOrder, PluginChange};
use millrace_plugin_abi::{
    ConnectionStatus, FlowEnd, Instance, Message, Packets, Position, Progress, Reply, StateScope, Verdict,
};
use millrace_port::MemoryHandle;
use millrace_units::{GateId, InstanceId};

use super::super::*;
use super::frames::{ACK, Ends, SYN, tcp};
use super::{MAC, config};
use crate::commands::{ConnectionCommand, NeighbourCommand, PluginCommand};
use crate::connections::ConnectionCounts;
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge};
use crate::gate_tables::GateTables;
use crate::handover::{Handover, HandoverRings};

pub const GATE: GateId = GateId(1);
pub const LATE: GateId = GateId(2);
pub const INSTANCE: InstanceId = InstanceId(3);
/// Destination port of the packets that instances drop.
pub const DENIED: u16 = 81;
/// Bytes of the instances' states.
const STATE: usize = 12;

/// Packet that an instance has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub worker: usize,
    pub status: ConnectionStatus,
    pub is_reply: bool,
    /// Number of earlier packets that the state counts; `None` without state.
    pub earlier: Option<u64>,
}

#[derive(Default, Debug)]
pub struct Log {
    pub seen: Vec<Seen>,
    /// Ended connections or flows: key, packets, and packets that the state counts.
    pub ended: Vec<(FlowKey, u64, Option<u64>)>,
}

/// Instance that records packets, counts them in the state, and drops those to [`DENIED`]. Each call takes a number of further slices.
struct Watcher {
    worker: usize,
    scope: StateScope,
    suspensions: u32,
    left: u32,
    log: Arc<Mutex<Log>>,
}

impl Watcher {
    fn finish(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            return Progress::Suspended;
        }
        for place in 0..packets.len() {
            let connection = packets.connection(place);
            let earlier = packets.state_mut(place).map(|state| {
                let count = u64::from_le_bytes(state[..8].try_into().unwrap());
                state[..8].copy_from_slice(&(count + 1).to_le_bytes());
                count
            });
            let (worker, status) = (self.worker, connection.status);
            let seen = Seen { worker, status, is_reply: connection.is_reply, earlier };
            self.log.lock().unwrap().seen.push(seen);
            let is_denied = packets.get_mut(place).0.destination_port == DENIED;
            packets.set_verdict(place, if is_denied { Verdict::Drop(0) } else { Verdict::Pass });
        }
        Progress::Done
    }
}

impl Instance for Watcher {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.left = self.suspensions;
        self.finish(packets)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.finish(packets)
    }

    fn flow_state(&self) -> usize {
        STATE
    }

    fn state_scope(&self) -> StateScope {
        self.scope
    }

    fn flow_ended(&mut self, flow: &FlowEnd, state: &[u8]) -> Progress {
        let count = state.first_chunk().copied().map(u64::from_le_bytes);
        self.log.lock().unwrap().ended.push((flow.key, flow.packets, count));
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// One or two workers, with a port and a gateway each for clients and servers.
pub struct World {
    pub members: Vec<(Worker, WorkerLink, GateTables)>,
    /// Wires of the clients' port and the servers' port.
    pub wires: [MemoryHandle; 2],
    pub logs: BTreeMap<u16, Arc<Mutex<Log>>>,
    now: Instant,
    pub sent: u64,
    maximum: u32,
    _fib: SharedFib,
}

impl World {
    pub fn new(workers: usize, config: ConnectionConfig) -> Self {
        let mut fib = SharedFib::new().unwrap();
        let ends = HandoverRings::mesh(&vec![None; workers]).into_iter().map(Some);
        let ends: Vec<Option<HandoverRings>> = if workers > 1 { ends.collect() } else { vec![None] };
        let members = ends.into_iter().map(|end| {
            let pool = Pool::new(1 << 12).unwrap();
            let (mut worker, link) = Worker::new(pool, fib.reader(), Box::new(NoHost), 1).unwrap();
            if let Some(end) = end {
                worker.join(end);
            }
            (worker, link, GateTables::default())
        });
        let mut members: Vec<_> = members.collect();
        let wires = [0, 1].map(|device| {
            let (port, wire) = Memory::new(MAC, 1500);
            let owner = Handover::owner(DeviceId(device), workers);
            members[owner].0.add_device(DeviceId(device), Box::new(port));
            wire.count_only(true);
            wire
        });
        let routes = [0, 1].map(|side: u8| {
            let hop = NextHop::new(PortId(u16::from(side) + 1), Some([10, 9, side, 2].into()));
            let route = Route::Forward(NextHops::single(hop));
            let number = fib.intern(route.clone()).0;
            fib.store(format!("10.0.{side}.0/24").parse().unwrap(), number).unwrap();
            (number, route)
        });
        let (now, maximum) = (Instant::from_millis(1_000_000), config.maximum);
        let mut world = Self { members, wires, logs: BTreeMap::new(), now, sent: 0, maximum, _fib: fib };
        for worker in 0..workers {
            for device in [0, 1] {
                let port = PortSettings { mac: MAC, addresses: Vec::new(), ..settings(device, Tags::NONE) };
                world.tell(worker, PortCommand::Set(PortId(device + 1), port));
            }
            world.tell(worker, RouteCommand::Set(routes.to_vec(), sync_channel(1).0));
            for side in [0_u8, 1] {
                let address = [10, 9, side, 2].into();
                let (port, state) = (PortId(u16::from(side) + 1), NeighbourKnowledge::Known(MAC));
                world.tell(worker, NeighbourCommand::Set(vec![NeighbourChange { port, address, state }]));
            }
            let table = ConnectionTable::new(&config, Instant::ZERO).unwrap();
            world.tell(worker, ConnectionCommand::Begin(Box::new(table)));
            for (gate, position) in [(GATE, Position::Early), (LATE, Position::Late)] {
                world.change(worker, PluginChange::AddGate { gate, position, order: GateOrder(1) });
            }
        }
        world
    }

    /// Returns a world with an instance whose state belongs to connections.
    pub fn watched(workers: usize) -> Self {
        let mut world = Self::new(workers, config());
        world.add(INSTANCE, StateScope::Connection, 0);
        world.bind(GATE, INSTANCE);
        world
    }

    pub fn tell(&mut self, worker: usize, command: impl Into<Command>) {
        let now = self.now;
        self.members[worker].0.carry_out(command.into(), now);
    }

    pub fn change(&mut self, worker: usize, change: PluginChange<CompiledExpression>) {
        let changes = self.members[worker].2.publish(vec![change]);
        self.tell(worker, PluginCommand::Change(changes));
    }

    pub fn watcher(
        &mut self,
        id: InstanceId,
        worker: usize,
        scope: StateScope,
        suspensions: u32,
    ) -> Box<dyn Instance> {
        let log = self.logs.entry(id.0).or_default().clone();
        Box::new(Watcher { worker, scope, suspensions, left: 0, log })
    }

    pub fn add(&mut self, id: InstanceId, scope: StateScope, suspensions: u32) {
        for worker in 0..self.members.len() {
            let instance = self.watcher(id, worker, scope, suspensions);
            if scope == StateScope::Connection {
                self.give_states(worker, id);
            }
            self.change(worker, PluginChange::AddInstance { id, instance });
        }
    }

    pub fn give_states(&mut self, worker: usize, id: InstanceId) {
        let states = ConnectionStates::new(STATE, self.maximum).unwrap();
        self.change(worker, PluginChange::GiveStates { id, states });
    }

    pub fn unbind(&mut self, gate: GateId, id: InstanceId) {
        for worker in 0..self.members.len() {
            let filter = "dst 10.0.0.0/8".parse::<Filter>().unwrap().compile(|_| None).unwrap();
            let binding = BindingId(id.0.into());
            self.change(worker, PluginChange::Unbind { binding, gate, filter: filter.into() });
        }
    }

    pub fn bind(&mut self, gate: GateId, id: InstanceId) {
        for worker in 0..self.members.len() {
            let filter = "dst 10.0.0.0/8".parse::<Filter>().unwrap().compile(|_| None).unwrap();
            self.change(
                worker,
                PluginChange::Bind {
                    binding: BindingId(id.0.into()),
                    gate,
                    filter: filter.into(),
                    priority: 0,
                    action: Action::Instance(id),
                    call_limits: CallLimits::default(),
                },
            );
        }
    }

    /// Sends a frame: clients at the first port, servers at the second.
    pub fn send(&mut self, frame: &[u8]) {
        let is_client = frame[28] == 0;
        self.wires[usize::from(!is_client)].inject(frame);
        self.sent += 1;
        self.drain();
    }

    /// Sends frames of one side in a batch.
    pub fn send_together(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.wires[usize::from(frame[28] != 0)].inject(frame);
            self.sent += 1;
        }
        self.drain();
    }

    /// Sends frames, each in an iteration of its own.
    pub fn send_in_turn(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.wires[usize::from(frame[28] != 0)].inject(frame);
            self.sent += 1;
            self.iterate();
        }
        self.drain();
    }

    pub fn iterate(&mut self) {
        self.now += Duration::from_micros(100);
        let now = self.now;
        self.members.iter_mut().for_each(|(worker, ..)| _ = worker.iterate(now, || now));
    }

    pub fn drain(&mut self) {
        for _ in 0..1000 {
            self.iterate();
            let waiting = self.members.iter().map(|(worker, ..)| carried(&worker.router));
            let arriving: u64 = self.wires.iter().map(|wire| wire.counters().held).sum();
            if arriving == 0 && waiting.fold(0, u64::wrapping_add) == 0 {
                return;
            }
        }
        panic!("packets still wait");
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        // The search for expired connections is bounded in each iteration.
        (0..100).for_each(|_| self.iterate());
    }

    /// Removes and returns the packets that an instance has seen: status, direction, and earlier packets.
    pub fn seen_at(&mut self, id: InstanceId) -> Vec<(ConnectionStatus, bool, Option<u64>)> {
        let seen = std::mem::take(&mut self.logs[&id.0].lock().unwrap().seen);
        seen.into_iter().map(|Seen { status, is_reply, earlier, .. }| (status, is_reply, earlier)).collect()
    }

    /// Removes and returns the packets that the instance has seen.
    pub fn seen_at_workers(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.logs[&INSTANCE.0].lock().unwrap().seen)
    }

    pub fn seen(&mut self) -> Vec<(ConnectionStatus, bool, Option<u64>)> {
        self.seen_at(INSTANCE)
    }

    pub fn ended(&mut self) -> Vec<(FlowKey, u64, Option<u64>)> {
        std::mem::take(&mut self.logs[&INSTANCE.0].lock().unwrap().ended)
    }

    pub fn drops(&self, reason: DropReason) -> u64 {
        let ports = |(worker, ..): &(Worker, WorkerLink, GateTables)| -> u64 {
            let ports = worker.router.ports.iter();
            ports.map(|(_, entry)| entry.count.drops.get(reason)).sum()
        };
        self.members.iter().map(ports).sum()
    }

    pub fn counts(&self) -> ConnectionCounts {
        let mut sum = Snapshot::default();
        for (worker, ..) in &self.members {
            sum.merge(Snapshot::counters_of(&worker.router, self.now));
        }
        sum.connections
    }

    /// Checks conservation.
    pub fn check(&mut self) {
        self.drain();
        let mut sum = Snapshot::default();
        for (worker, ..) in &self.members {
            assert_eq!(worker.pool.in_use(), 0);
            sum.merge(Snapshot::counters_of(&worker.router, self.now));
        }
        assert_eq!((sum.totals.received, sum.totals.unaccounted()), (self.sent, 0), "{:?}", sum.totals);
        assert_eq!(sum.totals.handed, sum.totals.taken);
    }

    /// Sends the packets that establish a TCP connection.
    pub fn connect(&mut self, ends: Ends) {
        self.send(&tcp(ends, SYN, (100, 0)));
        self.send(&tcp(ends.turned(), SYN | ACK, (500, 101)));
        self.send(&tcp(ends, ACK, (101, 501)));
    }
}
