//! A router between two ports in memory, with routes and a neighbour, and the packets that go through it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ipnet::IpNet;
use millrace_classify::{CompiledFilter, Filter};
use millrace_forward::{NextHop, NextHops, Route, SharedFib};
use millrace_packet::{Batch, FlowKey, Pool};
use millrace_pipeline::{
    Command, DeviceId, GateTables, MOST_TRACED, NeighbourChange, NeighbourKnowledge, NoHost, Options,
    PortSettings, ReversePath, RouteChange, Snapshot, Stack, Tags, TraceOrder, TraceSource, Worker,
    WorkerLink, trace,
};
use millrace_plugin::{BindingId, PluginChange, PluginControlUnit, Terms};
use millrace_port::Port;
use millrace_port::memory::Generator;
use millrace_schedule::{FlowQueuesSettings, NodeKind};
use millrace_testkit::classbench;
use millrace_units::{Instant, PortId};
use millrace_wire::MacAddr;
use rtrb::{Producer, PushError};

mod asked;

use super::case::{Case, Family};
use crate::BenchError;
use crate::frame::UdpFrame;

const IN: (DeviceId, PortId) = (DeviceId(0), PortId(0));
const OUT: (DeviceId, PortId) = (DeviceId(1), PortId(1));
pub(crate) const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const OUT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const NEXT_HOP_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub(crate) const MTU: u16 = 1500;
/// Frames of packet memory.
const FRAMES: u32 = 4096;
/// Routes in the table unless it is said otherwise.
const ROUTES: u32 = 1000;
/// Parts of the route table that may wait to be used again before the worker is asked whether it has gone on.
const WAITING: usize = 1024;
/// What packets are: UDP, for a service that takes all and says nothing.
const UDP: u8 = 17;
const DISCARD: u16 = 9;
/// How far the virtual clock moves on with each round.
const STEP: Duration = Duration::from_micros(10);

/// What the packets of a case meet on their way, and how they follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    /// The gates.
    pub gates: GatesSetup,
    /// Packets of a flow that come in one go, with those of [`ABREAST`] others.
    pub flow_packets: u32,
    /// Flows that the router remembers at most; 0 for none.
    pub flows_max: u32,
    /// Further flows, which have every fourth packet.
    pub established: u32,
    /// New flows that are classified in a batch when much comes.
    pub new_flows: u16,
    /// Routes in the table, of 24 bits (IPv6: 64): all over one next hop, and flows go to all of them.
    pub routes: u32,
    /// Where packets wait before they leave.
    pub queue: QueueSetup,
    /// One in so many packets is traced; 0 for none.
    pub traced: u32,
}

/// The queue of the port that packets leave by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueSetup {
    /// That of the port: first in, first out.
    Fifo,
    /// A scheduler with a queue for each flow, by deficit round robin.
    PerFlow,
}

/// The gates of a router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GatesSetup {
    /// None at all.
    None,
    /// Three, at which nothing is bound.
    Empty,
    /// Three, at each of which every flow is bound to an instance of `null`.
    Null,
    /// Three, each with so many filters in the style of access lists, bound to `null`.
    Filters(usize),
}

/// Flows whose packets come between each other's.
pub(crate) const ABREAST: usize = 64;

impl Default for Setup {
    fn default() -> Self {
        Self {
            gates: GatesSetup::None,
            flow_packets: 1,
            flows_max: 1 << 20,
            established: 0,
            new_flows: u16::MAX,
            routes: ROUTES,
            queue: QueueSetup::Fifo,
            traced: 0,
        }
    }
}

impl Setup {
    /// A word that [`of_word`](Self::of_word) reads: gates, packets of a flow, most flows, routes, queue and traces.
    /// Floods have none.
    pub fn word(self) -> String {
        let gates = match self.gates {
            GatesSetup::None => "none".to_owned(),
            GatesSetup::Empty => "empty".to_owned(),
            GatesSetup::Null => "null".to_owned(),
            GatesSetup::Filters(count) => count.to_string(),
        };
        let queue = if self.queue == QueueSetup::Fifo { "fifo" } else { "perflow" };
        let Self { flow_packets, flows_max, routes, traced, .. } = self;
        format!("{gates}-{flow_packets}-{flows_max}-{routes}-{queue}-{traced}")
    }

    /// The setup of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        let mut words = word.split('-');
        let gates = match words.next()? {
            "none" => GatesSetup::None,
            "empty" => GatesSetup::Empty,
            "null" => GatesSetup::Null,
            count => GatesSetup::Filters(count.parse().ok()?),
        };
        let (flow_packets, flows_max) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let routes = words.next()?.parse().ok()?;
        let queue = match words.next()? {
            "fifo" => QueueSetup::Fifo,
            "perflow" => QueueSetup::PerFlow,
            _ => return None,
        };
        let traced = words.next()?.parse().ok()?;
        let setup = Self { gates, flow_packets, flows_max, routes, queue, traced, ..Self::default() };
        words.next().is_none().then_some(setup)
    }
}

/// The packets' source alone, without a router: what is subtracted.
pub(crate) struct Source {
    generator: Generator,
    pool: Pool,
    batch: Batch,
}

impl Source {
    pub fn with(case: Case, setup: Setup) -> Result<Self, BenchError> {
        Self::of(generator(case, setup))
    }

    /// What a generator makes.
    pub fn of(generator: Generator) -> Result<Self, BenchError> {
        Ok(Self { generator, pool: pool()?, batch: Batch::new() })
    }

    /// As [`make`](Self::make); callgrind counts in here.
    #[inline(never)]
    pub fn callgrind_measured(&mut self, packets: u64) -> u64 {
        self.make(packets)
    }

    /// Makes and takes back a number of packets, in whole batches; returns how many.
    #[inline(always)]
    pub fn make(&mut self, packets: u64) -> u64 {
        let mut done = 0;
        while done < packets {
            self.generator.receive(&self.pool, Instant::ZERO, &mut self.batch);
            done += self.batch.len() as u64;
            self.generator.transmit(&self.pool, Instant::ZERO, &mut self.batch);
            self.generator.flush(&self.pool, Instant::ZERO);
        }
        done
    }
}

/// The source, and a router behind it.
pub(crate) struct Pipeline {
    fib: SharedFib,
    worker: Worker,
    link: WorkerLink,
    unit: Unit,
    tables: GateTables,
    now: Instant,
    /// When it began, for those who run it in real time.
    began: std::time::Instant,
    sent: u64,
    /// One in so many packets is traced; 0 for none.
    traced: u32,
    /// Who reads the traces; nothing is read.
    reader: Option<TraceSource>,
}

type Unit = PluginControlUnit<Filter, CompiledFilter>;

/// The gates of the setups that have some; each has an instance of its name.
const GATES: [&str; 3] = ["security-in", "process", "monitor"];

impl Pipeline {
    pub fn new(case: Case) -> Result<Self, BenchError> {
        Self::with(case, Setup::default())
    }

    pub fn with(case: Case, setup: Setup) -> Result<Self, BenchError> {
        let out = Generator::new(MacAddr(OUT_MAC), MTU, Vec::new(), 0);
        Self::between(case, setup, Box::new(generator(case, setup)), Box::new(out))
    }

    /// A router between two ports.
    pub fn between(
        case: Case,
        setup: Setup,
        input: Box<dyn Port>,
        output: Box<dyn Port>,
    ) -> Result<Self, BenchError> {
        let no_memory = |error: &dyn std::error::Error| BenchError::measurement("tables", error.to_string());
        let fib = SharedFib::new().map_err(|error| no_memory(&error))?;
        let (worker, link) = Worker::new(pool()?, fib.reader(), Box::new(NoHost), 0x5eed)
            .map_err(|error| no_memory(&error))?;
        let unit = gates(case.family, setup)?;
        let mut tables = GateTables::default();
        let changes = tables.publish(changes(&unit)?);
        let (now, began) = (Instant::ZERO, std::time::Instant::now());
        let traced = setup.traced;
        let mut pipeline =
            Self { fib, worker, link, unit, tables, now, began, sent: 0, traced, reader: None };
        pipeline.tell(Command::SetPort(IN.1, settings("in", IN.0, IN_MAC, case.family, 1)));
        pipeline.tell(Command::SetPort(OUT.1, settings("out", OUT.0, OUT_MAC, case.family, 2)));
        pipeline.tell(Command::SetOptions(Options {
            flows_max: setup.flows_max,
            new_flows: setup.new_flows,
            ..Options::default()
        }));
        pipeline.tell(Command::Plugins(changes));
        pipeline.set_routes(routes(case.family, setup.routes))?;
        let state = NeighbourKnowledge::Known(MacAddr(NEXT_HOP_MAC));
        let next_hop = NeighbourChange { port: OUT.1, address: gateway(case.family), state };
        pipeline.tell(Command::SetNeighbours(vec![next_hop]));
        if setup.queue == QueueSetup::PerFlow {
            pipeline.schedule(NodeKind::FlowQueues(FlowQueuesSettings::default()))?;
        }
        pipeline.worker.add_device(OUT.0, output);
        // Last, so that no packet comes before the router is ready.
        pipeline.worker.add_device(IN.0, input);
        Ok(pipeline)
    }

    fn set_routes(&mut self, routes: Vec<(IpNet, Option<Route>)>) -> Result<(), BenchError> {
        let mut changed = Vec::new();
        for (prefix, route) in routes {
            match route {
                Some(route) => {
                    let (number, is_new) = self.fib.intern(route.clone());
                    if is_new {
                        self.tell(Command::SetRoutes(vec![(number, route)], sync_channel(1).0));
                    }
                    let stored = self.fib.store(prefix, number);
                    stored.map_err(|error| BenchError::measurement("routes", error.to_string()))?;
                }
                None => drop(self.fib.remove(prefix)),
            }
            changed.push(RouteChange { prefix, own: false });
        }
        self.tell(Command::RoutesChanged(changed));
        Ok(())
    }

    fn tell(&mut self, command: Command) {
        // The ring has room: each command is carried out before the next is given.
        let _ = self.link.commands.push(command);
        self.sent += self.worker.turn(self.now).received as u64;
    }

    /// Begins a trace anew, where packets are to be traced.
    pub fn trace(&mut self) {
        if self.traced > 0 {
            let order =
                TraceOrder { filter: None, every: self.traced, count: MOST_TRACED, time: Duration::MAX };
            let (sink, reader) = trace(1, order);
            self.reader = Some(reader);
            self.tell(Command::StartTrace(Box::new(sink)));
        }
    }

    /// As [`forward`](Self::forward); callgrind counts in here.
    #[inline(never)]
    pub fn callgrind_measured(&mut self, packets: u64) -> u64 {
        self.forward(packets)
    }

    /// Sends a number of packets through the router, in whole batches; returns how many.
    #[inline(always)]
    pub fn forward(&mut self, packets: u64) -> u64 {
        let mut done = 0;
        while done < packets {
            done += self.worker.turn(self.now).received as u64;
            self.now += STEP;
        }
        self.sent += done;
        done
    }

    /// One round of the worker in real time.
    pub fn turn_now(&mut self) {
        self.now = Instant::ZERO + self.began.elapsed();
        self.sent += self.worker.turn(self.now).received as u64;
    }

    /// How many packets went in.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends packets through the router for a time, while `change` changes routes on another thread; returns the
    /// nanoseconds per packet and what `change` does.
    pub fn forward_beside<T: Send>(
        &mut self,
        time: Duration,
        change: impl FnOnce(&mut RouteWriter<'_>) -> T + Send,
    ) -> Result<(f64, T), BenchError> {
        let stop = AtomicBool::new(false);
        let mut writer = RouteWriter { fib: &mut self.fib, commands: &mut self.link.commands, stop: &stop };
        let (worker, now) = (&mut self.worker, &mut self.now);
        let (packets, each, changed) = std::thread::scope(|scope| {
            let changing = scope.spawn(move || change(&mut writer));
            let (start, mut packets) = (std::time::Instant::now(), 0);
            while start.elapsed() < time {
                packets += worker.turn(*now).received as u64;
                *now += STEP;
            }
            let each = start.elapsed().as_secs_f64() * 1e9 / packets as f64;
            stop.store(true, Ordering::Relaxed);
            while !changing.is_finished() {
                // Who changes may wait for an answer.
                packets += worker.turn(*now).received as u64;
            }
            (packets, each, changing.join())
        });
        self.sent += packets;
        let changed = changed.map_err(|_| BenchError::measurement("routes", "the thread died"))?;
        Ok((each, changed))
    }

    /// All counters.
    pub fn snapshot(&mut self) -> Snapshot {
        let (reply, answer) = sync_channel(1);
        self.tell(Command::Snapshot(reply));
        answer.try_recv().unwrap_or_default()
    }

    /// Packets of established flows that came and were not treated as such.
    pub fn established_lost(&mut self, family: Family) -> Result<u64, BenchError> {
        let filter = of_established(family)?.to_string();
        let bound = self.unit.bindings().into_iter().find(|bound| bound.filter == filter);
        let received = self.snapshot().totals.received;
        let treated = bound.map_or(0, |bound| self.treated_by(bound.id));
        Ok((received / 4).saturating_sub(treated))
    }

    /// Packets that a binding has treated.
    fn treated_by(&mut self, binding: BindingId) -> u64 {
        let (reply, answer) = sync_channel(1);
        self.tell(Command::CountFilters(binding, reply));
        let page = answer.try_recv().unwrap_or_default();
        let counts = page.counts.first().filter(|(id, _)| *id == binding);
        counts.map_or(0, |(_, counts)| counts.packets)
    }

    /// An error unless every packet so far has left by the other port.
    pub fn check(&mut self, case: Case) -> Result<(), BenchError> {
        let sent = self.sent;
        let (received, transmitted) = self.passed();
        if transmitted < received || received < sent {
            let problem = format!("{transmitted} of {received} packets came out, {sent} were sent");
            return Err(BenchError::measurement(&case.to_string(), problem));
        }
        Ok(())
    }

    /// Packets that came in, and that came out, before the round that this takes.
    pub fn passed(&mut self) -> (u64, u64) {
        let snapshot = self.snapshot();
        let out = snapshot.devices.iter().find(|(device, _)| *device == OUT.0);
        (snapshot.totals.received, out.map_or(0, |(_, counters)| counters.transmitted))
    }
}

/// What changes routes while the router forwards.
pub(crate) struct RouteWriter<'a> {
    fib: &'a mut SharedFib,
    commands: &'a mut Producer<Command>,
    stop: &'a AtomicBool,
}

impl RouteWriter<'_> {
    /// Whether the measurement is over.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds routes to these prefixes, by the next hop of all others, or removes them.
    pub fn change(&mut self, family: Family, prefixes: &[IpNet], add: bool) -> Result<(), BenchError> {
        for prefix in prefixes {
            if add {
                let (number, _) = self.fib.intern(Route::Forward(next_hop(family)));
                let stored = self.fib.store(*prefix, number);
                stored.map_err(|error| BenchError::measurement("routes", error.to_string()))?;
            } else {
                self.fib.remove(*prefix);
            }
        }
        let changed = prefixes.iter().map(|prefix| RouteChange { prefix: *prefix, own: false }).collect();
        self.push(Command::RoutesChanged(changed));
        if self.fib.waiting() >= WAITING {
            let epoch = self.fib.close_epoch();
            let (reply, answer) = sync_channel(1);
            self.push(Command::SetRoutes(Vec::new(), reply));
            if answer.recv().is_ok() {
                self.fib.quiesced(epoch);
            }
        }
        Ok(())
    }

    fn push(&mut self, command: Command) {
        let mut waiting = Some(command);
        while let Some(command) = waiting.take() {
            if let Err(PushError::Full(command)) = self.commands.push(command) {
                std::thread::yield_now();
                waiting = Some(command);
            }
        }
    }
}

fn pool() -> Result<Pool, BenchError> {
    Pool::new(FRAMES).map_err(|error| BenchError::measurement("packet memory", error.to_string()))
}

fn settings(name: &str, device: DeviceId, mac: [u8; 6], family: Family, subnet: u8) -> PortSettings {
    let (own, length) = match family {
        Family::V4 => (IpAddr::from([10, subnet, 0, 254]), 24),
        Family::V6 => (IpAddr::from([0xfd00, u16::from(subnet), 0, 0, 0, 0, 0, 0xfe]), 64),
    };
    PortSettings {
        name: name.to_owned(),
        device,
        tags: Tags::NONE,
        stack: Stack::Kernel { ifindex: u32::from(device.0) + 1 },
        mac: MacAddr(mac),
        mtu: MTU,
        up: true,
        forwards4: true,
        forwards6: true,
        reverse_path: ReversePath::Off,
        input_weight: 256,
        addresses: IpNet::new(own, length).into_iter().collect(),
    }
}

fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 2, 0, 1]),
        Family::V6 => IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, 1]),
    }
}

fn next_hop(family: Family) -> NextHops {
    NextHops::single(NextHop::new(OUT.1, Some(gateway(family))))
}

fn routes(family: Family, count: u32) -> Vec<(IpNet, Option<Route>)> {
    let next_hop = next_hop(family);
    let length = if family == Family::V4 { 24 } else { 64 };
    let networks = (0..count).filter_map(|route| IpNet::new(destination(family, route, 0), length).ok());
    networks.map(|network| (network, Some(Route::Forward(next_hop.clone())))).collect()
}

/// Host `host` of the network of a route.
fn destination(family: Family, route: u32, host: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from((32 << 24) + (route << 8) + host % 256).into(),
        Family::V6 => {
            Ipv6Addr::from((0xfd14_u128 << 112) | (u128::from(route) << 64) | u128::from(host)).into()
        }
    }
}

fn source(family: Family, net: u8, flow: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from((u32::from(net) << 24) | (flow + 1)).into(),
        Family::V6 => {
            let net = 0xfd00 | u128::from(net);
            Ipv6Addr::from((net << 112) | u128::from(flow + 1)).into()
        }
    }
}

fn failed(error: impl std::error::Error) -> BenchError {
    BenchError::measurement("gates", error.to_string())
}

/// The gates, with all that is bound at them.
fn gates(family: Family, setup: Setup) -> Result<Unit, BenchError> {
    let mut unit = Unit::new();
    unit.add_plugin(std::sync::Arc::new(millrace_plugin_null::Null)).map_err(failed)?;
    for gate in unit.gates() {
        if setup.gates == GatesSetup::None || !GATES.contains(&gate.name.as_str()) {
            unit.remove_gate(&gate.name).map_err(failed)?;
        }
    }
    let filters = match setup.gates {
        GatesSetup::None => return Ok(unit),
        GatesSetup::Empty => Vec::new(),
        GatesSetup::Null => vec![Filter::default()],
        GatesSetup::Filters(count) => {
            let family = match family {
                Family::V4 => millrace_packet::Family::V4,
                Family::V6 => millrace_packet::Family::V6,
            };
            let mut filters = classbench::generate(classbench::Style::Acl, family, count, 1).filters;
            filters.push(Filter::default());
            filters
        }
    };
    for gate in GATES {
        unit.create_instance("null", gate, serde_json::Map::new()).map_err(failed)?;
        for filter in &filters {
            // A generated set may have a filter twice.
            let _ = bind(&mut unit, gate, filter, 0);
        }
    }
    if setup.established > 0 {
        bind(&mut unit, COUNTING, &of_established(family)?, 1)?;
    }
    Ok(unit)
}

/// The gate at which packets of established flows are counted.
const COUNTING: &str = "process";

/// What packets of established flows match, and no others.
fn of_established(family: Family) -> Result<Filter, BenchError> {
    let filter = match family {
        Family::V4 => "src 31.0.0.0/8",
        Family::V6 => "src fd1f::/16",
    };
    filter.parse().map_err(failed)
}

/// Binds the instance of a gate.
fn bind(
    unit: &mut Unit,
    gate: &str,
    filter: &Filter,
    priority: i32,
) -> Result<(BindingId, PluginChange<CompiledFilter>), BenchError> {
    let compiled = filter.compile(|_| None).map_err(failed)?;
    unit.register_instance(gate, gate, filter.clone(), compiled, priority, Terms::default()).map_err(failed)
}

/// The changes that make gates and bindings.
fn changes(unit: &Unit) -> Result<Vec<PluginChange<CompiledFilter>>, BenchError> {
    unit.populate().map_err(failed)
}

/// A packet of a flow from a network.
pub(crate) fn frame(family: Family, net: u8, flow: u32) -> Vec<u8> {
    frame_by(family, net, flow, ROUTES)
}

/// The flow of the packets of [`frame`], of IPv4.
pub(crate) fn flow(net: u8, flow: u32) -> Option<FlowKey> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) =
        (source(Family::V4, net, flow), destination(Family::V4, flow % ROUTES, flow / ROUTES + 1))
    else {
        return None;
    };
    Some(FlowKey::v4(source, destination, UDP, (source_port(flow), DISCARD), IN.1))
}

fn source_port(flow: u32) -> u16 {
    1024 + (flow % 50_000) as u16
}

/// The same with so many routes.
fn frame_by(family: Family, net: u8, flow: u32, routes: u32) -> Vec<u8> {
    let frame = UdpFrame {
        source_mac: HOST_MAC,
        destination_mac: IN_MAC,
        source: source(family, net, flow),
        destination: destination(family, flow % routes, flow / routes + 1),
        source_port: source_port(flow),
        destination_port: DISCARD,
    };
    frame.bytes()
}

/// Gives packets of each flow in turn, the flows in an order without a pattern.
fn generator(case: Case, setup: Setup) -> Generator {
    let frame = |net, flow| frame_by(case.family, net, flow, setup.routes);
    let mut frames: Vec<Vec<u8>> = (0..case.flows).map(|flow| frame(30, flow)).collect();
    shuffle(&mut frames);
    if setup.flow_packets > 1 {
        let groups = frames.chunks(ABREAST);
        frames = groups.flat_map(|group| vec![group; setup.flow_packets as usize].concat()).collect();
    }
    if setup.established > 0 {
        let established = (0..setup.established).cycle().map(|flow| frame(31, flow));
        let mixed = frames.chunks(3).zip(established).map(|(new, known)| [&[known], new].concat());
        frames = mixed.flatten().collect();
    }
    Generator::new(MacAddr(IN_MAC), MTU, frames, u64::MAX)
}

/// Fisher and Yates' shuffle with Marsaglia's xorshift: the same order in every run.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_comes_out_at_the_other_port() {
        for family in [Family::V4, Family::V6] {
            for flows in [1, 3000] {
                let case = Case { family, flows };
                let mut pipeline = Pipeline::new(case).unwrap();
                assert!(pipeline.callgrind_measured(6000) >= 6000);
                pipeline.check(case).unwrap();
            }
        }
    }

    #[test]
    fn the_check_notices_packets_that_do_not_come_out() {
        let case = Case { family: Family::V4, flows: 1 };
        let mut pipeline = Pipeline::new(case).unwrap();
        let gone = routes(case.family, ROUTES).into_iter().map(|(network, _)| (network, None)).collect();
        pipeline.set_routes(gone).unwrap();
        pipeline.callgrind_measured(1000);
        let error = pipeline.check(case).unwrap_err();
        assert!(error.to_string().contains("packets came out"), "{error}");
    }

    #[test]
    fn a_shuffle_keeps_everything_and_the_order_is_another() {
        let mut items: Vec<u32> = (0..1000).collect();
        shuffle(&mut items);
        assert!(items[..10] != [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }

    #[test]
    fn flows_of_many_packets_are_mostly_known() {
        let case = Case { family: Family::V4, flows: 2000 };
        let setup = Setup { flow_packets: 100, flows_max: 512, ..Setup::default() };
        let mut pipeline = Pipeline::with(case, setup).unwrap();
        pipeline.callgrind_measured(400_000);
        let flows = pipeline.snapshot().flows;
        assert!(flows.packets.hits > 80 * flows.packets.misses, "{flows:?}");
    }
}
