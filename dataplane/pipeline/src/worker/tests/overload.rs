//! Overload: a worker sheds plain packets at reception, and no packet that a principal pays for.

use std::time::Duration;

use millrace_packet::DropReason;
use millrace_units::{PortId, PrincipalId};

use super::principals::World;
use crate::pending::core_settings::{CoreDivision, CoreOrder, CoreSettings, Shed};

/// Flow that a principal pays for, and the first plain flow.
const PAID: u8 = 1;
const PLAIN: u8 = 100;

impl World {
    /// Receives one paid packet in 64, and goes on for 50 iterations of 1 ms.
    fn flood(&mut self, packets: u32) {
        for number in 0..packets {
            match number % 64 {
                0 => self.send(PAID, (number / 64) as u16),
                _ => self.send(PLAIN + (number % 8) as u8, (number / 8) as u16),
            }
        }
        for _ in 0..50 {
            self.now += Duration::from_millis(1);
            self.iterate();
        }
    }

    fn shed(&self) -> u64 {
        let port = self.worker.router.ports.get(PortId(1)).unwrap();
        port.count.drops.get(DropReason::CoreCeiling)
    }
}

#[test]
fn overloaded_worker_sheds_plain_packets_only() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    // The principal always has work. Each packet of a plain flow takes 20 µs of core.
    world.bind(1, PAID, Some(1), (100_000, 0));
    world.bind(2, PLAIN, None, (20_000, 0));
    // More packets than 30 iterations take, shedding included.
    world.flood(1 << 17);
    let shed = world.shed();
    assert!(shed > 10_000, "{shed}");
    world.check();
    let waiting = world.worker.router.pending.for_processor.get().unwrap();
    assert_eq!(waiting.core.counts.shed, world.shed());
    let counts = world.counts()[&1];
    assert_eq!((counts.packets, counts.drops.total()), (1 << 11, 0), "{counts:?}");
}

#[test]
fn packets_shed_by_weight_count_for_their_principal() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, PAID, Some(1), (50_000, 0));
    world.bind(2, PLAIN, None, (20_000, 0));
    world.set_core(CoreSettings { shed: Shed::ByWeight, ..CoreSettings::default() });
    world.flood(1 << 19);
    (0..3).for_each(|_| world.flood(0));
    world.check();
    let counts = world.counts();
    let (core, paid) = (counts[&PrincipalId::CORE.0], counts[&1]);
    assert_eq!(core.drops.core_ceiling, world.shed());
    let shed = paid.drops.core_ceiling;
    assert!(shed > 100 && shed < core.drops.core_ceiling, "{paid:?}");
    assert_eq!(paid.packets + paid.drops.total(), 1 << 13);
}

/// The receive ring fills up, but core needs less than its share.
#[test]
fn worker_below_its_ceiling_takes_further_batches_and_sheds_nothing() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, PAID, Some(1), (0, 0));
    world.flood(1 << 17);
    assert_eq!(world.shed(), 0);
    // Without further batches, 50 iterations take 12,800 packets.
    let received = world.worker.router.observation.totals.received;
    assert!(received > 100_000, "{received}");
    world.check();
}

#[test]
fn worker_whose_principals_have_no_packets_sheds_nothing() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, Some(1), (0, 0));
    for number in 0..1 << 14 {
        world.send(PLAIN + (number % 8) as u8, number);
    }
    for _ in 0..100 {
        world.iterate();
    }
    assert_eq!(world.shed(), 0);
    world.check();
}

#[test]
fn worker_below_its_ceiling_sheds_nothing() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, PAID, Some(1), (0, 0));
    for number in 0..10_000 {
        world.send(PLAIN, number);
        if number % 250 == 0 {
            world.iterate();
        }
    }
    assert_eq!(world.shed(), 0);
    world.check();
}

/// Floods the first port beside a second one with a packet in each iteration. Returns the packets shed at each.
fn shed_beside_a_flood(division: CoreDivision) -> [u64; 2] {
    let mut world = World::new();
    let second = world.add_port(1);
    world.set_core(CoreSettings { order: CoreOrder::Share, division, ..CoreSettings::default() });
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, PAID, Some(1), (100_000, 0));
    world.bind(2, PLAIN, None, (20_000, 0));
    for round in 0..60 {
        for number in 0..1 << 10 {
            let flow = if number % 64 == 0 { PAID } else { PLAIN };
            world.send(flow, round * (1 << 10) + number);
        }
        world.send_at(&second, PLAIN + 1, round);
        world.now += Duration::from_millis(1);
        world.iterate();
    }
    world.check();
    let shed =
        |id| world.worker.router.ports.get(PortId(id)).map(|it| it.count.drops.get(DropReason::CoreCeiling));
    [shed(1).unwrap(), shed(2).unwrap()]
}

#[test]
fn flood_at_a_port_sheds_packets_of_another_one_unless_each_has_its_share() {
    let [flooded, other] = shed_beside_a_flood(CoreDivision::Undivided);
    assert!(flooded > 10_000 && other > 10, "{flooded} {other}");
    let [flooded, other] = shed_beside_a_flood(CoreDivision::ByInput);
    assert!(flooded > 10_000 && other == 0, "{flooded} {other}");
}
