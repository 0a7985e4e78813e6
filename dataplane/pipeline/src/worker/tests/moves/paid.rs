//! Principals that pay for eBPF variants.

use millrace_plugin::{Action, CallLimits};
use millrace_schedule::cpu::{CpuPrincipal, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};
use millrace_units::{Cycles, PrincipalId, QueueId};

use super::*;
use crate::commands::PrincipalCommand;
use crate::pending::core_settings::CoreSettings;
use crate::pending::for_processor::PrincipalSettings;

const PAYER: PrincipalId = PrincipalId(1);
/// Cycles per second. Calls of the service at the worker take few.
const FREQUENCY: u64 = 10_000_000_000;

/// Returns a worker whose service is at the offload, and paid by a principal with a limit, in percent.
fn world(limit: u32) -> World {
    let mut world = World::new(1);
    let settings = CpuSchedulerSettings {
        kind: CpuSchedulerKind::StartTimeFair,
        quantum: Cycles(FREQUENCY / 20_000),
        frequency: FREQUENCY,
        capacity: 500_000,
    };
    world.tell(0, PrincipalCommand::Configure(settings, CoreSettings::default(), sync_channel(1).0));
    let cpu = CpuPrincipal { share: CpuShare::Weight(1), limit: Some(limit * 10_000), deadline: None };
    let settings = PrincipalSettings { cpu, queue: 1 << 20, link_queue: QueueId(0) };
    world.tell(0, PrincipalCommand::Set(PAYER, settings, sync_channel(1).0));
    world.change(0, PluginChange::Unbind { binding: BindingId(1), gate: GATE, filter: filter() });
    // Packets that wait for the processor are not offloaded.
    let call_limits = CallLimits { principal: Some(PAYER), in_line: Some(1000), ..CallLimits::default() };
    let (binding, gate, filter, priority) = (BindingId(1), GATE, filter(), 0);
    let action = Action::Instance(INSTANCE);
    world.change(0, PluginChange::Bind { binding, gate, filter, priority, action, call_limits });
    world.move_to(At::Offload);
    world.drain();
    world
}

/// Sends a packet in each iteration for a time. Returns the number of those that the XDP program has sent.
fn offloaded(world: &mut World, millis: usize) -> u64 {
    let before = world.offload.offloaded();
    for _ in 0..millis * 10 {
        world.send(0, 1);
        world.iterate(0);
    }
    world.offload.offloaded() - before
}

/// Returns the time that the principal has used.
fn used(world: &World) -> Duration {
    let waiting = world.members[0].worker.router.pending.for_processor.get().unwrap();
    waiting.scheduler.account(PAYER, world.now).unwrap().used.at(FREQUENCY)
}

/// The variant uses 15 % of the time.
#[test]
fn principal_within_its_limit_pays_for_its_variant_and_keeps_it() {
    let mut world = world(20);
    let packets = offloaded(&mut world, 1500);
    assert!(packets > 14_000, "{packets}");
    // Nothing is left to pay after two intervals of the accounts.
    (0..6000).for_each(|_| world.iterate(0));
    let paid = used(&world).div_duration_f64(VARIANT * packets as u32);
    assert!((1.0..1.1).contains(&paid), "{paid}");
    world.check();
}

/// A worker whose flows are all offloaded sleeps between the accounts, 250 ms.
#[test]
fn principal_within_its_limit_keeps_its_variant_while_the_worker_sleeps() {
    let mut world = world(20);
    offloaded(&mut world, 300);
    for _ in 0..20 {
        let before = world.offload.offloaded();
        (0..2500).for_each(|_| world.send(0, 1));
        assert_eq!(world.offload.offloaded() - before, 2500);
        // The thread sleeps until the next event, and wakes up a little earlier.
        let (worker, end) = (&mut world.members[0].worker, world.now + Duration::from_millis(250));
        while world.now < end {
            let now = world.now;
            let due = worker.iterate(now, || now).next_event.map_or(end, |due| due.min(end));
            let early = Instant::from_nanos(due.as_nanos() - 50_000);
            worker.iterate(early.max(now), || early.max(now));
            world.now = due.max(now + Duration::from_micros(10));
        }
    }
    world.check();
}

#[test]
fn flows_of_a_principal_beyond_its_limit_come_up_to_the_worker() {
    let mut world = world(5);
    let packets = offloaded(&mut world, 1000);
    assert!((2000..6500).contains(&packets), "the first accounts come after 250 ms: {packets}");
    assert!(used(&world) < Duration::from_millis(125), "{:?}", used(&world));
    assert!(offloaded(&mut world, 200) < 20, "it stays at the worker");
    (0..20_000).for_each(|_| world.iterate(0));
    assert!(offloaded(&mut world, 300) > 2000, "the flow is offloaded again");
    // Its packets that found no room while they waited for the processor.
    world.has_failed = true;
    world.check();
}
