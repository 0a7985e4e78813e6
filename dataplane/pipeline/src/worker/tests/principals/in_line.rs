//! Calls in line: packets of an instance with a bound don't wait, and the principal that pays is charged.

use super::*;

/// Weight of each principal.
const WEIGHT: u32 = 1;

#[test]
fn packets_in_line_do_not_wait_and_their_principal_is_charged() {
    let mut world = World::new();
    world.set_principal(1, WEIGHT, 1 << 20);
    world.bind(1, 1, None, (500, 0));
    world.unbind(1);
    world.bind_in_line(1, 1, Some(1));
    (0..100).for_each(|number| world.send(1, number));
    world.iterate();
    let counts = world.counts();
    assert_eq!((counts[&1].waiting, world.seen.lock().unwrap().len()), (0, 100));
    assert_eq!(counts[&1].used, Cycles(100 * 500));
    assert_eq!(counts[&PrincipalId::CORE.0].used, Cycles(0), "{counts:?}");
    // A filter gives the path another principal.
    world.set_principal(2, WEIGHT, 1 << 20);
    world.unbind(1);
    world.bind_in_line(1, 1, None);
    world.give(Some(2));
    (100..200).for_each(|number| world.send(1, number));
    world.iterate();
    assert_eq!((world.counts()[&1].used, world.counts()[&2].used), (Cycles(50_000), Cycles(50_000)));
    world.check();
}

#[test]
fn without_a_principal_core_pays_for_calls_in_line() {
    let mut world = World::new();
    world.set_principal(1, WEIGHT, 1 << 20);
    world.bind(1, 1, None, (500, 0));
    world.unbind(1);
    world.bind_in_line(1, 1, None);
    (0..100).for_each(|number| world.send(1, number));
    world.iterate();
    assert_eq!(world.counts()[&PrincipalId::CORE.0].used, Cycles(50_000));
    world.check();
}

/// Two busy principals of equal weight, one of which also has calls in line.
#[test]
fn time_in_line_counts_in_the_share_of_its_principal() {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_principal(id, WEIGHT, 1 << 20);
        world.bind(id, id as u8, Some(id), (10_000, 0));
    }
    world.bind(3, 3, None, (1000, 0));
    world.unbind(3);
    world.bind_in_line(3, 3, Some(1));
    for number in 0..2000 {
        [1, 2].into_iter().for_each(|flow| world.send(flow, number));
    }
    let mut number = 0;
    while world.counts()[&2].used.0 < 5_000_000 {
        for _ in 0..20 {
            world.send(3, number);
            number += 1;
        }
        world.iterate();
    }
    let (counts, in_line) = (world.counts(), u64::from(number) * 1000);
    assert!(in_line > 500_000, "{number}");
    assert!(counts[&1].used.0.abs_diff(counts[&2].used.0) <= 2 * QUANTUM.0, "{counts:?}");
    let waited = 10_000 * (counts[&2].packets - (counts[&1].packets - u64::from(number)));
    assert!(waited.abs_diff(in_line) <= 2 * QUANTUM.0, "{counts:?} {in_line}");
    world.check();
}

#[test]
fn packets_wait_after_eight_calls_in_line_beyond_ten_times_their_bound() {
    let mut world = World::new();
    world.set_principal(1, WEIGHT, 1 << 20);
    world.bind(1, 1, None, (80_000, 0));
    world.unbind(1);
    world.bind_in_line(1, 1, Some(1));
    for number in 0..8 {
        world.send(1, number);
        world.iterate();
        assert_eq!(world.seen.lock().unwrap().len(), 1 + usize::from(number));
    }
    (8..100).for_each(|number| world.send(1, number));
    world.iterate();
    assert!(world.counts()[&1].waiting > 50, "{:?}", world.counts());
    world.check();
}

/// Flow whose packets run in line.
struct Flood {
    flow: u8,
    number: u16,
}

impl Flood {
    /// Sends packets in each of `iterations`. Returns the greatest number that waited at once.
    fn run(&mut self, world: &mut World, iterations: u64, packets: u16) -> u32 {
        let mut most = 0;
        for _ in 0..iterations {
            for _ in 0..packets {
                world.send(self.flow, self.number);
                self.number = self.number.wrapping_add(1);
            }
            world.iterate();
            most = most.max(world.counts()[&u32::from(self.flow)].waiting);
        }
        most
    }
}

/// Nobody else has work, yet a principal gets no more than its limit.
#[test]
fn limit_of_a_principal_holds_for_calls_in_line() {
    let mut world = World::new();
    let share = CpuShare::Weight(WEIGHT);
    world.set_cpu(1, CpuPrincipal { share, limit: Some(100_000), deadline: None }, 1 << 20);
    world.bind(1, 1, None, (500, 0));
    world.unbind(1);
    world.bind_in_line(1, 1, Some(1));
    let mut flood = Flood { flow: 1, number: 0 };
    // 100 packets of 500 cycles in 100 µs: half of a processor of 1 GHz.
    let most = flood.run(&mut world, 150, 100);
    let Cycles(used) = world.counts()[&1].used;
    let limit = 150 * 10_000;
    assert!(used.abs_diff(limit) <= QUANTUM.0 + 50_000, "{used} of {limit}");
    assert!(most > 1000, "{most}");
    world.drain();
    world.iterate();
    // Within the limit, packets run in line again.
    let before = world.counts()[&1];
    flood.run(&mut world, 100, 10);
    let after = world.counts()[&1];
    assert_eq!(
        (after.periods, after.packets),
        (before.periods, before.packets + 1000),
        "no packet has waited"
    );
    world.check();
}

/// A principal without a limit gets its share beside a busy one, and all that a quiet one leaves.
#[test]
fn share_of_a_principal_bounds_its_calls_in_line() {
    for deadline in [None, Some(Duration::from_millis(5))] {
        let mut world = World::new();
        for id in [1, 2] {
            let share = CpuShare::Absolute(200_000);
            world.set_cpu(id, CpuPrincipal { share, limit: None, deadline }, 1 << 22);
        }
        world.bind(1, 1, None, (500, 0));
        world.unbind(1);
        world.bind_in_line(1, 1, Some(1));
        let mut flood = Flood { flow: 1, number: 0 };
        assert_eq!(flood.run(&mut world, 100, 200), 0, "nobody else has work");
        world.bind(2, 2, Some(2), (10_000, 0));
        (0..1000).for_each(|number| world.send(2, number));
        world.iterate();
        let before = world.counts();
        while world.counts()[&2].waiting > 100 && flood.number < 60_000 {
            flood.run(&mut world, 1, 200);
        }
        let used = |id| world.counts()[&id].used.0 - before[&id].used.0;
        assert!(used(2) > 2_000_000, "{}", used(2));
        assert!(used(1) < used(2) + 6 * QUANTUM.0, "{deadline:?}: {} {}", used(1), used(2));
        world.check();
    }
}
