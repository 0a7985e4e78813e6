//! Bindings that end while packets wait: those that waited for them continue, all others keep their places.

mod rebound;

use millrace_packet::DropReason;

use super::held::Holding;
use super::stage_queues::stage;
use super::*;

const DEADLINE: CpuPrincipal = CpuPrincipal {
    share: CpuShare::Absolute(100_000),
    limit: None,
    deadline: Some(Duration::from_millis(1)),
};

/// Returns the time that principal `id` took for all packets since `begun`, and the longest wait it reports.
fn waits(world: &mut World, id: u32, begun: Instant) -> (Duration, Duration) {
    world.check();
    (world.now.since(begun), world.counts()[&id].longest_wait)
}

#[test]
fn waiting_packets_keep_their_places_when_a_binding_of_others_ends() {
    let mut world = World::new();
    world.set_cpu(1, DEADLINE, 1 << 20);
    world.bind(1, 1, Some(1), (200_000, 0));
    world.bind(2, 2, None, (0, 0));
    (0..40).for_each(|number| world.send(1, number));
    let begun = world.now;
    world.iterate();
    // Of packets that arrive from now on, the principal may keep none.
    world.set_cpu(1, DEADLINE, 1);
    world.tell(PrincipalCommand::LimitMemory(PrincipalId(1), Some(1)));
    for _ in 0..20 {
        let before = world.counts()[&1];
        world.unbind(2);
        assert_eq!(world.counts()[&1], before);
        world.rebind(2, 2, None);
        world.iterate();
    }
    assert!(world.counts()[&1].waiting > 10);
    let (took, longest) = waits(&mut world, 1, begun);
    assert!(longest.abs_diff(took) <= Duration::from_micros(300), "{longest:?}, {took:?}");
    assert_eq!((world.counts()[&1].drops.total(), world.seen.lock().unwrap().len()), (0, 40));
}

/// A flow record of another batch would get the neighbour of the waiting packet.
#[test]
fn packets_that_have_waited_have_no_flow_record_of_another_batch() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, Some(1), (1_000, 0));
    world.send(2, 0);
    world.iterate();
    let of_other = world.worker.work.flows[0];
    assert!(of_other.is_some());
    world.worker.router.scratch.spare.flows.all_mut().fill(of_other);
    world.send(1, 0);
    world.iterate();
    assert_eq!((world.seen.lock().unwrap().len(), world.worker.router.scratch.spare.flows[0]), (1, None));
}

/// Packets of the first stage continue behind those that wait at the second one.
#[test]
fn packets_of_an_ended_stage_wait_at_the_next_one_and_none_is_lost() {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.add_recorded(0, stage(1, None, 20_000));
    let seen = world.add_recorded(1, stage(2, None, 200_000));
    (0..1000).for_each(|number| world.send(1, number));
    (0..8).for_each(|_| _ = world.iterate());
    let counts = world.counts();
    assert!(counts[&1].waiting > 500 && counts[&2].waiting > 10, "{counts:?}");
    world.unbind_stage(0, 0);
    assert_eq!((world.counts()[&1].waiting, world.counts()[&1].waiting_bytes), (0, 0));
    world.check();
    let numbers: Vec<u16> = seen.lock().unwrap().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<u16>>());
}

/// Slices of an iteration end up to 165 µs after its begin, and iterations begin 100 µs apart: the last packet of an
/// iteration comes to the second stage at a later time than the first packet of the next iteration.
#[test]
fn packets_of_an_ended_stage_continue_in_their_order_whatever_the_clock_says() {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.add_recorded(0, stage(1, Some(8), 55_000));
    world.add_recorded(1, stage(1, Some(1), 55_000));
    let seen = world.add_recorded(2, stage(2, None, 1_000));
    (0..20).for_each(|number| world.send(1, number));
    (0..2).for_each(|_| _ = world.iterate());
    assert!(seen.lock().unwrap().is_empty());
    world.unbind_stage(1, 1);
    world.check();
    let numbers: Vec<u16> = seen.lock().unwrap().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<u16>>());
}

/// More packets pass at once than may, and others of their flow wait at a stage that stays.
#[test]
fn packets_that_wait_again_are_not_dropped_for_those_that_pass_at_once() {
    let mut world = World::new();
    (1..4).for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.add_recorded(0, stage(1, None, 1_000));
    let seen = world.add_recorded(1, stage(2, None, 1_000));
    world.add_recorded(2, stage(3, None, 1_000_000));
    (0..400).for_each(|number| world.send(1, number));
    while world.counts()[&3].waiting < 300 {
        world.iterate();
    }
    // From now on, the first stage keeps its packets.
    let limit = CpuPrincipal { share: CpuShare::Weight(1), limit: Some(1), deadline: None };
    world.set_cpu(1, limit, 1 << 20);
    (400..500).for_each(|number| world.send(1, number));
    world.iterate();
    let counts = world.counts();
    assert!(counts[&1].waiting > 50 && counts[&3].waiting > 257, "{counts:?}");
    let ends = [0, 2].map(|number| PluginChange::Unbind {
        binding: BindingId(number),
        gate: GateId(10 + number as u8),
        filter: world.filters.remove(&number).unwrap(),
    });
    let changes = world.tables.publish(ends.into());
    world.tell(PluginCommand::Change(changes));
    world.check();
    let numbers: Vec<u16> = seen.lock().unwrap().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..500).collect::<Vec<u16>>());
}

/// Nobody pays for the call with the second packet. It ends when the stage ends at which the first packet waits.
#[test]
fn packets_of_calls_at_earlier_stages_continue_behind_those_that_wait_at_an_ended_stage() {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.bind(1, 1, None, (0, 2));
    let slow = Slow { cycles: 200_000, suspensions: 0, left: 0, seen: Seen::default() };
    world.change(PluginChange::AddInstance { id: InstanceId(2), instance: Box::new(slow) });
    world.bind_at(LATER, 2, (GIVER, "dst 10.0.0.0/24"), Some(1));
    let seen = world.add_recorded(3, stage(2, None, 1_000));
    // Packets of other flows come first at the stage.
    (2..9).for_each(|flow| (0..3).for_each(|number| world.send(flow, number)));
    world.send(1, 0);
    (0..2).for_each(|_| _ = world.iterate());
    world.send(1, 1);
    world.iterate();
    assert_eq!(world.worker.router.gates.plugins().waiting(), 1, "a call has the second packet");
    world.unbind(GIVER);
    world.check();
    let of_flow = |(flow, number): &(u8, u16)| (*flow == 1).then_some(*number);
    assert_eq!(seen.lock().unwrap().iter().filter_map(of_flow).collect::<Vec<_>>(), [0, 1]);
}

/// The first packets are held, and the others wait for the processor.
#[test]
fn held_packets_of_an_ended_binding_continue_before_those_that_wait() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    let instance = Box::new(Holding { cycles: 200_000, suspends: false });
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
    world.rebind(1, 1, Some(1));
    let later = Slow { cycles: 0, suspensions: 0, left: 0, seen: world.seen.clone() };
    world.change(PluginChange::AddInstance { id: InstanceId(2), instance: Box::new(later) });
    world.bind_at(LATER, 2, (2, "dst 10.0.0.0/24"), None);
    (0..20).for_each(|number| world.send(1, number));
    let held = |world: &World| world.worker.router.gates.plugins().waiting() as u32;
    while held(&world) < 3 {
        world.iterate();
    }
    assert!(world.counts()[&1].waiting > held(&world), "others wait for the processor");
    world.unbind(1);
    world.check();
    assert_eq!(world.seen.lock().unwrap().len(), 20);
}

/// Returns a world in which packet 0 of flow 1 is in a suspended call, and packet 1 waits for the processor at the same
/// stage, with the record of the next stage. `frames`: packet memory of the worker.
fn with_call(frames: u32) -> (World, Seen) {
    let mut world = World::with_frames(frames);
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, Some(1), (100_000, 30));
    let later = Seen::default();
    let instance = Slow { cycles: 0, suspensions: 0, left: 0, seen: later.clone() };
    world.change(PluginChange::AddInstance { id: InstanceId(2), instance: Box::new(instance) });
    world.bind_at(LATER, 2, (GIVER, "dst 10.0.0.0/24"), None);
    for number in 0..2 {
        world.send(1, number);
        world.iterate();
    }
    assert_eq!((waiting(&world), world.counts()[&1].waiting), (1, 2));
    (world, later)
}

/// Returns the number of packets that wait for instances, or behind calls.
fn waiting(world: &World) -> usize {
    world.worker.router.gates.plugins().waiting()
}

#[test]
fn packets_wait_behind_the_suspended_call_of_an_ended_stage() {
    let (mut world, later) = with_call(1 << 15);
    world.unbind(1);
    assert_eq!((waiting(&world), world.counts()[&1].waiting), (2, 1));
    world.send(1, 2);
    world.send(2, 0);
    world.iterate();
    assert_eq!((waiting(&world), later.lock().unwrap().clone()), (3, vec![(2, 0)]));
    world.check();
    assert_eq!(*later.lock().unwrap(), [(2, 0), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn packets_without_stages_wait_behind_the_suspended_call_of_an_ended_stage() {
    let (mut world, _) = with_call(1 << 15);
    [GIVER, 1].into_iter().for_each(|binding| world.unbind(binding));
    assert!(!world.worker.router.gates.is_bound());
    world.send(1, 2);
    world.send(2, 0);
    world.iterate();
    assert_eq!((waiting(&world), world.worker.router.observation.totals.dropped), (3, 1));
    world.check();
}

/// Packets wait before a call that later changes end, move or repeat.
#[test]
fn packets_behind_the_call_of_an_ended_stage_keep_their_order_whatever_changes() {
    let changes: [fn(&mut World); 5] = [
        |world| world.change(PluginChange::RemoveInstance { id: InstanceId(1) }),
        |world| world.upgrade(1),
        |world| world.tell(PrincipalCommand::Remove(PrincipalId(1))),
        |world| world.rebind(1, 1, Some(1)),
        |world| {
            world.rebind(1, 1, Some(1));
            world.send(1, 3);
            world.iterate();
            world.unbind(1);
        },
    ];
    for change in changes {
        let (mut world, later) = with_call(1 << 15);
        world.unbind(1);
        world.send(1, 2);
        world.iterate();
        change(&mut world);
        (3..6).skip((world.sent - 3) as usize).for_each(|number| world.send(1, number));
        world.check();
        assert_eq!(*later.lock().unwrap(), (0..6).map(|number| (1, number)).collect::<Vec<(u8, u16)>>());
    }
}

#[test]
fn packets_behind_the_call_of_an_ended_stage_leave_memory_to_others() {
    let (mut world, _) = with_call(64);
    world.unbind(1);
    (2..42).for_each(|number| world.send(1, number));
    (0..2).for_each(|_| _ = world.iterate());
    let waits = waiting(&world) as u64;
    let refused = world.worker.router.ports.get(PortId(1)).unwrap().count.drops.get(DropReason::PluginBusy);
    assert!((10..32).contains(&waits) && waits + refused == 42, "{waits} wait, {refused} dropped");
    world.check();
}
