//! Property test: moves of a service between offload, worker, host and single workers lose no packet, count each
//! packet once, and keep the order of each flow.
//!
//! The flow cache and its XDP program are simulated. A service at the host is an instance whose calls take several
//! iterations, like calls of a plugin process. At other levels, calls may take several iterations, too, and some
//! packets go up to the worker whatever the level. Each worker carries out a move at another time. When a service gets
//! another worker, packets on their way to the former one may be overtaken. So the test lets them leave first.

mod cache;
mod flows;
mod paid;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use millrace_classify::CompiledExpression;
use millrace_forward::Route;
use millrace_plugin::{BindingId, GateOrder, Inheritance, LoadedVariant, PluginChange, Successor};
use millrace_plugin_abi::{Instance, Position};
use millrace_port::MemoryHandle;
use proptest::prelude::*;

use self::cache::{Cache, Offload, Way};
use self::flows::*;
use self::service::{NoMemory, Ran, Service};
use super::*;
use crate::commands::{NeighbourCommand, OffloadCommand, PluginCommand};
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge};
use crate::gate_tables::GateTables;
use crate::handover::{Handover, HandoverRings};
use crate::offloaded_flows::OffloadPort;
use crate::ports::Stack;

const FLOWS: u8 = 6;
/// Devices: the flows arrive by the first two, and leave by the others.
const DEVICES: u16 = 4;
const PATIENCE: usize = 10_000;
/// Time of the service's eBPF variant for a packet.
const VARIANT: Duration = Duration::from_micros(15);

/// Level of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Offload,
    Worker,
    /// Each call takes this number of further iterations.
    Host(u8),
}

#[derive(Clone, Debug)]
enum Step {
    /// Packets of a flow arrive.
    Send(u8, u8),
    /// A packet of a flow arrives that the XDP program can't treat.
    Up(u8),
    /// Each call takes this number of further iterations at least.
    Slow(u8),
    /// A worker runs iterations.
    Iterate(usize, u8),
    /// All workers run iterations, which is time enough to offload flows.
    Rest,
    /// The service moves. Workers take the move up in their next iterations.
    Move(At),
    /// The service moves, and moves back before any worker takes it up: a move that fails in the middle.
    Undo(At),
    /// One worker takes a move up, the other one doesn't; then the service moves back: a worker that is silent.
    Silent(At, usize),
    /// The service gets another worker, or all of them.
    Pin(Option<u16>),
    /// The next call is a fault.
    Fault,
}

fn any_level() -> impl Strategy<Value = At> {
    prop_oneof![3 => Just(At::Offload), 2 => Just(At::Worker), 2 => (1..6_u8).prop_map(At::Host)]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (0..FLOWS, 1..9_u8).prop_map(|(flow, count)| Step::Send(flow, count)),
        10 => (0..2_usize, 1..5_u8).prop_map(|(worker, count)| Step::Iterate(worker, count)),
        3 => (0..FLOWS).prop_map(Step::Up),
        2 => (0..4_u8).prop_map(Step::Slow),
        4 => Just(Step::Rest),
        3 => any_level().prop_map(Step::Move),
        1 => any_level().prop_map(Step::Undo),
        1 => (any_level(), 0..2_usize).prop_map(|(level, worker)| Step::Silent(level, worker)),
        1 => prop::option::of(0..2_u16).prop_map(Step::Pin),
        1 => Just(Step::Fault),
    ];
    prop::collection::vec(step, 1..80)
}

/// Worker with control's end of it, and its own gate tables.
struct Member {
    worker: Worker,
    link: WorkerLink,
    tables: GateTables,
}

/// Router of one or two workers with a service for all flows.
struct World {
    members: Vec<Member>,
    offload: Offload,
    /// Far ends of the devices, by device.
    wires: Vec<MemoryHandle>,
    level: At,
    pin: Option<u16>,
    ran: Ran,
    slow: Arc<AtomicU8>,
    fails: Arc<AtomicBool>,
    /// Number of packets of each flow so far.
    sent: BTreeMap<u8, u16>,
    /// Packets in the order in which they left.
    left: Vec<Known>,
    now: Instant,
    has_failed: bool,
    _fib: SharedFib,
}

impl World {
    fn new(workers: usize) -> Self {
        let mut fib = SharedFib::new().unwrap();
        let offload = Offload::new(workers);
        let ends = HandoverRings::mesh(&vec![None; workers]).into_iter().map(Some);
        let ends: Vec<Option<HandoverRings>> = if workers > 1 { ends.collect() } else { vec![None] };
        let mut members: Vec<Member> = ends
            .into_iter()
            .map(|end| {
                let pool = Pool::new(4096).unwrap();
                let (mut worker, link) = Worker::new(pool, fib.reader(), Box::new(NoHost), 1).unwrap();
                if let Some(end) = end {
                    worker.join(end);
                }
                Member { worker, link, tables: GateTables::default() }
            })
            .collect();
        let wires = (0..DEVICES).map(|device| {
            let (memory, wire) = Memory::new(mac(device), 1500);
            let owner = Handover::owner(DeviceId(device), workers);
            members[owner].worker.add_device(DeviceId(device), Box::new(memory));
            wire
        });
        let wires = wires.collect();
        let routes: Vec<_> = (0..2).map(|out| fib.intern(route(out)).0).collect();
        for flow in 0..FLOWS {
            let prefix = IpAddr::from(destination(flow)).into();
            fib.store(prefix, routes[usize::from(flow % 2)]).unwrap();
        }
        let mut world = Self {
            members,
            offload,
            wires,
            level: At::Worker,
            pin: None,
            ran: Ran::default(),
            slow: Arc::default(),
            fails: Arc::default(),
            sent: BTreeMap::new(),
            left: Vec::new(),
            now: Instant::from_millis(1),
            has_failed: false,
            _fib: fib,
        };
        let numbered: Vec<_> = routes.into_iter().zip((0..2).map(route)).collect();
        (0..world.members.len()).for_each(|worker| world.set_up(worker, numbered.clone()));
        world.drain();
        world
    }

    /// Gives a worker its ports, routes, neighbours and the service.
    fn set_up(&mut self, worker: usize, routes: Vec<(millrace_units::NextHopIndex, Route)>) {
        let cache = Cache::of(&self.offload, worker);
        self.tell(worker, OffloadCommand::SetCache(Box::new(cache)));
        for device in 0..DEVICES {
            let stack = Stack::Kernel { ifindex: u32::from(device) + 1 };
            let bare = settings(device, Tags::NONE);
            let port = PortSettings { stack, mac: mac(device), addresses: Vec::new(), ..bare };
            let id = PortId(device + 1);
            self.tell(worker, PortCommand::Set(id, port));
            let can = OffloadPort { receives: true, sends: true, receive_queues: 1, queues: false };
            self.tell(worker, OffloadCommand::SetPort(id, can));
        }
        self.tell(worker, RouteCommand::Set(routes, sync_channel(1).0));
        for out in 0..2 {
            let state = NeighbourKnowledge::Known(mac(9));
            let change = NeighbourChange { port: out_port(out), address: gateway(out).into(), state };
            self.tell(worker, NeighbourCommand::Set(vec![change]));
        }
        let instance = self.service(worker, 0);
        let gate = PluginChange::AddGate { gate: GATE, position: Position::Early, order: GateOrder(1) };
        self.change(worker, gate);
        self.change(worker, PluginChange::AddInstance { id: INSTANCE, instance });
        self.change(worker, bind(None));
    }

    fn service(&self, worker: usize, takes: u8) -> Box<dyn Instance> {
        let (ran, slow, fails) = (self.ran.clone(), self.slow.clone(), self.fails.clone());
        Box::new(Service { worker, takes, slow, left: 0, failed: false, ran, fails })
    }

    /// Sends a command to a worker, which runs iterations until its ring has room.
    fn tell(&mut self, worker: usize, command: impl Into<Command>) {
        assert!(self.members[worker].link.commands.push(command.into()).is_ok());
        if self.members[worker].link.commands.slots() < 8 {
            self.iterate(worker);
        }
    }

    fn change(&mut self, worker: usize, change: PluginChange<CompiledExpression>) {
        let changes = self.members[worker].tables.publish(vec![change]);
        self.tell(worker, PluginCommand::Change(changes));
    }

    fn iterate(&mut self, worker: usize) {
        self.now += Duration::from_micros(100);
        let now = self.now;
        self.members[worker].worker.iterate(now, || now);
        for out in [2, 3] {
            self.left.extend(self.wires[out].take_transmitted().iter().map(|frame| known(frame)));
        }
    }

    /// Receives packets of a flow. The XDP program sends packets of an offloaded flow at once.
    fn send(&mut self, flow: u8, count: u8) {
        for _ in 0..count {
            let number = self.sent.entry(flow).or_default();
            *number += 1;
            let packet = (flow, *number);
            match self.offload.receive(&key(flow)) {
                Way::Offloaded => self.left.push(packet),
                Way::Worker => self.wires[usize::from(flow % 2)].inject(&frame(packet)),
            }
        }
    }

    /// Receives a packet of a flow that the XDP program can't treat.
    fn pass_up(&mut self, flow: u8) {
        let number = self.sent.entry(flow).or_default();
        *number += 1;
        self.offload.pass_up(&key(flow));
        self.wires[usize::from(flow % 2)].inject(&frame((flow, *number)));
    }

    /// Sends a worker the commands that move the service to a level.
    fn tell_level(&mut self, worker: usize, from: At, to: At) {
        let variant = |is_asked| LoadedVariant {
            place: 0,
            instructions: 10,
            time: VARIANT,
            memory: Arc::new(NoMemory),
            is_asked,
        };
        let set = |variant| OffloadCommand::SetVariant(INSTANCE, variant);
        let takes = |level| if let At::Host(takes) = level { takes } else { 0 };
        if to != At::Offload {
            self.tell(worker, set(None));
        }
        if takes(from) != takes(to) {
            let contexts = vec![self.service(worker, takes(to))];
            let inheritance = Inheritance::Tried;
            let successor = Successor::new(contexts, inheritance, 0, true);
            self.tell(worker, PluginCommand::Replace(INSTANCE, successor, sync_channel(1).0));
        }
        if to == At::Offload {
            self.tell(worker, set(Some(variant(true))));
        }
    }

    /// Moves the service to a level, unless it is pinned to a worker and can't be there.
    fn move_to(&mut self, to: At) {
        if self.pin.is_some() && to == At::Offload {
            return;
        }
        let from = std::mem::replace(&mut self.level, to);
        (0..self.members.len()).for_each(|worker| self.tell_level(worker, from, to));
    }

    fn happen(&mut self, step: &Step) {
        let workers = self.members.len();
        match *step {
            Step::Send(flow, count) => self.send(flow, count),
            Step::Up(flow) => self.pass_up(flow),
            Step::Slow(takes) => self.slow.store(takes, Ordering::Relaxed),
            Step::Iterate(worker, count) => (0..count).for_each(|_| self.iterate(worker % workers)),
            Step::Rest => (0..12 * workers).for_each(|iteration| self.iterate(iteration % workers)),
            Step::Move(to) => self.move_to(to),
            Step::Undo(to) => {
                let from = self.level;
                self.move_to(to);
                self.move_to(from);
            }
            Step::Silent(to, silent) => {
                let from = self.level;
                self.move_to(to);
                (0..workers)
                    .filter(|worker| *worker != silent % workers)
                    .for_each(|worker| self.iterate(worker));
                self.move_to(from);
            }
            Step::Pin(to) if to.is_none_or(|to| usize::from(to) < workers) => self.pin(to),
            Step::Pin(_) => {}
            Step::Fault => {
                self.fails.store(true, Ordering::Relaxed);
                self.has_failed = true;
            }
        }
    }

    /// Runs the service at one worker, or at all.
    fn pin(&mut self, to: Option<u16>) {
        self.drain();
        if to.is_some() && self.level == At::Offload {
            self.move_to(At::Worker);
        }
        for worker in 0..self.members.len() {
            self.change(worker, bind(to).in_place());
        }
        self.drain();
        self.check_pin();
        self.pin = to;
    }

    /// Checks that the service has run only at its worker since the last check.
    fn check_pin(&mut self) {
        let ran = std::mem::take(&mut *self.ran.lock().unwrap());
        if let Some(pin) = self.pin {
            assert!(ran.iter().all(|worker| *worker == usize::from(pin)), "pinned to {pin}, ran at {ran:?}");
        }
    }

    /// Runs iterations until all commands are carried out and no packet is left.
    fn drain(&mut self) {
        for _ in 0..PATIENCE {
            (0..self.members.len()).for_each(|worker| self.iterate(worker));
            let is_quiet = self.members.iter().all(|member| {
                member.link.commands.slots() == COMMAND_CAPACITY && member.worker.pool.in_use() == 0
            });
            let arriving: u64 = self.wires.iter().map(|wire| wire.counters().held).sum();
            if is_quiet && arriving == 0 && self.on_the_way() == 0 {
                return;
            }
        }
        panic!("packets still wait: {} between workers", self.on_the_way());
    }

    /// Returns the number of packets that wait in a worker or between the workers.
    fn on_the_way(&self) -> u64 {
        self.members.iter().fold(0, |sum, member| sum.wrapping_add(carried(&member.worker.router)))
    }

    /// Checks conservation, and the order of each flow.
    fn check(&mut self) {
        self.fails.store(false, Ordering::Relaxed);
        self.drain();
        self.check_pin();
        let totals = self.members.iter().map(|member| &member.worker.router.observation.totals);
        let dropped: u64 = totals.clone().map(|totals| totals.dropped).sum();
        let (handed, taken): (Vec<u64>, Vec<u64>) =
            totals.map(|totals| (totals.handed, totals.taken)).unzip();
        assert_eq!(handed.iter().sum::<u64>(), taken.iter().sum::<u64>());
        let sent: u64 = self.sent.values().map(|count| u64::from(*count)).sum();
        assert_eq!(sent, self.left.len() as u64 + dropped, "each packet leaves or is dropped, once");
        assert!(dropped == 0 || self.has_failed, "{dropped} packets are lost without a fault");
        let mut last = BTreeMap::new();
        for (flow, number) in &self.left {
            let before = last.insert(*flow, *number);
            assert!(before.is_none_or(|before| before < *number), "flow {flow}: {number} after {before:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..Default::default() })]

    #[test]
    fn moves_of_a_service_lose_no_packet_and_keep_the_order_of_each_flow(
        workers in 1..=2_usize, steps in any_steps(),
    ) {
        let mut world = World::new(workers);
        steps.iter().for_each(|step| world.happen(step));
        world.check();
    }
}

#[test]
fn service_moves_to_the_offload_and_back_under_traffic() {
    let mut world = World::new(2);
    let run = |world: &mut World| {
        for _ in 0..20 {
            (0..FLOWS).for_each(|flow| world.send(flow, 2));
            // The XDP program sends packets of a flow when the workers are done with its earlier ones.
            (0..20).for_each(|iteration| world.iterate(iteration % 2));
        }
    };
    run(&mut world);
    assert_eq!(world.offload.offloaded(), 0);
    world.move_to(At::Offload);
    run(&mut world);
    let offloaded = world.offload.offloaded();
    assert!(offloaded > 0, "flows are offloaded");
    for level in [At::Worker, At::Host(3)] {
        world.move_to(level);
        (0..2).for_each(|worker| world.iterate(worker));
        let before = world.offload.offloaded();
        run(&mut world);
        assert_eq!(world.offload.offloaded(), before, "{level:?}");
    }
    world.check();
}

/// Sends packets of a flow one by one, with time to offload the flow. Returns the number of packets that the XDP
/// program has sent so far.
fn send_slowly(world: &mut World, packets: u8) -> u64 {
    for _ in 0..packets {
        world.send(0, 1);
        (0..4).for_each(|_| world.iterate(0));
    }
    world.offload.offloaded()
}

/// The call with the first packet takes longer than a grace period.
#[test]
fn packets_of_an_offloaded_flow_do_not_overtake_one_that_waits_at_the_worker() {
    let mut world = World::new(1);
    world.move_to(At::Offload);
    let before = send_slowly(&mut world, 20);
    assert!(before > 10, "{before}");
    world.slow.store(10, Ordering::Relaxed);
    world.pass_up(0);
    world.iterate(0);
    world.slow.store(0, Ordering::Relaxed);
    assert!(send_slowly(&mut world, 20) > before + 5, "the flow is offloaded again");
    world.check();
}

/// Each upcall waits, so the flow loses its entry each time, and gets it again with the next packet.
#[test]
fn flow_whose_upcalls_wait_returns_to_the_worker_for_a_while() {
    let mut world = World::new(1);
    world.move_to(At::Offload);
    let first = send_slowly(&mut world, 20);
    assert!(first > 10, "{first}");
    for _ in 0..300 {
        world.slow.store(3, Ordering::Relaxed);
        world.pass_up(0);
        (0..30).for_each(|_| world.iterate(0));
        world.slow.store(0, Ordering::Relaxed);
        world.send(0, 1);
        (0..30).for_each(|_| world.iterate(0));
    }
    let before = world.offload.offloaded();
    assert_eq!(send_slowly(&mut world, 20), before);
    world.check();
}

#[test]
fn pinned_service_runs_at_its_worker_only() {
    let mut world = World::new(2);
    let run = |world: &mut World| {
        (0..FLOWS).for_each(|flow| world.send(flow, 3));
        world.drain();
        std::mem::take(&mut *world.ran.lock().unwrap())
    };
    assert_eq!(run(&mut world), BTreeSet::from([0, 1]));
    for worker in [0, 1] {
        world.pin(Some(worker));
        assert_eq!(run(&mut world), BTreeSet::from([usize::from(worker)]));
        world.move_to(At::Host(2));
        assert_eq!(run(&mut world), BTreeSet::from([usize::from(worker)]));
    }
    world.pin(None);
    assert_eq!(run(&mut world), BTreeSet::from([0, 1]));
    world.check();
}
