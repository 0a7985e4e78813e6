//! Upgrades of instances whose state is handed over slowly: their packets wait, and the worker serves others.

use std::task::Poll;

use millrace_plugin::{Inherited, Succession};
use millrace_plugin_abi::PluginError;

use super::*;

/// Cycles that an instance uses for a packet.
const CYCLES: u64 = 10_000;

/// Instance that saves its state as soon as the test lets it.
struct Saving {
    is_awaited: bool,
    /// Number of times that it suspends a call.
    suspensions: u32,
    left: u32,
    may_save: Arc<Mutex<bool>>,
    seen: Seen,
}

impl Instance for Saving {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.left = self.suspensions;
        if self.is_awaited { Progress::Awaited } else { self.resume(packets, now) }
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            pretended::pass(QUANTUM.0);
            return Progress::Suspended;
        }
        if !self.is_awaited {
            pretended::pass(CYCLES * packets.len() as u64);
        }
        note(&self.seen, packets);
        Progress::Done
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    fn poll_save(&mut self) -> Poll<Result<Option<Vec<u8>>, PluginError>> {
        pretended::pass(1000);
        if *self.may_save.lock().unwrap() { Poll::Ready(Ok(Some(b"state".to_vec()))) } else { Poll::Pending }
    }

    fn poll_restore(&mut self, state: &[u8], _version: u32) -> Poll<Result<(), PluginError>> {
        assert_eq!(state, b"state");
        Poll::Ready(Ok(()))
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// World with such an instance for flow 1, which `principal` pays for, and the permission to save.
struct Upgraded {
    world: World,
    may_save: Arc<Mutex<bool>>,
    is_awaited: bool,
}

impl Upgraded {
    fn new(principal: Option<u32>, is_awaited: bool, suspensions: u32) -> Self {
        let mut world = World::new();
        [1, 2].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
        let mut upgraded = Self { world, may_save: Arc::default(), is_awaited };
        let instance = upgraded.instance(suspensions);
        upgraded.world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
        upgraded.world.bind_instance(1, (1, 1), principal);
        upgraded
    }

    fn instance(&self, suspensions: u32) -> Box<dyn Instance> {
        let (may_save, seen, is_awaited) = (self.may_save.clone(), self.world.seen.clone(), self.is_awaited);
        Box::new(Saving { is_awaited, suspensions, left: 0, may_save, seen })
    }

    /// Begins the upgrade. The channel receives the result.
    fn begin(&mut self) -> std::sync::mpsc::Receiver<Option<Succession>> {
        let (reply, told) = sync_channel(1);
        let (contexts, inheritance) = (vec![self.instance(0)], Inheritance::Required);
        let successor = Successor::new(contexts, inheritance, 0, true);
        self.world.tell(PluginCommand::Replace(InstanceId(1), successor, reply));
        told
    }
}

#[test]
fn slow_hand_over_delays_no_packet_of_another_instance() {
    for (principal, is_awaited) in [(None, false), (Some(1), false), (Some(1), true)] {
        const ITERATIONS: u16 = 500;
        let mut upgraded = Upgraded::new(principal, is_awaited, 0);
        upgraded.world.bind(2, 2, Some(2), (1000, 0));
        upgraded.world.send(1, 0);
        (0..5).for_each(|_| _ = upgraded.world.iterate());
        let told = upgraded.begin();
        let world = &mut upgraded.world;
        let before = world.counts()[&1].used.0;
        for number in 1..=ITERATIONS {
            world.send(1, number);
            world.send(2, number);
            world.iterate();
            let seen = world.seen.lock().unwrap();
            assert_eq!(seen.last(), Some(&(2, number)), "{principal:?}");
        }
        assert!(told.try_recv().is_err());
        // Its principal pays for the looks at another process.
        let used = world.counts()[&1].used.0 - before;
        let looks = if is_awaited { 1000 * u64::from(ITERATIONS) } else { 0 };
        assert!((looks..=looks + 20_000).contains(&used), "{principal:?}: {used}");
        *upgraded.may_save.lock().unwrap() = true;
        world.check();
        assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Bytes(5)));
        assert_eq!(world.seen.lock().unwrap().iter().filter(|(flow, _)| *flow == 1).count(), 501);
    }
}

/// They wait for the end of another principal's call when the upgrade begins.
#[test]
fn packets_behind_a_hand_over_wait_for_their_principal_then() {
    let mut upgraded = Upgraded::new(Some(1), false, 50);
    upgraded.world.bind_also(1, (2, 2), 2);
    upgraded.world.send(1, 0);
    upgraded.world.iterate();
    for number in 1..20 {
        upgraded.world.send(2, number);
        upgraded.world.iterate();
    }
    let told = upgraded.begin();
    (0..100).for_each(|_| _ = upgraded.world.iterate());
    assert!(told.try_recv().is_err());
    let waiting = upgraded.world.worker.router.gates.plugins().waiting();
    let core = |world: &World| world.counts()[&PrincipalId::CORE.0].used.0;
    let before = core(&upgraded.world);
    *upgraded.may_save.lock().unwrap() = true;
    upgraded.world.check();
    let used = core(&upgraded.world) - before;
    assert!(waiting > 0 && used < CYCLES, "{waiting} packets, {used} cycles");
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Bytes(5)));
    assert_eq!(upgraded.world.seen.lock().unwrap().len(), 20);
}
