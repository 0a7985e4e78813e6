//! Packets that instances hold: they count in the memory of the principal that pays for the call.

use millrace_packet::DropReason;

use super::*;

const HOLD: Duration = Duration::from_millis(20);
/// Bytes of a packet.
const BYTES: u64 = 60;

/// Instance that holds each packet, at the end of a call with several slices if it suspends.
pub(super) struct Holding {
    pub cycles: u64,
    pub suspends: bool,
}

impl Instance for Holding {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        if self.suspends { Progress::Suspended } else { self.resume(packets, now) }
    }

    fn resume(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        pretended::pass(self.cycles * packets.len() as u64);
        packets.for_each(|_, _| Verdict::Hold(now + HOLD));
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Returns a world with a principal whose instance holds the packets of a flow.
fn holding(suspends: bool, in_line: bool) -> World {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    let instance = Box::new(Holding { cycles: 500, suspends });
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
    match in_line {
        true => world.bind_in_line(1, 1, Some(1)),
        false => world.rebind(1, 1, Some(1)),
    }
    world
}

fn send_and_hold(world: &mut World, packets: u16) {
    (0..packets).for_each(|number| world.send(1, number));
    (0..20).for_each(|_| _ = world.iterate());
}

fn held(world: &World) -> (u32, u64) {
    world.counts().get(&1).map_or((0, 0), |counts| (counts.waiting, counts.waiting_bytes))
}

#[test]
fn held_packets_count_in_the_memory_of_their_payer_until_they_continue() {
    for (suspends, in_line) in [(false, false), (true, false), (false, true)] {
        let mut world = holding(suspends, in_line);
        send_and_hold(&mut world, 10);
        assert_eq!(held(&world), (10, 10 * BYTES), "{suspends} {in_line}");
        world.upgrade(1);
        assert_eq!(held(&world), (10, 10 * BYTES));
        world.check();
        assert_eq!(held(&world), (0, 0));
    }
}

#[test]
fn packets_above_the_memory_of_their_payer_are_not_held() {
    for (suspends, in_line) in [(false, false), (true, false), (false, true)] {
        let mut world = holding(suspends, in_line);
        world.tell(PrincipalCommand::LimitMemory(PrincipalId(1), Some(10 * BYTES)));
        // One by one: packets that wait for the processor need memory, too.
        for number in 0..30 {
            world.send(1, number);
            world.iterate();
            world.iterate();
            assert!(held(&world).1 <= 10 * BYTES, "{suspends} {in_line}");
        }
        let drops = world.worker.router.ports.get(PortId(1)).unwrap().count.drops.clone();
        let refused = drops.get(DropReason::PrincipalMemory);
        assert_eq!((held(&world).0, refused, drops.get(DropReason::PluginBusy)), (10, 20, 0));
        assert_eq!(world.counts()[&1].drops.memory, 20);
        world.check();
        assert_eq!(held(&world), (0, 0));
    }
}

#[test]
fn held_packets_that_continue_early_count_no_longer() {
    let mut world = holding(false, false);
    send_and_hold(&mut world, 10);
    world.unbind(1);
    world.iterate();
    assert_eq!(held(&world), (0, 0));
    world.check();
}

/// Packets that were held for the removed principal don't count for a later one with its number.
#[test]
fn held_packets_of_a_removed_principal_count_for_nobody() {
    let mut world = holding(false, false);
    send_and_hold(&mut world, 10);
    world.tell(PrincipalCommand::Remove(PrincipalId(1)));
    world.set_principal(1, 1, 1 << 20);
    assert_eq!(held(&world), (0, 0));
    (0..10).for_each(|_| _ = world.iterate());
    (10..15).for_each(|number| world.send(1, number));
    // The first packets continue meanwhile.
    (0..(HOLD.as_micros() / 100 - 20)).for_each(|_| _ = world.iterate());
    assert_eq!(held(&world), (5, 5 * BYTES));
    world.check();
    assert_eq!(held(&world), (0, 0));
}

/// Instance of another process that never answers.
struct Silent;

impl Instance for Silent {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

#[test]
fn copies_that_wait_for_an_instance_leave_memory_to_packets() {
    const TAP: GateId = GateId(3);
    let mut world = World::with_frames(1024);
    world.change(PluginChange::AddGate { gate: TAP, position: Position::Copy, order: GateOrder(1) });
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance: Box::new(Silent) });
    world.bind_at(TAP, 1, (1, "dst 10.0.0.1/32"), None);
    for _ in 0..10 {
        (0..100).for_each(|number| world.send(1, number));
        world.iterate();
    }
    // Half of the memory is for packets that wait, and one instance gets half of that.
    assert_eq!(world.worker.router.gates.plugins().waiting(), 256);
}
