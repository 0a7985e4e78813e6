//! Accounts of flows and principals, and packets dropped above their limits.

use super::*;

#[test]
fn packets_above_the_threshold_are_dropped_for_a_reason_of_their_own() {
    let mut world = World::new();
    world.set_principal(1, 1, 1000);
    world.bind(1, 1, Some(1), (1_000_000, 0));
    (0..40).for_each(|number| world.send(1, number));
    world.check();
    let dropped =
        world.worker.router.ports.get(PortId(1)).unwrap().count.drops.get(DropReason::PrincipalQueueFull);
    assert!(dropped >= 20, "{dropped}");
    assert_eq!(world.counts()[&1].drops.queue, dropped);
}

#[test]
fn packets_above_the_memory_of_their_principal_are_dropped_for_a_reason_of_their_own() {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_principal(id, 1, 1 << 20);
        world.bind(id, id as u8, Some(id), (200_000, 0));
    }
    world.tell(PrincipalCommand::LimitMemory(PrincipalId(1), Some(1000)));
    for number in 0..100 {
        world.send(1, number);
        world.send(2, number);
    }
    for _ in 0..20 {
        world.iterate();
        assert!(world.counts()[&1].waiting_bytes <= 1000);
    }
    let drops = |world: &World| {
        let port = world.worker.router.ports.get(PortId(1)).unwrap();
        port.count.drops.get(DropReason::PrincipalMemory)
    };
    let dropped = drops(&world);
    assert!(dropped > 50, "{dropped}");
    assert_eq!((world.counts()[&1].drops.memory, world.counts()[&1].drops.queue), (dropped, 0));
    assert_eq!(world.counts()[&2].drops.total(), 0);
    world.tell(PrincipalCommand::LimitMemory(PrincipalId(1), None));
    (100..200).for_each(|number| world.send(1, number));
    world.check();
    assert_eq!(drops(&world), dropped);
}

#[test]
fn flow_report_has_the_account_of_the_flow_at_its_principal() {
    let mut world = World::new();
    world.set_principal(1, 1, 1000);
    world.bind(1, 1, Some(1), (50_000, 0));
    for number in 0..100 {
        world.send(1, number);
        world.send(9, number);
    }
    for _ in 0..3 {
        world.iterate();
    }
    let scan = FlowScan { from: 0, records: u32::MAX, filter: CompiledSelection::any() };
    let flows = scan.run(&world.worker.router, world.now).flows;
    let payments = |flow: u8| {
        let found = flows.iter().find(|report| report.key.destination() == IpAddr::from([10, 0, 0, flow]));
        found.unwrap().payments.clone()
    };
    assert_eq!(payments(9), []);
    let counts = world.counts()[&1];
    let account = CpuFlowAccount {
        used: counts.used,
        packets: counts.waiting,
        bytes: counts.waiting_bytes,
        dropped: counts.drops.queue,
    };
    assert!(account.used.0 > 0 && account.packets > 0 && account.dropped > 0, "{account:?}");
    assert_eq!(payments(1), [FlowPayment { principal: PrincipalId(1), account: Some(account) }]);
    world.check();
}
