//! Packets for the router itself: control is charged for them, not core, and they push out no plain packet.

use millrace_forward::{NextHop, NextHops, Route};
use millrace_packet::DropReason;
use millrace_units::PrincipalId;

use super::principals::{MAC, World};
use super::*;
use crate::pending::principal_counts::PrincipalCounts;
use crate::tsc::pretended;

/// Plain flow.
const PLAIN: u8 = 100;
const OWN: [u8; 4] = [10, 9, 0, 1];
const HOST: [u8; 4] = [10, 9, 0, 2];

/// Returns a request for the MAC address of the port.
fn arp() -> Vec<u8> {
    let host = [2, 0, 0, 0, 0, 9];
    let message = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &host, &HOST, &[0; 6], &OWN].concat();
    [&[0xff; 6][..], &host, &[8, 6], &message, &[0; 18]].concat()
}

/// Returns an echo request to the port.
fn echo() -> Vec<u8> {
    let mut header = [&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 1, 0, 0][..], &HOST, &OWN].concat();
    let sum = millrace_wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut message = [&[8, 0, 0, 0, 0, 7, 0, 1][..], &[0; 18]].concat();
    let sum = millrace_wire::checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [&MAC.0[..], &[2, 0, 0, 0, 0, 9, 8, 0], &header, &message].concat()
}

/// Returns a worker with a port that has an address, and a principal. Its cycles are those of the processor.
fn world() -> World {
    let mut world = World::new();
    pretended::end();
    world.set_principal(1, 1, 1 << 20);
    let port =
        PortSettings { mac: MAC, addresses: vec!["10.9.0.1/24".parse().unwrap()], ..settings(0, Tags::NONE) };
    world.tell(PortCommand::Set(PortId(1), port));
    world.route("10.9.0.1/32", Route::Local);
    world.route("10.9.0.0/24", Route::Forward(NextHops::single(NextHop::new(PortId(1), None))));
    world
}

impl World {
    /// Adds a route.
    pub fn route(&mut self, prefix: &str, route: Route) {
        let prefix = prefix.parse().unwrap();
        let number = self._rest.1.intern(route.clone()).0;
        self.tell(RouteCommand::Set([(number, route)].into(), sync_channel(1).0));
        self._rest.1.store(prefix, number).unwrap();
        self.tell(RouteCommand::Changed(vec![RouteChange { prefix, own: false }]));
    }

    /// Receives a frame that is not counted.
    pub fn inject(&mut self, frame: &[u8]) {
        self.wire.inject(frame);
    }
}

fn of(world: &World, id: PrincipalId) -> PrincipalCounts {
    world.counts()[&id.0]
}

fn drops(world: &World, reason: DropReason) -> u64 {
    world.worker.router.ports.get(PortId(1)).unwrap().count.drops.get(reason)
}

fn check(world: &World) {
    let totals = &world.worker.router.observation.totals;
    let created = totals.created.own + totals.created.errors;
    assert_eq!(totals.received + created, totals.transmitted + totals.to_host + totals.dropped, "{totals:?}");
    assert_eq!(world.worker.pool.in_use(), 0);
}

#[test]
fn flood_of_requests_to_the_router_is_charged_to_control() {
    let mut world = world();
    for _ in 0..100 {
        // Less than a full batch.
        (0..50).for_each(|_| world.inject(&arp()));
        (0..50).for_each(|_| world.inject(&echo()));
        world.iterate();
    }
    let (control, core) = (of(&world, PrincipalId::CONTROL), of(&world, PrincipalId::CORE));
    assert_eq!((control.packets, control.waiting, control.drops.total()), (10_000, 0, 0));
    assert!(control.used > core.used && core.used.0 > 0, "{control:?} {core:?}");
    assert_eq!(world.worker.router.observation.totals.to_host, 10_000);
    check(&world);
    let before = control.used;
    (0..10).for_each(|number| world.send(PLAIN, number));
    world.iterate();
    assert_eq!(of(&world, PrincipalId::CONTROL).used, before);
}

#[test]
fn flood_of_requests_beside_full_receive_rings_drops_no_plain_packet() {
    let mut world = world();
    let mut plain = 0;
    for number in 0..(1_u32 << 15) {
        match number % 64 {
            0 => {
                world.send(PLAIN, plain);
                plain += 1;
            }
            _ => world.inject(&arp()),
        }
    }
    for _ in 0..2_000 {
        world.iterate();
    }
    let control = of(&world, PrincipalId::CONTROL);
    let dropped = drops(&world, DropReason::ControlCeiling);
    assert!(dropped > 1000, "{dropped} {control:?}");
    assert_eq!((control.drops.queue, control.packets), (dropped, (1 << 15) - u64::from(plain) - dropped));
    assert!(control.packets > 100, "{control:?}");
    assert_eq!(world.worker.router.observation.totals.dropped, dropped + u64::from(plain));
    check(&world);
}
