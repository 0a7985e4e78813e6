//! Packets that another instance passes on to a process, or has classified again: they take their turn there.

use super::processes::{FIRST, ITERATION, SECOND, Shared, owner};
use super::*;

/// Way of the packets of the first principal to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// An instance that the worker calls passes them on.
    Worker,
    /// An instance whose calls another process runs passes them on.
    Process,
    /// An instance has them classified again; the process is at a later gate.
    Classify,
}

const WAYS: [Way; 3] = [Way::Worker, Way::Process, Way::Classify];

/// Instance on the way to the process.
struct OnTheWay(Way);

impl Instance for OnTheWay {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        if self.is_awaited() { Progress::Awaited } else { self.resume(packets, now) }
    }

    fn is_awaited(&self) -> bool {
        self.0 == Way::Process
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, packet| match self.0 {
            Way::Classify if packet.passes == 0 => Verdict::Classify,
            Way::Classify => Verdict::Pass,
            Way::Worker | Way::Process => Verdict::Instance(InstanceId(FIRST as u16)),
        });
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Returns a world whose process gets the packets of the first principal by this way, and those of others directly.
fn shared(way: Way, each: Duration, queue: u32) -> Shared {
    let mut shared = Shared::new(each, [queue, 1 << 20, 1 << 20]);
    let id = InstanceId(SECOND as u16);
    shared.world.change(PluginChange::AddInstance { id, instance: Box::new(OnTheWay(way)) });
    for flow in (1..10).filter(|flow| owner(*flow) == 1) {
        shared.world.unbind(flow);
        shared.world.bind_instance(SECOND, (flow, flow as u8), Some(1));
        if way == Way::Classify {
            shared.world.bind_at(LATER, FIRST, (SECOND + flow, &format!("dst 10.0.0.{flow}/32")), Some(1));
        }
    }
    shared
}

#[test]
fn packets_passed_on_to_a_process_take_their_turn() {
    const EACH: Duration = Duration::from_millis(3);
    for way in WAYS {
        let mut shared = shared(way, EACH, 3000);
        (0..200).for_each(|number| shared.world.send(1, number));
        (0..20).for_each(|_| _ = shared.world.iterate());
        for number in 0..10 {
            (0..5).for_each(|more| shared.world.send(1, 200 + 5 * number + more));
            shared.world.send(2, number);
            let took = shared.time_to((2, number));
            assert!(took <= 2 * EACH + 5 * ITERATION, "{way:?}: {took:?}");
        }
        let counts = shared.world.counts();
        assert!(counts[&1].drops.queue > 50, "{way:?}: {counts:?}");
        assert_eq!(counts[&2].drops.total(), 0, "{way:?}: {counts:?}");
        let seen = shared.world.seen.lock().unwrap().iter().filter(|(flow, _)| *flow == 1).count();
        assert!(seen >= 8, "{way:?}: {seen}");
        shared.world.check();
    }
}

/// The instance on the way is called once for each packet, also after a change of bindings.
#[test]
fn packets_passed_on_wait_for_the_process_until_it_ends() {
    for way in [Way::Worker, Way::Process] {
        let mut shared = shared(way, Duration::from_millis(1), 1 << 20);
        (0..30).for_each(|number| shared.world.send(1, number));
        (0..40).for_each(|_| _ = shared.world.iterate());
        shared.world.unbind(3);
        (0..5).for_each(|_| _ = shared.world.iterate());
        let bindings = &shared.world.worker.router.gates.plugins().bindings;
        assert_eq!(bindings.counts(BindingId(1)).unwrap().packets, 30, "{way:?}");
        let waiting = shared.world.counts()[&1].waiting;
        assert!(waiting > 10, "{way:?}: {waiting}");
        // Without the process, they continue at the next stage.
        shared.world.change(PluginChange::RemoveInstance { id: InstanceId(FIRST as u16) });
        shared.world.check();
    }
}

#[test]
fn packets_passed_on_never_reach_a_later_instance_with_the_same_number() {
    let mut shared = shared(Way::Worker, Duration::from_millis(1), 1 << 20);
    (0..30).for_each(|number| shared.world.send(1, number));
    (0..40).for_each(|_| _ = shared.world.iterate());
    assert!(shared.world.counts()[&1].waiting > 10);
    let (id, seen) = (InstanceId(FIRST as u16), Seen::default());
    shared.world.change(PluginChange::RemoveInstance { id });
    let later = Slow { cycles: 1000, suspensions: 0, left: 0, seen: Arc::clone(&seen) };
    shared.world.change(PluginChange::AddInstance { id, instance: Box::new(later) });
    // They continue at the next stage.
    shared.world.check();
    assert_eq!(*seen.lock().unwrap(), []);
}

/// Step of a random history.
#[derive(Clone, Copy, Debug)]
enum Move {
    Send(u8),
    Iterate,
    /// Time of a packet in microseconds.
    Each(u64),
    /// Binds the flow of the third principal, or no more. All waiting packets begin to wait again.
    Bind(bool),
}

fn random_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        20 => (1_u8..6).prop_map(Move::Send),
        8 => Just(Move::Iterate),
        1 => (0_u64..3000).prop_map(Move::Each),
        1 => any::<bool>().prop_map(Move::Bind),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_packet_passed_on_is_lost_and_no_flow_reordered(
        way in 0_usize..3,
        moves in prop::collection::vec(random_move(), 1..200),
    ) {
        let mut shared = shared(WAYS[way], Duration::from_micros(100), 1 << 20);
        let mut sent = 0;
        for (number, step) in (0..).zip(moves) {
            match step {
                Move::Send(flow) => {
                    shared.world.send(flow, number);
                    sent += usize::from(flow != 3);
                }
                Move::Iterate => _ = shared.world.iterate(),
                Move::Each(micros) => *shared.each.lock().unwrap() = Duration::from_micros(micros),
                Move::Bind(true) if !shared.world.filters.contains_key(&3) => {
                    shared.world.bind_instance(FIRST, (3, 3), Some(3));
                }
                Move::Bind(true) => {}
                Move::Bind(false) => shared.world.unbind(3),
            }
        }
        shared.world.check();
        let seen = shared.world.seen.lock().unwrap().iter().filter(|(flow, _)| *flow != 3).count();
        prop_assert_eq!(seen, sent);
    }
}
