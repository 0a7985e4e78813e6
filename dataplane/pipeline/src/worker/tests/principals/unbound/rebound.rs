//! Bindings that change in place while packets wait: the packets keep their stage, and the instance gets all of them.

use super::*;

impl World {
    /// Changes the limits of a binding in place.
    fn renew(&mut self, (gate, number): (GateId, u32), call_limits: CallLimits) {
        let (binding, filter) = (BindingId(number), self.filters[&number].clone());
        self.change(PluginChange::Rebind { binding, gate, filter, priority: 0, call_limits });
    }

    /// Returns the packets that wait for a principal, and their bytes.
    fn waiting(&self, id: u32) -> (u32, u64) {
        let counts = self.counts()[&id];
        (counts.waiting, counts.waiting_bytes)
    }

    /// Checks that the instance has got these packets of flow 1 in their order, and that each has left the router.
    fn check_seen(&mut self, packets: u16) {
        self.check();
        let numbers: Vec<u16> = self.seen.lock().unwrap().iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..packets).collect::<Vec<u16>>());
    }
}

/// Returns the limits of a binding that names a principal, or none.
fn limits(principal: Option<u32>) -> CallLimits {
    CallLimits {
        call: CallLimits::DEFAULT_PAID_CALL,
        principal: principal.map(PrincipalId),
        link_queue: QueueId(principal.unwrap_or_default() as u16),
        ..CallLimits::default()
    }
}

/// Returns a world in which packets 0 to 199 of flow 1 wait for principal 1, except the first.
fn with_waiting(cycles: u64) -> World {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.bind(1, 1, Some(1), (cycles, 0));
    (0..200).for_each(|number| world.send(1, number));
    world.iterate();
    assert!(world.waiting(1).0 > 100, "{:?}", world.counts());
    world
}

#[test]
fn waiting_packets_move_to_the_queue_of_the_new_payer() {
    let mut world = with_waiting(50_000);
    let (waiting, used) = (world.waiting(1), world.counts()[&1].used);
    world.renew((GATE, 1), limits(Some(2)));
    assert_eq!((world.waiting(1), world.waiting(2)), ((0, 0), waiting));
    (200..250).for_each(|number| world.send(1, number));
    world.check_seen(250);
    // The former payer gets no packet more.
    assert!(world.counts()[&1].used.0 < used.0 + 50_000, "{used:?}: {:?}", world.counts());
    assert!(world.counts()[&2].used.0 >= 50_000 * 100, "{:?}", world.counts());
}

/// With the same payer, the packets also keep their places.
#[test]
fn waiting_packets_keep_their_places_when_limits_or_priority_change() {
    let mut world = with_waiting(50_000);
    let before = world.counts()[&1];
    world.renew((GATE, 1), CallLimits { queue: Some(3), ..limits(Some(1)) });
    let (binding, filter, call_limits) = (BindingId(1), world.filters[&1].clone(), limits(Some(1)));
    world.change(PluginChange::Rebind { binding, gate: GATE, filter, priority: 7, call_limits });
    assert_eq!(world.counts()[&1], before);
    (200..250).for_each(|number| world.send(1, number));
    world.check_seen(250);
}

/// The packets of the former payer came first, and no packet of the filter's principal may overtake them.
#[test]
fn waiting_packets_go_to_the_principal_of_a_filter_if_their_binding_names_none_any_more() {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.bind(1, 1, Some(1), (50_000, 0));
    world.give(Some(2));
    (0..200).for_each(|number| world.send(1, number));
    world.iterate();
    let waiting = world.waiting(1);
    assert!(waiting.0 > 100);
    world.renew((GATE, 1), limits(None));
    assert_eq!((world.waiting(1), world.waiting(2)), ((0, 0), waiting));
    (200..250).for_each(|number| world.send(1, number));
    world.iterate();
    world.renew((GATE, 1), limits(Some(1)));
    assert_eq!(world.waiting(2), (0, 0));
    (250..300).for_each(|number| world.send(1, number));
    world.check_seen(300);
}

#[test]
fn waiting_packets_follow_a_filter_that_changes_in_place() {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.bind(1, 1, None, (50_000, 0));
    world.give(Some(1));
    (0..100).for_each(|number| world.send(1, number));
    world.iterate();
    let waiting = world.waiting(1);
    assert!(waiting.0 > 50);
    let call_limits = CallLimits { principal: Some(PrincipalId(2)), ..CallLimits::default() };
    world.renew((LATER, GIVER), call_limits);
    assert_eq!((world.waiting(1), world.waiting(2)), ((0, 0), waiting));
    (100..150).for_each(|number| world.send(1, number));
    world.check_seen(150);
}

#[test]
fn packets_without_a_payer_reach_the_instance_at_once() {
    let mut world = with_waiting(10_000);
    world.renew((GATE, 1), limits(None));
    assert_eq!((world.waiting(1), world.seen.lock().unwrap().len()), ((0, 0), 200));
    (200..250).for_each(|number| world.send(1, number));
    world.check_seen(250);
}

#[test]
fn calls_in_line_begin_behind_the_packets_that_wait() {
    for payer in [1, 2] {
        let mut world = with_waiting(10_000);
        let principal = Some(PrincipalId(payer));
        let call_limits = CallLimits { principal, in_line: Some(2_000), ..CallLimits::default() };
        world.renew((GATE, 1), call_limits);
        (200..250).for_each(|number| world.send(1, number));
        world.iterate();
        assert!(world.waiting(payer).0 > 50, "{:?}", world.counts());
        world.check_seen(250);
        // Later packets don't wait.
        world.iterate();
        (250..260).for_each(|number| world.send(1, number));
        world.iterate();
        assert_eq!((world.waiting(payer).0, world.seen.lock().unwrap().len()), (0, 260));
        world.check_seen(260);
    }
}

#[test]
fn suspended_calls_go_on_when_the_payer_changes() {
    for (before, after) in [(Some(1), Some(2)), (Some(1), None), (None, Some(1))] {
        let mut world = World::new();
        [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
        // An iteration has time for several slices of a principal, and for one of a call without a payer.
        let cycles = if before.is_some() { (100_000, 30) } else { (20_000, 5) };
        world.bind(1, 1, before, cycles);
        for number in 0..10 {
            world.send(1, number);
            world.iterate();
        }
        assert!(world.worker.router.gates.plugins().waiting() > 0, "a call is suspended");
        world.renew((GATE, 1), limits(after));
        for number in 10..20 {
            world.send(1, number);
            world.iterate();
        }
        world.check_seen(20);
    }
}

/// A call of one slice would be an overrun.
#[test]
fn suspended_calls_keep_their_limits() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.bind(1, 1, Some(1), (100_000, 30));
    world.send(1, 0);
    (0..3).for_each(|_| _ = world.iterate());
    assert_eq!(world.worker.router.gates.plugins().waiting(), 1, "a call is suspended");
    world.renew((GATE, 1), CallLimits { call: Duration::ZERO, ..limits(Some(1)) });
    world.check_seen(1);
    // The limits hold for the next call.
    world.send(1, 1);
    world.check_seen(1);
}
