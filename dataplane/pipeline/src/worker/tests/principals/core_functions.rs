//! Functions of core: a flood to or from one port sheds packets of the function that is over its part.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use millrace_forward::{NextHop, NextHops, Route};
use millrace_packet::Batch;
use millrace_port::{Capabilities, PortCounters};

use super::*;
use crate::commands::NeighbourCommand;
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge};
use crate::pending::core_settings::{CoreDivision, CoreOrder};

/// Flow that a principal pays for, a plain flow that floods, and one that doesn't.
const PAID: u8 = 1;
const FLOOD: u8 = 101;
const CALM: u8 = 102;

/// Port in memory that needs processor time.
struct Costly {
    port: Memory,
    /// Cycles for each packet received and transmitted.
    cost: (u64, u64),
}

impl Port for Costly {
    fn receive(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        let before = batch.len();
        self.port.receive(pool, now, batch);
        pretended::pass(self.cost.0 * (batch.len() - before) as u64);
    }

    fn transmit(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        pretended::pass(self.cost.1 * batch.len() as u64);
        self.port.transmit(pool, now, batch);
    }

    fn flush(&mut self, pool: &Pool, now: Instant) {
        self.port.flush(pool, now);
    }

    fn counters(&mut self) -> PortCounters {
        self.port.counters()
    }

    fn capabilities(&self) -> &Capabilities {
        self.port.capabilities()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.port.descriptor()
    }
}

/// World with two inputs and two outputs: packets to 10.0.0.101 leave by the first output, those to 10.0.0.102 by the
/// second one.
struct Ports {
    world: World,
    second_in: MemoryHandle,
    outs: [MemoryHandle; 2],
    calm: u64,
}

impl Ports {
    /// `costs`: cycles of a packet at the first input and at the first output. A principal always has work.
    fn new(division: CoreDivision, costs: (u64, u64)) -> Self {
        let mut world = World::new();
        let order = if division == CoreDivision::Undivided { CoreOrder::First } else { CoreOrder::Share };
        world.set_core(CoreSettings { order, division, ..CoreSettings::default() });
        let (port, wire) = Memory::new(MAC, 1500);
        world.worker.add_device(DeviceId(0), Box::new(Costly { port, cost: (costs.0, 0) }));
        world.wire = wire;
        let second_in = world.add_port(1);
        let outs = [(2, FLOOD, costs.1), (3, CALM, 0)].map(|(device, flow, cost)| {
            let (port, wire) = Memory::new(MAC, 1500);
            world.worker.add_device(DeviceId(device), Box::new(Costly { port, cost: (0, cost) }));
            let settings = PortSettings { addresses: Vec::new(), ..settings(device, Tags::NONE) };
            let port = PortId(device + 1);
            world.tell(PortCommand::Set(port, settings));
            add_route(&mut world, port, flow);
            wire
        });
        world.set_principal(1, 1, 1 << 20);
        world.bind(1, PAID, Some(1), (100_000, 0));
        Self { world, second_in, outs, calm: 0 }
    }

    /// Floods the first input for `rounds` iterations beside one packet of the calm flow each, at the first or the
    /// second input.
    fn flood(&mut self, rounds: u16, calm_input: usize) {
        for round in 0..rounds {
            for number in 0..1 << 10 {
                let flow = if number % 64 == 0 { PAID } else { FLOOD };
                self.world.send(flow, round * (1 << 10) + number);
            }
            match calm_input {
                0 => self.world.send(CALM, round),
                _ => self.world.send_at(&self.second_in, CALM, round),
            }
            self.calm += 1;
            self.world.now += Duration::from_millis(1);
            self.world.iterate();
        }
    }

    /// Returns the packets of the flood that were shed, and the lost ones of the calm flow, after a check that the
    /// router has lost none without counting it.
    fn losses(&mut self) -> (u64, u64) {
        self.world.drain();
        let totals = &self.world.worker.router.observation.totals;
        assert_eq!(totals.received, self.world.sent);
        assert_eq!(totals.transmitted + totals.dropped, self.world.sent);
        assert_eq!(self.world.worker.pool.in_use(), 0);
        let [_, calm] = self.outs.each_ref().map(|out| out.take_transmitted().len() as u64);
        let waiting = self.world.worker.router.pending.for_processor.get().unwrap();
        let lost = self.calm - calm;
        (waiting.core.counts.shed - lost, lost)
    }
}

/// Adds a route of a flow by a port.
fn add_route(world: &mut World, port: PortId, flow: u8) {
    let gateway = Ipv4Addr::new(10, 1, 0, flow).into();
    let route = Route::Forward(NextHops::single(NextHop::new(port, Some(gateway))));
    let prefix = format!("10.0.0.{flow}/32").parse().unwrap();
    let number = world._rest.1.intern(route.clone()).0;
    world.tell(RouteCommand::Set([(number, route)].into(), sync_channel(1).0));
    world._rest.1.store(prefix, number).unwrap();
    world.tell(RouteCommand::Changed(vec![RouteChange { prefix, own: false }]));
    let state = NeighbourKnowledge::Known(MAC);
    world.tell(NeighbourCommand::Set(vec![NeighbourChange { port, address: gateway, state }]));
}

/// Floods a costly output.
fn flood_to_output(division: CoreDivision) -> (u64, u64) {
    let mut ports = Ports::new(division, (0, 20_000));
    ports.flood(60, 0);
    ports.losses()
}

#[test]
fn flood_to_an_output_costs_other_outputs_nothing_if_each_has_its_part() {
    let (flood, calm) = flood_to_output(CoreDivision::Undivided);
    assert!(flood > 1000 && calm > 10, "{flood} {calm}");
    for division in [CoreDivision::ByLoad, CoreDivision::ByFunction] {
        let (flood, calm) = flood_to_output(division);
        assert!(flood > 1000 && calm == 0, "{division:?}: {flood} {calm}");
    }
}

#[test]
fn flood_from_a_costly_input_sheds_packets_of_that_input_only() {
    for division in [CoreDivision::ByInput, CoreDivision::ByLoad, CoreDivision::ByFunction] {
        let mut ports = Ports::new(division, (20_000, 0));
        ports.flood(60, 1);
        let (flood, calm) = ports.losses();
        assert!(flood > 1000 && calm == 0, "{division:?}: {flood} {calm}");
    }
}

#[test]
fn time_of_core_is_counted_by_function() {
    let mut ports = Ports::new(CoreDivision::ByFunction, (1000, 3000));
    ports.world.bind(2, FLOOD, None, (500, 0));
    (0..100).for_each(|number| ports.world.send(FLOOD, number));
    ports.world.iterate();
    let count = |port: u16| {
        let counts = ports.world.worker.router.ports.counts();
        counts.into_iter().find(|(id, _)| *id == PortId(port)).unwrap().1.core
    };
    let (input, output) = (count(1), count(3));
    assert_eq!((input.received, input.forwarding), (Cycles(150_000), Cycles(50_000)));
    assert_eq!((input.output, output.output, output.received), (Cycles(0), Cycles(300_000), Cycles(0)));
    ports.losses();
}
