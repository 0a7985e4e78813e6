//! Time in which the worker handles the answers of other processes: principals pay for it.

use super::*;

/// Instance whose calls another process runs. At each look, the worker handles answers for a number of cycles.
struct Talkative {
    cycles: u64,
    /// Number of looks until a call ends.
    looks: u32,
    left: u32,
}

impl Instance for Talkative {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.left = self.looks;
        Progress::Awaited
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        pretended::pass(self.cycles);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return Progress::Awaited;
        }
        packets.for_each(|_, _| Verdict::Pass);
        Progress::Done
    }

    fn message(&mut self, _bytes: &[u8]) -> Progress {
        self.left = self.looks;
        Progress::Awaited
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn patience(&self) -> u32 {
        1000
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

const CYCLES: u64 = 20_000;

/// Returns a world with such an instance, which handles the flows with the numbers of two principals.
fn world(looks: u32, principals: &[u32]) -> World {
    let mut world = World::new();
    [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    let instance = Box::new(Talkative { cycles: CYCLES, looks, left: 0 });
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
    for id in principals {
        world.bind_instance(1, (*id, *id as u8), Some(*id));
    }
    world
}

/// Returns the cycles that principal 1 and core have used.
fn used(world: &World) -> (u64, u64) {
    let counts = world.counts();
    (counts[&1].used.0, counts[&PrincipalId::CORE.0].used.0)
}

#[test]
fn principal_of_a_call_pays_for_its_answers() {
    const LOOKS: u32 = 30;
    let mut world = world(LOOKS, &[1, 2]);
    world.send(1, 0);
    world.check();
    let (own, core) = used(&world);
    let all = u64::from(LOOKS) * CYCLES;
    assert!((all..all + CYCLES).contains(&own) && core < CYCLES, "{own} {core}");
    assert_eq!(world.counts()[&2].used.0, 0);
}

#[test]
fn principal_of_an_instance_pays_for_answers_to_its_messages() {
    const LOOKS: u32 = 30;
    let mut world = world(LOOKS, &[1]);
    world.tell(PluginCommand::Message(InstanceId(1), b"go".to_vec()));
    (0..=LOOKS).for_each(|_| _ = world.iterate());
    let (own, core) = used(&world);
    let all = u64::from(LOOKS) * CYCLES;
    assert!((all..all + CYCLES).contains(&own) && core < CYCLES, "{own} {core}");
}

/// 20,000 cycles in each iteration would be a fifth of the processor.
#[test]
fn answers_of_a_principal_beyond_its_limit_are_handled_once_in_a_millisecond() {
    for is_message in [false, true] {
        let mut world = world(u32::MAX, &[1]);
        let cpu = CpuPrincipal { share: CpuShare::Weight(1), limit: Some(10_000), deadline: None };
        world.set_cpu(1, cpu, 1 << 20);
        match is_message {
            true => world.tell(PluginCommand::Message(InstanceId(1), b"go".to_vec())),
            false => world.send(1, 0),
        }
        (0..5000).for_each(|_| _ = world.iterate());
        let (own, core) = used(&world);
        // 500 ms, and a time before the limit holds.
        assert!((400 * CYCLES..560 * CYCLES).contains(&own) && core < CYCLES, "{own} {core}");
    }
}
