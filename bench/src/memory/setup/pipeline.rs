//! Worker of a router with ports in memory, driven by the benchmark.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ipnet::IpNet;
use millrace_forward::{Route, SharedFib};
use millrace_pipeline::{
    Command, CounterCommand, FilterCommand, GateTables, HandoverRings, MOST_TRACED, NeighbourChange,
    NeighbourCommand, NeighbourKnowledge, NoHost, ObservationCommand, Options, PluginCommand, PortCommand,
    PortSettings, ReversePath, RouteChange, RouteCommand, Snapshot, Stack, Tags, TraceOrder, TraceSource,
    Worker, WorkerLink, trace,
};
use millrace_plugin::BindingId;
use millrace_port::Port;
use millrace_port::memory::Generator;
use millrace_schedule::{FlowQueuesSettings, NodeKind};
use millrace_units::Instant;
use millrace_wire::MacAddr;

use super::gates::{Unit, changes, gates, of_established};
use super::packets::{Chosen, generator};
use super::routes::{gateway, in_subnet, out_subnet, routes};
use super::source::pool;
use super::{IN, IN_MAC, MTU, OUT, OUT_MAC, Place, QueueSetup, RouteWriter, STEP, Setup};
use crate::BenchError;
use crate::family::Family;
use crate::memory::case::Case;

const NEXT_HOP_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// Key of the flow hash: the same in every run, and for all workers of a router.
pub(crate) const SEED: u64 = 0x5eed;

/// Input and output ports.
struct Ports {
    ins: Vec<Place>,
    outs: Vec<Place>,
}

/// Worker of a router, with the worker's ports.
pub(crate) struct Pipeline {
    pub(super) fib: SharedFib,
    pub(super) worker: Worker,
    pub(super) link: WorkerLink,
    pub(super) unit: Unit,
    pub(super) tables: GateTables,
    pub(super) now: Instant,
    /// Start time of the router, for iterations in real time.
    began: std::time::Instant,
    /// Number of packets received by the router.
    pub sent: u64,
    /// Output port of this worker.
    pub(super) out: Place,
    /// Tracing interval: one packet in this number is traced; 0 disables tracing.
    traced: u32,
    /// Reading end of the trace. Nothing reads from it, but the trace stays open only while it exists.
    reader: Option<TraceSource>,
}

impl Pipeline {
    pub fn with(case: Case, setup: Setup) -> Result<Self, BenchError> {
        let input = generator(case, setup, Chosen::All);
        Self::between(case, setup, Box::new(input), Box::new(sink()))
    }

    /// Creates a router of one worker, between an input and an output port.
    pub fn between(
        case: Case,
        setup: Setup,
        input: Box<dyn Port>,
        output: Box<dyn Port>,
    ) -> Result<Self, BenchError> {
        let ports = Ports { ins: vec![IN], outs: vec![OUT] };
        Self::of(case, setup, &ports, None, 0, [input, output])
    }

    /// Creates a router of one worker with two output ports. The routes use them in turn: those of even flow numbers
    /// the first one.
    pub fn with_outputs(
        case: Case,
        setup: Setup,
        input: Box<dyn Port>,
        ([first, second], place): ([Box<dyn Port>; 2], Place),
    ) -> Result<Self, BenchError> {
        let ports = Ports { ins: vec![IN], outs: vec![OUT, place] };
        let mut pipeline = Self::of(case, setup, &ports, None, 0, [input, first])?;
        pipeline.worker.add_device(place.device, second);
        Ok(pipeline)
    }

    /// Creates one of several workers, with an input and an output port of its own. The routes use the output
    /// ports of all workers in rotation.
    pub fn member(
        case: Case,
        setup: Setup,
        handover: HandoverRings,
        worker: usize,
        chosen: Chosen,
    ) -> Result<Self, BenchError> {
        let input = generator(case, setup, chosen);
        Self::member_between(case, setup, handover, worker, [Box::new(input), Box::new(sink())])
    }

    /// Creates one of several workers, as [`member`](Self::member) does, with these devices as its input and
    /// output port.
    pub fn member_between(
        case: Case,
        setup: Setup,
        handover: HandoverRings,
        worker: usize,
        devices: [Box<dyn Port>; 2],
    ) -> Result<Self, BenchError> {
        let workers = handover.workers() as u16;
        // Each worker owns one input and one output device.
        let places = |first: u16| (first..first + workers).map(Place::numbered).collect();
        let ports = Ports { ins: places(0), outs: places(workers) };
        Self::of(case, setup, &ports, Some(handover), worker, devices)
    }

    fn of(
        case: Case,
        setup: Setup,
        ports: &Ports,
        handover: Option<HandoverRings>,
        worker_number: usize,
        [input, output]: [Box<dyn Port>; 2],
    ) -> Result<Self, BenchError> {
        let no_memory = |error: &dyn std::error::Error| BenchError::measurement("tables", error.to_string());
        let fib = SharedFib::new().map_err(|error| no_memory(&error))?;
        let (mut worker, link) =
            Worker::new(pool()?, fib.reader(), Box::new(NoHost), SEED).map_err(|error| no_memory(&error))?;
        if let Some(handover) = handover {
            worker.join(handover);
        }
        let unit = gates(case.family, setup)?;
        let mut tables = GateTables::default();
        let changes = tables.publish(changes(&unit)?);
        let (now, began) = (Instant::ZERO, std::time::Instant::now());
        let (traced, out) = (setup.traced, ports.outs[worker_number]);
        let mut pipeline =
            Self { fib, worker, link, unit, tables, now, began, sent: 0, out, traced, reader: None };
        for (number, place) in ports.ins.iter().enumerate() {
            let settings = settings("in", (*place, IN_MAC), case.family, in_subnet(number));
            let settings = PortSettings { input_weight: setup.batch, ..settings };
            pipeline.tell(PortCommand::Set(place.port, settings));
        }
        for (number, place) in ports.outs.iter().enumerate() {
            let settings = settings("out", (*place, OUT_MAC), case.family, out_subnet(number));
            pipeline.tell(PortCommand::Set(place.port, settings));
        }
        pipeline.tell(Options {
            flows_max: setup.flows_max,
            new_flows: setup.new_flows,
            ..Options::default()
        });
        pipeline.tell(PluginCommand::Change(changes));
        pipeline.set_routes(routes(case.family, setup.routes, &ports.outs))?;
        for (number, place) in ports.outs.iter().enumerate() {
            let (address, mac) = (gateway(case.family, number), MacAddr(NEXT_HOP_MAC));
            let next_hop =
                NeighbourChange { port: place.port, address, state: NeighbourKnowledge::Known(mac) };
            pipeline.tell(NeighbourCommand::Set(vec![next_hop]));
        }
        if setup.queue == QueueSetup::PerFlow {
            pipeline.schedule(NodeKind::FlowQueues(FlowQueuesSettings::default()))?;
        }
        if setup.principals > 0 {
            pipeline.add_idle_principals(setup.principals)?;
        }
        pipeline.worker.add_device(out.device, output);
        // Add the input last, so that no packet arrives before the router is ready.
        pipeline.worker.add_device(ports.ins[worker_number].device, input);
        Ok(pipeline)
    }

    pub(super) fn set_routes(&mut self, routes: Vec<(IpNet, Option<Route>)>) -> Result<(), BenchError> {
        let mut changed = Vec::new();
        for (prefix, route) in routes {
            match route {
                Some(route) => {
                    let (number, is_new) = self.fib.intern(route.clone());
                    if is_new {
                        self.tell(RouteCommand::Set(vec![(number, route)], sync_channel(1).0));
                    }
                    let stored = self.fib.store(prefix, number);
                    stored.map_err(|error| BenchError::measurement("routes", error.to_string()))?;
                }
                None => drop(self.fib.remove(prefix)),
            }
            changed.push(RouteChange { prefix, own: false });
        }
        self.tell(RouteCommand::Changed(changed));
        Ok(())
    }

    pub(super) fn tell(&mut self, command: impl Into<Command>) {
        // The ring always has room: the worker executes each command before the next one is sent.
        let _ = self.link.commands.push(command.into());
        self.sent += self.worker.iterate(self.now, || self.now).received as u64;
    }

    /// Restarts the trace, if packets are traced.
    pub fn trace(&mut self) {
        if self.traced > 0 {
            let order =
                TraceOrder { filter: None, every: self.traced, count: MOST_TRACED, time: Duration::MAX };
            let (sink, reader) = trace(1, order);
            self.reader = Some(reader);
            self.tell(ObservationCommand::StartTrace(Box::new(sink)));
        }
    }

    /// Forwards `packets` packets in whole batches; returns the actual number.
    pub fn forward(&mut self, packets: u64) -> u64 {
        let mut done = 0;
        while done < packets {
            done += self.worker.iterate(self.now, || self.now).received as u64;
            self.now += STEP;
        }
        self.sent += done;
        done
    }

    /// Runs one iteration of the worker in real time.
    pub fn iterate_now(&mut self) {
        self.now = Instant::ZERO + self.began.elapsed();
        self.sent += self.worker.iterate(self.now, || self.now).received as u64;
    }

    /// Forwards packets for a given time while `change` changes routes on another thread. Returns the
    /// nanoseconds per packet, and the result of `change`.
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
                packets += worker.iterate(*now, || *now).received as u64;
                *now += STEP;
            }
            let each = start.elapsed().as_secs_f64() * 1e9 / packets as f64;
            stop.store(true, Ordering::Relaxed);
            while !changing.is_finished() {
                // Continue until the thread ends: it may wait for a reply of the worker.
                packets += worker.iterate(*now, || *now).received as u64;
            }
            (packets, each, changing.join())
        });
        self.sent += packets;
        let changed = changed.map_err(|_| BenchError::measurement("routes", "the thread panicked"))?;
        Ok((each, changed))
    }

    /// Returns all counters.
    pub fn snapshot(&mut self) -> Snapshot {
        let (reply, answer) = sync_channel(1);
        self.tell(CounterCommand::Snapshot(reply));
        answer.try_recv().unwrap_or_default()
    }

    /// Returns the number of lost packets of established flows: those that the router received, minus those
    /// that the counting binding got.
    pub fn established_lost(&mut self, family: Family) -> Result<u64, BenchError> {
        let filter = of_established(family)?.to_string();
        let bound = self.unit.bindings().into_iter().find(|bound| bound.filter == filter);
        let received = self.snapshot().totals.received;
        let treated = bound.map_or(0, |bound| self.treated_by(bound.id));
        Ok((received / 4).saturating_sub(treated))
    }

    /// Returns the number of packets that a binding has treated.
    fn treated_by(&mut self, binding: BindingId) -> u64 {
        let (reply, answer) = sync_channel(1);
        self.tell(FilterCommand::Count(binding, reply));
        let page = answer.try_recv().unwrap_or_default();
        let counts = page.counts.first().filter(|(id, _)| *id == binding);
        counts.map_or(0, |(_, counts)| counts.packets)
    }

    /// Returns an error unless all packets so far have left by the output port.
    pub fn check(&mut self, case: Case) -> Result<(), BenchError> {
        let sent = self.sent;
        let (received, transmitted) = self.passed();
        if transmitted < received || received < sent {
            let problem = format!(
                "the pipeline transmitted {transmitted} of {received} received packets; {sent} were sent to \
                 it"
            );
            return Err(BenchError::measurement(&case.to_string(), problem));
        }
        Ok(())
    }

    /// Runs one iteration. Returns the numbers of packets received and transmitted before this iteration.
    pub fn passed(&mut self) -> (u64, u64) {
        let snapshot = self.snapshot();
        let out = snapshot.devices.iter().find(|(device, _)| *device == self.out.device);
        (snapshot.totals.received, out.map_or(0, |(_, counters)| counters.transmitted))
    }
}

/// Returns an output port that accepts and discards all packets.
fn sink() -> Generator {
    Generator::new(MacAddr(OUT_MAC), MTU, Vec::new(), 0)
}

pub(super) fn settings(
    name: &str,
    (place, mac): (Place, [u8; 6]),
    family: Family,
    subnet: u8,
) -> PortSettings {
    let (own, length) = match family {
        Family::V4 => (IpAddr::from([10, subnet, 0, 254]), 24),
        Family::V6 => (IpAddr::from([0xfd00, u16::from(subnet), 0, 0, 0, 0, 0, 0xfe]), 64),
    };
    PortSettings {
        name: format!("{name}{}", place.device.0),
        device: place.device,
        tags: Tags::NONE,
        stack: Stack::Kernel { ifindex: u32::from(place.device.0) + 1 },
        mac: MacAddr(mac),
        mtu: MTU,
        up: true,
        forwards4: true,
        forwards6: true,
        reverse_path: ReversePath::Off,
        input_weight: 256,
        output_weight: 256,
        addresses: IpNet::new(own, length).into_iter().collect(),
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
                let mut pipeline = Pipeline::with(case, Setup::default()).unwrap();
                assert!(pipeline.forward(6000) >= 6000);
                pipeline.check(case).unwrap();
            }
        }
    }

    #[test]
    fn the_check_notices_packets_that_do_not_come_out() {
        let case = Case { family: Family::V4, flows: 1 };
        let mut pipeline = Pipeline::with(case, Setup::default()).unwrap();
        let gone = routes(case.family, super::super::ROUTES, &[OUT])
            .into_iter()
            .map(|(network, _)| (network, None))
            .collect();
        pipeline.set_routes(gone).unwrap();
        pipeline.forward(1000);
        let error = pipeline.check(case).unwrap_err();
        assert!(error.to_string().contains("the pipeline transmitted"), "{error}");
    }

    #[test]
    fn flows_of_many_packets_are_mostly_known() {
        let case = Case { family: Family::V4, flows: 2000 };
        let setup = Setup { flow_packets: 100, flows_max: 512, ..Setup::default() };
        let mut pipeline = Pipeline::with(case, setup).unwrap();
        pipeline.forward(400_000);
        let flows = pipeline.snapshot().flows;
        assert!(flows.packets.hits > 80 * flows.packets.misses, "{flows:?}");
    }
}
