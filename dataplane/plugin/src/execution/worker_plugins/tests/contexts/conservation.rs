//! Conservation and order of packets under random calls, faults, upgrades and removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use millrace_units::PrincipalId;

use super::*;

/// Principal that pays for calls.
const PAYER: PrincipalId = PrincipalId(1);

/// Packets that all copies of the instance have handled.
type Handled = Arc<AtomicU64>;

/// Instance whose calls take 1 to 4 slices, and fail now and then. The first byte of the first packet decides.
struct Erratic {
    left: u8,
    failed: bool,
    own: u64,
    all: Handled,
}

impl Erratic {
    fn boxed(all: &Handled) -> Box<dyn Instance> {
        Box::new(Self { left: 0, failed: false, own: 0, all: all.clone() })
    }

    fn go_on(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            return Progress::Suspended;
        }
        packets.for_each(|_, packet| {
            self.own += 1;
            self.all.fetch_add(1, Ordering::Relaxed);
            match packet.data_mut()[0] % 16 {
                14 => Verdict::Drop(3),
                15 => {
                    self.failed = true;
                    Verdict::Fault
                }
                _ => Verdict::Pass,
            }
        });
        Progress::Done
    }
}

impl Instance for Erratic {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let mut first = None;
        packets.for_each(|_, packet| {
            first.get_or_insert(packet.data_mut()[0]);
            Verdict::Pass
        });
        self.left = first.unwrap_or_default() / 64;
        self.go_on(packets)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.go_on(packets)
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.failed).then(|| Fault { kind: "erratic", text: "by chance".into() })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("handled", self.own)]
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.own))
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Sends packets: source port and first byte of each.
    Send(Vec<(u16, u8)>),
    /// Runs the suspended calls.
    Resume,
    /// Lets this time pass, in milliseconds.
    Pass(u64),
    /// Upgrades the instance to one with this number of contexts.
    Upgrade(u8),
    /// Sends a control message.
    Ask,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packets = prop::collection::vec((100..112u16, any::<u8>()), 1..12);
    let step = prop_oneof![
        6 => packets.prop_map(Step::Send),
        6 => Just(Step::Resume),
        2 => (1..200u64).prop_map(Step::Pass),
        1 => (1..=4u8).prop_map(Step::Upgrade),
        1 => Just(Step::Ask),
    ];
    prop::collection::vec(step, 1..60)
}

/// Worker with its packets in the order in which they left.
struct World {
    worker: WorkerPlugins<ByPort>,
    path: PathId,
    pool: Pool,
    handled: Handled,
    now: Instant,
    sent: u32,
    /// Number of requests that have no answer yet.
    unanswered: Arc<AtomicU64>,
    /// Whether a principal pays for the calls.
    is_paid: bool,
    /// Source port and number of each packet that has left, and whether it passed.
    left: Vec<(u16, u32, bool)>,
}

impl World {
    fn new(contexts: u8) -> Self {
        let handled = Handled::default();
        let mut worker = worker();
        let id = InstanceId(0);
        change(&mut worker, PluginChange::AddInstance { id, instance: Erratic::boxed(&handled) });
        for _ in 1..contexts {
            change(&mut worker, PluginChange::AddContext { id, instance: Erratic::boxed(&handled) });
        }
        bind(&mut worker, 0, 0, 80, 0);
        let path = path_of(&mut worker, 80);
        worker.calls.memory.set_limit(PAYER, None);
        let (pool, now) = (Pool::new(2048).unwrap(), Instant::ZERO);
        let (unanswered, left) = (Arc::default(), Vec::new());
        Self { worker, path, pool, handled, now, sent: 0, unanswered, is_paid: false, left }
    }

    /// Counts a request. The returned function counts its answer.
    fn expect_answer(&self) -> impl FnOnce() + use<> {
        let unanswered = self.unanswered.clone();
        unanswered.fetch_add(1, Ordering::Relaxed);
        move || _ = unanswered.fetch_sub(1, Ordering::Relaxed)
    }

    fn send(&mut self, packets: &[(u16, u8)]) {
        let mut built = Vec::new();
        for (_, first) in packets {
            let mut bytes = [0; 60];
            bytes[0] = *first;
            bytes[1..5].copy_from_slice(&self.sent.to_ne_bytes());
            self.sent += 1;
            built.push(self.pool.packet_from(&bytes).unwrap());
        }
        let sources: Vec<u16> = packets.iter().map(|(source, _)| *source).collect();
        let at = (self.path, Position::Early);
        let sent = Sent::of(&mut self.worker, built, at, &sources, self.now);
        for (index, source) in sources.iter().enumerate() {
            let fate = sent.taken.iter().find(|(taken, _)| usize::from(*taken) == index);
            if !matches!(fate, Some((_, Taken::Keep(_)))) {
                assert_eq!(fate.is_none(), sent.members.contains(&(index as u16)));
                self.left.push((*source, number_of(&sent.packets[index]), fate.is_none()));
            }
        }
        keep_all(&mut self.worker, sent);
    }

    /// Lets a principal pay for all calls, whose packets come from its queue: it is the stage's turn.
    fn paid(mut self) -> Self {
        unbind(&mut self.worker, 0);
        let action = Action::Instance(InstanceId(0));
        let call_limits = CallLimits { principal: Some(PAYER), ..CallLimits::default() };
        let (binding, gate) = (BindingId(0), GateId(0));
        change(
            &mut self.worker,
            PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits },
        );
        self.path = path_of(&mut self.worker, 80);
        let turn = Place { path: self.path, position: Position::Early, stage: 0 };
        self.worker.calls.is_scheduled = true;
        (self.worker.calls.running, self.worker.calls.turn) = (Some(PAYER), Some(turn));
        self.is_paid = true;
        self
    }

    fn resume(&mut self) {
        let mut released = Vec::new();
        self.worker.resume(self.now, &NoQueues, &mut released);
        if self.is_paid {
            // Calls that nobody pays for: control messages.
            self.worker.calls.running = None;
            self.worker.resume(self.now, &NoQueues, &mut released);
            self.worker.calls.running = Some(PAYER);
        }
        let packets = released.into_iter();
        self.left.extend(
            packets
                .map(|one| (one.waiting.key.source_port, number_of(&one.waiting.packet), one.end.is_none())),
        );
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Send(packets) => self.send(packets),
            Step::Resume => self.resume(),
            Step::Pass(time) => self.now += Duration::from_millis(*time),
            Step::Upgrade(contexts) => {
                let contexts = (0..*contexts).map(|_| Erratic::boxed(&self.handled)).collect();
                let inheritance = Inheritance::Tried;
                let successor = Successor::new(contexts, inheritance, 0, true);
                let told = self.expect_answer();
                self.worker.succeed(InstanceId(0), successor, self.now, Box::new(move |_| told()));
            }
            Step::Ask => {
                let read = Message { name: "read".into(), arguments: serde_json::Map::new() };
                let told = self.expect_answer();
                self.worker.control(InstanceId(0), &read, self.now, Box::new(move |_| told()));
            }
        }
    }

    /// Returns the number of packets that left, and checks the order of each flow.
    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.left.len() + self.worker.waiting(), self.sent as usize);
        prop_assert_eq!(self.pool.in_use() as usize, self.worker.waiting());
        let waiting = if self.is_paid { self.worker.waiting() as u64 } else { 0 };
        let used = self.worker.calls.memory.account(PAYER);
        prop_assert_eq!((used.suspended_packets, used.suspended), (waiting, 60 * waiting));
        for flow in 100..112 {
            let numbers =
                self.left.iter().filter(|(source, ..)| *source == flow).map(|(_, number, _)| *number);
            prop_assert!(numbers.is_sorted(), "{:?}", self.left);
        }
        Ok(())
    }
}

fn number_of(packet: &Packet) -> u32 {
    u32::from_ne_bytes(packet.data()[1..5].try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn packets_are_conserved_and_keep_the_order_of_their_flow(
        contexts in 1..=4u8,
        steps in steps(),
        removes: bool,
        is_paid: bool,
    ) {
        let mut world = World::new(contexts);
        if is_paid {
            world = world.paid();
        }
        for step in &steps {
            world.take(step);
            world.check()?;
        }
        let report = report(&world.worker);
        prop_assert_eq!(report.counters["handled"], world.handled.load(Ordering::Relaxed));
        if removes {
            unbind(&mut world.worker, 0);
            drop(world.worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }));
        }
        for _ in 0..10_000 {
            if world.worker.waiting() == 0 && world.unanswered.load(Ordering::Relaxed) == 0 {
                break;
            }
            world.resume();
        }
        prop_assert_eq!(world.left.len(), world.sent as usize);
        prop_assert_eq!(world.unanswered.load(Ordering::Relaxed), 0);
        world.check()?;
        if !removes {
            let counts = world.worker.bindings.counts(BindingId(0)).unwrap();
            let dropped = world.left.iter().filter(|(.., passed)| !passed).count();
            prop_assert_eq!((counts.packets, counts.drops), (u64::from(world.sent), dropped as u64));
        }
    }
}
