//! Principals at a worker: packets wait for the CPU scheduler, keep their order, and none is lost.

mod accounts;
mod answers;
mod core_functions;
mod core_orders;
mod crashes;
mod hand_overs;
mod held;
mod histories;
mod in_line;
mod made;
mod passed_on;
mod processes;
mod pulled;
mod stage_queues;
mod unbound;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_classify::{CompiledExpression, CompiledSelection, Filter};
use millrace_plugin::{Action, BindingId, CallLimits, GateOrder, Inheritance, PluginChange, Successor};
use millrace_plugin_abi::{Instance, Message, Packets, Position, Progress, Reply, Verdict};
use millrace_port::MemoryHandle;
use millrace_schedule::cpu::{
    CpuFlowAccount, CpuPrincipal, CpuSchedulerKind, CpuSchedulerSettings, CpuShare,
};
use millrace_units::{Cycles, GateId, InstanceId, PrincipalId, QueueId};
use proptest::prelude::*;

use super::*;
use crate::commands::{PluginCommand, PrincipalCommand};
use crate::flow_reports::{FlowPayment, FlowScan};
use crate::gate_tables::GateTables;
use crate::pending::core_settings::CoreSettings;
use crate::pending::for_processor::PrincipalSettings;
use crate::tsc::pretended;

pub(super) const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const GATE: GateId = GateId(1);
/// Gate of the filter that gives all flows a principal.
const LATER: GateId = GateId(2);
/// Binding of this filter.
const GIVER: u32 = 30;
const QUANTUM: Cycles = Cycles(60_000);
/// Offset of the packet number in a frame: after the Ethernet, IPv4 and UDP headers.
const NUMBER: usize = 42;

/// Packets in the order of their calls: the last byte of the destination address, and the packet number.
type Seen = Arc<Mutex<Vec<(u8, u16)>>>;

/// Instance that records packets, uses cycles for each of them, and may suspend each call several times. Each
/// suspended slice uses as many cycles as a packet.
struct Slow {
    cycles: u64,
    suspensions: u32,
    left: u32,
    seen: Seen,
}

/// Records the packets of a call.
fn note(seen: &Seen, packets: &mut Packets<'_>) {
    let mut seen = seen.lock().unwrap();
    packets.for_each(|key, packet| {
        let IpAddr::V4(destination) = key.destination() else { return Verdict::Pass };
        let bytes = packet.data();
        let number = u16::from_be_bytes([bytes[NUMBER], bytes[NUMBER + 1]]);
        seen.push((destination.octets()[3], number));
        Verdict::Pass
    });
}

impl Slow {
    fn finish(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            pretended::pass(self.cycles);
            return Progress::Suspended;
        }
        note(&self.seen, packets);
        pretended::pass(self.cycles * packets.len() as u64);
        Progress::Done
    }
}

impl Instance for Slow {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.left = self.suspensions;
        self.finish(packets)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.finish(packets)
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Worker with a port. Its packets have no route, so the worker drops them after the gates.
pub(super) struct World {
    pub worker: Worker,
    pub wire: MemoryHandle,
    tables: GateTables,
    filters: BTreeMap<u32, CompiledExpression>,
    seen: Seen,
    pub now: Instant,
    sent: u64,
    pub _rest: (WorkerLink, SharedFib),
}

impl World {
    pub fn new() -> Self {
        Self::with_frames(1 << 15)
    }

    /// `frames`: packet memory of the worker.
    fn with_frames(frames: u32) -> Self {
        pretended::begin();
        let fib = SharedFib::new().unwrap();
        let pool = Pool::new(frames).unwrap();
        let (mut worker, link) = Worker::new(pool, fib.reader(), Box::new(NoHost), 1).unwrap();
        let (device, wire) = Memory::new(MAC, 1500);
        worker.add_device(DeviceId(0), Box::new(device));
        let mut world = Self {
            worker,
            wire,
            tables: GateTables::default(),
            filters: BTreeMap::new(),
            seen: Seen::default(),
            now: Instant::from_millis(1),
            sent: 0,
            _rest: (link, fib),
        };
        let port = PortSettings { mac: MAC, addresses: Vec::new(), ..settings(0, Tags::NONE) };
        world.tell(PortCommand::Set(PortId(1), port));
        world.change(PluginChange::AddGate { gate: GATE, position: Position::Early, order: GateOrder(1) });
        world.change(PluginChange::AddGate { gate: LATER, position: Position::Early, order: GateOrder(2) });
        world.set_core(CoreSettings::default());
        world
    }

    pub fn set_core(&mut self, core: CoreSettings) {
        self.set_core_within(core, 0.5);
    }

    /// Configures core with a share of the processor.
    fn set_core_within(&mut self, core: CoreSettings, share: f64) {
        let (reply, answer) = sync_channel(1);
        let settings = CpuSchedulerSettings {
            kind: CpuSchedulerKind::StartTimeFair,
            quantum: QUANTUM,
            frequency: 1_000_000_000,
            capacity: (1e6 * (1.0 - share)) as u32,
        };
        self.tell(PrincipalCommand::Configure(settings, core, reply));
        answer.try_recv().unwrap().unwrap();
    }

    pub fn tell(&mut self, command: impl Into<Command>) {
        self.worker.carry_out(command.into(), self.now);
    }

    fn change(&mut self, change: PluginChange<CompiledExpression>) {
        let changes = self.tables.publish(vec![change]);
        self.tell(PluginCommand::Change(changes));
    }

    pub fn set_principal(&mut self, id: u32, weight: u32, queue: u32) {
        let cpu = CpuPrincipal { share: CpuShare::Weight(weight), limit: None, deadline: None };
        self.set_cpu(id, cpu, queue);
    }

    pub fn set_cpu(&mut self, id: u32, cpu: CpuPrincipal, queue: u32) {
        let (reply, answer) = sync_channel(1);
        self.tell(PrincipalCommand::Set(
            PrincipalId(id),
            PrincipalSettings { cpu, queue, link_queue: QueueId(id as u16) },
            reply,
        ));
        answer.try_recv().unwrap().unwrap();
    }

    /// Adds an instance, and binds it to the packets of a flow.
    pub fn bind(&mut self, number: u32, flow: u8, principal: Option<u32>, (cycles, suspensions): (u64, u32)) {
        let instance = Slow { cycles, suspensions, left: 0, seen: self.seen.clone() };
        self.change(PluginChange::AddInstance {
            id: InstanceId(number as u16),
            instance: Box::new(instance),
        });
        self.rebind(number, flow, principal);
    }

    /// Binds an existing instance to the packets of a flow.
    fn rebind(&mut self, number: u32, flow: u8, principal: Option<u32>) {
        self.bind_instance(number, (number, flow), principal);
    }

    /// Binds an instance to the packets of a further flow.
    fn bind_also(&mut self, instance: u32, (number, flow): (u32, u8), principal: u32) {
        self.bind_instance(instance, (number, flow), Some(principal));
    }

    fn bind_instance(&mut self, instance: u32, (number, flow): (u32, u8), principal: Option<u32>) {
        self.bind_at(GATE, instance, (number, &format!("dst 10.0.0.{flow}/32")), principal);
    }

    fn bind_at(
        &mut self,
        gate: GateId,
        instance: u32,
        (number, filter): (u32, &str),
        principal: Option<u32>,
    ) {
        let filter: CompiledExpression = filter.parse::<Filter>().unwrap().compile(|_| None).unwrap().into();
        self.filters.insert(number, filter.clone());
        let call_limits = CallLimits {
            call: CallLimits::DEFAULT_PAID_CALL,
            principal: principal.map(PrincipalId),
            link_queue: QueueId(principal.unwrap_or_default() as u16),
            ..CallLimits::default()
        };
        self.change(PluginChange::Bind {
            binding: BindingId(number),
            gate,
            filter,
            priority: 0,
            action: Action::Instance(InstanceId(instance as u16)),
            call_limits,
        });
    }

    /// Binds an existing instance to the packets of a flow, with a bound of 1,000 cycles for a packet: its calls run in
    /// line.
    fn bind_in_line(&mut self, number: u32, flow: u8, principal: Option<u32>) {
        let filter = format!("dst 10.0.0.{flow}/32").parse::<Filter>().unwrap();
        let filter: CompiledExpression = filter.compile(|_| None).unwrap().into();
        self.filters.insert(number, filter.clone());
        let principal = principal.map(PrincipalId);
        self.change(PluginChange::Bind {
            binding: BindingId(number),
            gate: GATE,
            filter,
            priority: 0,
            action: Action::Instance(InstanceId(number as u16)),
            call_limits: CallLimits { principal, in_line: Some(1000), ..CallLimits::default() },
        });
    }

    /// Replaces an instance by an equal one, at once or after its call.
    fn upgrade(&mut self, number: u32) {
        let suspensions = if number == 3 { 2 } else { 0 };
        let instance = Slow { cycles: 2000, suspensions, left: 0, seen: self.seen.clone() };
        let successor = Successor::new(vec![Box::new(instance)], Inheritance::Tried, 0, true);
        let (reply, _) = sync_channel(1);
        self.tell(PluginCommand::Replace(InstanceId(number as u16), successor, reply));
    }

    /// Gives all flows a principal by a filter, in place of an earlier one.
    fn give(&mut self, principal: Option<u32>) {
        let mut changes: Vec<_> = self.unbinding(GIVER).into_iter().collect();
        if let Some(principal) = principal.map(PrincipalId) {
            let all = "dst 10.0.0.0/24".parse::<Filter>().unwrap().compile(|_| None).unwrap();
            let filter = CompiledExpression::from(all);
            self.filters.insert(GIVER, filter.clone());
            changes.push(PluginChange::Bind {
                binding: BindingId(GIVER),
                gate: LATER,
                filter,
                priority: 0,
                action: Action::Principal(principal),
                call_limits: CallLimits { principal: Some(principal), ..CallLimits::default() },
            });
        }
        let changes = self.tables.publish(changes);
        self.tell(PluginCommand::Change(changes));
    }

    fn unbinding(&mut self, number: u32) -> Option<PluginChange<CompiledExpression>> {
        let filter = self.filters.remove(&number)?;
        let gate = if number == GIVER { LATER } else { GATE };
        Some(PluginChange::Unbind { binding: BindingId(number), gate, filter })
    }

    fn unbind(&mut self, number: u32) {
        if let Some(change) = self.unbinding(number) {
            self.change(change);
        }
    }

    pub fn send(&mut self, flow: u8, number: u16) {
        self.wire.inject(&frame(flow, number));
        self.sent += 1;
    }

    /// Adds a port with the next number of a device, and returns its wire.
    pub fn add_port(&mut self, device: u16) -> MemoryHandle {
        let (port, wire) = Memory::new(MAC, 1500);
        self.worker.add_device(DeviceId(device), Box::new(port));
        let settings = PortSettings { mac: MAC, addresses: Vec::new(), ..settings(device, Tags::NONE) };
        self.tell(PortCommand::Set(PortId(device + 1), settings));
        wire
    }

    /// Sends a packet to a further port.
    pub fn send_at(&mut self, wire: &MemoryHandle, flow: u8, number: u16) {
        wire.inject(&frame(flow, number));
        self.sent += 1;
    }

    pub fn iterate(&mut self) -> Iteration {
        self.now += Duration::from_micros(100);
        let now = self.now;
        self.worker.iterate(now, || now)
    }

    /// Runs iterations until no packet waits.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            self.iterate();
            if carried(&self.worker.router) == 0 {
                return;
            }
        }
        panic!("{} packets still wait", carried(&self.worker.router));
    }

    pub fn counts(&self) -> BTreeMap<u32, crate::pending::principal_counts::PrincipalCounts> {
        let counts = Snapshot::counters_of(&self.worker.router, self.now).principals;
        counts.into_iter().map(|(id, counts)| (id.0, counts)).collect()
    }

    /// Checks that each packet has left the router, and that each flow kept its order.
    pub fn check(&mut self) {
        self.drain();
        let totals = &self.worker.router.observation.totals;
        assert_eq!((totals.received, totals.dropped), (self.sent, self.sent));
        assert_eq!(self.worker.pool.in_use(), 0);
        let mut last = BTreeMap::new();
        for (flow, number) in self.seen.lock().unwrap().iter() {
            let before = last.insert(*flow, *number);
            assert!(before.is_none_or(|before| before < *number), "flow {flow}: {number} after {before:?}");
        }
    }
}

/// Returns a UDP frame to 10.0.0.`flow` with a packet number.
fn frame(flow: u8, number: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 0, 0, flow];
    let sum = millrace_wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let link = [&MAC.0[..], &[2, 0, 0, 0, 0, 9, 8, 0]].concat();
    let udp = [3, 232, 7, 208, 0, 26, 0, 0];
    [link, header, udp.to_vec(), number.to_be_bytes().to_vec(), vec![0; 16]].concat()
}

#[test]
fn shares_of_busy_principals_follow_their_weights() {
    let mut world = World::new();
    for (id, weight) in [(1, 3), (2, 1)] {
        world.set_principal(id, weight, 1 << 20);
        world.bind(id, id as u8, Some(id), (10_000, 0));
    }
    for number in 0..1000 {
        world.send(1, number);
        world.send(2, number);
    }
    // All packets are received first; then the principals share the processor.
    while world.counts()[&2].used.0 < 2_000_000 {
        world.iterate();
    }
    let counts = world.counts();
    let ratio = counts[&1].used.0 as f64 / counts[&2].used.0 as f64;
    assert!((2.9..3.1).contains(&ratio), "{ratio}: {counts:?}");
    world.check();
}

#[test]
fn plain_packets_do_not_wait_for_busy_principals() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, Some(1), (200_000, 0));
    for number in 0..100 {
        world.send(1, number);
        world.send(9, number);
    }
    world.iterate();
    let waiting = u64::from(world.counts()[&1].waiting);
    assert!((90..=100).contains(&waiting), "{waiting}");
    assert_eq!(world.worker.router.observation.totals.dropped, 200 - waiting);
    let iteration = world.iterate();
    assert_eq!(iteration.next_event, Some(world.now), "the worker must not sleep");
    world.check();
}

#[test]
fn suspended_call_of_one_principal_delays_no_other_principal() {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_principal(id, 1, 1 << 20);
    }
    world.bind(1, 1, Some(1), (0, 200));
    world.bind(2, 2, Some(2), (0, 0));
    for number in 0..20 {
        world.send(1, number);
        world.send(2, number);
    }
    for _ in 0..20 {
        world.iterate();
    }
    assert_eq!(world.counts()[&2].waiting, 0);
    assert!(world.seen.lock().unwrap().iter().filter(|(flow, _)| *flow == 2).count() == 20);
    world.check();
}

#[test]
fn principal_of_a_filter_pays_for_instances_without_one() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, None, (10_000, 0));
    world.give(Some(1));
    (0..100).for_each(|number| world.send(1, number));
    world.iterate();
    assert!(world.counts()[&1].waiting > 50, "{:?}", world.counts());
    world.check();
    assert!(world.counts()[&1].used.0 >= 1_000_000, "{:?}", world.counts());
    // Without the filter, the worker calls the instance at once.
    world.give(None);
    (100..200).for_each(|number| world.send(1, number));
    world.iterate();
    assert_eq!(world.counts()[&1].waiting, 0);
    world.check();
}

#[test]
fn principals_may_share_an_instance() {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_principal(id, 1, 1 << 20);
    }
    world.bind(1, 1, Some(1), (1000, 3));
    world.bind_also(1, (2, 2), 2);
    (0..100).for_each(|number| [1, 2].into_iter().for_each(|flow| world.send(flow, number)));
    world.check();
    assert_eq!(world.seen.lock().unwrap().len(), 200);
}

/// A principal with a small share would hold an instance for seconds.
#[test]
fn principal_that_waits_for_the_call_of_another_one_gives_it_the_processor() {
    let mut world = World::new();
    for (id, weight) in [(1, 1), (2, 1000), (3, 1000)] {
        world.set_principal(id, weight, 1 << 20);
    }
    world.bind(1, 1, Some(1), (50_000, 40));
    world.bind_also(1, (2, 2), 2);
    world.bind(3, 3, Some(3), (50_000, 0));
    world.send(1, 0);
    world.iterate();
    (0..500).for_each(|number| world.send(3, number));
    world.send(2, 0);
    let is_seen = |world: &World, flow: u8| world.seen.lock().unwrap().iter().any(|(seen, _)| *seen == flow);
    let iterations = (0..200).find(|_| {
        world.iterate();
        is_seen(&world, 2)
    });
    assert!(iterations.is_some() && world.counts()[&3].waiting > 0);
    // Each call is charged to the principal that made it.
    for id in [1, 2] {
        assert!(world.counts()[&id].used.0.abs_diff(41 * 50_000) < 50_000, "{:?}", world.counts());
    }
    world.check();
}

#[test]
fn waiting_packets_of_a_removed_principal_continue_in_their_order() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, Some(1), (200_000, 0));
    (0..50).for_each(|number| world.send(1, number));
    world.iterate();
    assert!(world.counts()[&1].waiting > 40, "{:?}", world.counts());
    world.unbind(1);
    world.tell(PrincipalCommand::Remove(PrincipalId(1)));
    assert!(world.counts().get(&1).is_none_or(|gone| gone.waiting == 0), "{:?}", world.counts());
    world.check();
}
