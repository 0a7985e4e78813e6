//! Packets that instances make: each principal has a part of their queue, and pays for sending them on.

use super::*;

/// World with two principals. Instance 1 gets the packets of flow 1, and instance 2 the packets of flow 2. Each uses 500
/// cycles for a packet, for which nobody pays.
fn world(limit: Option<u32>) -> World {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_cpu(id, CpuPrincipal { share: CpuShare::Weight(1), limit, deadline: None }, 1 << 20);
        world.bind(id, id as u8, None, (500, 0));
    }
    world
}

/// Makes packets of a flow, as an instance does in calls for which a principal pays.
fn make(world: &mut World, flow: u8, packets: u16, payer: Option<u32>) {
    for number in 0..packets {
        let bytes = &frame(flow, number)[14..];
        assert!(world.worker.router.gate_run().begin_made(bytes, PortId(1), 0, payer.map(PrincipalId)));
    }
}

fn queue_full(world: &World) -> u64 {
    world.worker.router.ports.get(PortId(1)).unwrap().count.drops.get(DropReason::QueueFull)
}

/// Checks that each packet has left the router.
fn check(world: &mut World) {
    world.drain();
    let totals = &world.worker.router.observation.totals;
    assert_eq!((totals.created.plugins, world.worker.pool.in_use()), (totals.dropped, 0));
}

#[test]
fn flood_of_a_principal_delays_others_by_its_turns_only() {
    let mut world = world(None);
    make(&mut world, 1, 3000, Some(1));
    assert_eq!(queue_full(&world), 3000 - 1024);
    make(&mut world, 2, 64, Some(2));
    assert_eq!(queue_full(&world), 3000 - 1024, "the other principal has room");
    world.iterate();
    let seen = world.seen.lock().unwrap().clone();
    let of_flow = |flow| seen.iter().filter(|(known, _)| *known == flow).count();
    assert_eq!((of_flow(1), of_flow(2)), (192, 64));
    check(&mut world);
}

#[test]
fn payer_of_the_call_pays_for_sending_its_packets_on() {
    let mut world = world(None);
    make(&mut world, 1, 100, Some(1));
    make(&mut world, 2, 50, Some(2));
    world.iterate();
    let counts = world.counts();
    assert_eq!((counts[&1].used, counts[&2].used), (Cycles(50_000), Cycles(25_000)));
    assert_eq!(counts[&PrincipalId::CORE.0].used, Cycles(0), "{counts:?}");
    make(&mut world, 1, 100, None);
    world.iterate();
    let counts = world.counts();
    assert_eq!((counts[&1].used, counts[&PrincipalId::CORE.0].used), (Cycles(50_000), Cycles(50_000)));
    check(&mut world);
}

/// Nobody else has work, yet the packets that a principal makes get no more time than its limit.
#[test]
fn limit_of_a_principal_holds_for_the_packets_that_it_makes() {
    let mut world = world(Some(100_000));
    for _ in 0..150 {
        make(&mut world, 1, 300, Some(1));
        world.iterate();
    }
    // The limit is 1,500,000 cycles. An iteration takes 256 packets of 500 cycles, so 150 take 19,200,000.
    let Cycles(used) = world.counts()[&1].used;
    assert!((1_000_000..2_000_000).contains(&used), "{used}");
    check(&mut world);
}

#[test]
fn packets_made_for_a_removed_principal_go_on() {
    let mut world = world(None);
    make(&mut world, 1, 10, Some(1));
    world.tell(PrincipalCommand::Remove(PrincipalId(1)));
    world.iterate();
    assert_eq!(world.counts()[&PrincipalId::CORE.0].used, Cycles(5000));
    check(&mut world);
}
