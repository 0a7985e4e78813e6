//! Instances whose calls another process runs: packets wait in the queues of their flows until the instance takes
//! them.

use super::*;

/// Instance whose calls another process runs. It records the packets at the end of each call.
struct Process {
    /// Time of a packet.
    each: Arc<Mutex<Duration>>,
    /// Factors of this time, by principal.
    factors: Arc<Mutex<[u32; 3]>>,
    began: Instant,
    ends: Instant,
    /// Principal and time of each call.
    calls: Arc<Mutex<Vec<(u32, Duration)>>>,
    seen: Seen,
    /// Greatest number of packets in a call.
    most: Arc<Mutex<usize>>,
}

impl Instance for Process {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let mut most = self.most.lock().unwrap();
        *most = packets.len().max(*most);
        let factor = self.factors.lock().unwrap()[payer(packets) as usize - 1];
        self.began = now;
        self.ends = now + *self.each.lock().unwrap() * factor * packets.len() as u32;
        Progress::Awaited
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn resume(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        if now < self.ends {
            return Progress::Awaited;
        }
        self.calls.lock().unwrap().push((payer(packets), now.since(self.began)));
        note(&self.seen, packets);
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Numbers of the instances; the first binding of each has the same number.
pub(super) const FIRST: u32 = 1;
pub(super) const SECOND: u32 = 20;

/// Returns the principal of a flow.
pub(super) fn owner(flow: u32) -> u32 {
    (flow - 1) % 3 + 1
}

/// Returns the principal that pays for the packets of a call.
fn payer(packets: &mut Packets<'_>) -> u32 {
    let (key, _) = packets.get_mut(0);
    let IpAddr::V4(destination) = key.destination() else { panic!("{key:?}") };
    owner(destination.octets()[3].into())
}

/// World with a process at which three principals have flows: the first one 1, 4 and 7, and so on.
pub(super) struct Shared {
    pub world: World,
    pub each: Arc<Mutex<Duration>>,
    factors: Arc<Mutex<[u32; 3]>>,
    calls: Arc<Mutex<Vec<(u32, Duration)>>>,
    most: Arc<Mutex<usize>>,
}

impl Shared {
    /// `each`: time of a packet; `queues`: bytes of a flow queue of each principal.
    pub fn new(each: Duration, queues: [u32; 3]) -> Self {
        let mut world = World::new();
        for (id, queue) in (1..).zip(queues) {
            world.set_principal(id, 1, queue);
        }
        let each = Arc::new(Mutex::new(each));
        let factors = Arc::new(Mutex::new([1; 3]));
        let mut shared = Self { world, each, factors, calls: Arc::default(), most: Arc::default() };
        shared.add(FIRST);
        for flow in 1..10 {
            shared.world.bind_instance(FIRST, (flow, flow as u8), Some(owner(flow)));
        }
        shared
    }

    /// Moves the process to a later gate, behind an instance that the worker itself calls.
    fn precede(&mut self) {
        let instance = Box::new(Slow { cycles: 1000, suspensions: 0, left: 0, seen: Seen::default() });
        self.world.change(PluginChange::AddInstance { id: InstanceId(SECOND as u16), instance });
        for flow in 1..10 {
            self.world.unbind(flow);
            self.world.bind_instance(SECOND, (flow, flow as u8), Some(owner(flow)));
            let filter = format!("dst 10.0.0.{flow}/32");
            self.world.bind_at(LATER, FIRST, (SECOND + flow, &filter), Some(owner(flow)));
        }
    }

    /// Leaves the process to the first principal.
    fn leave_to_first(&mut self) {
        (1..10).filter(|flow| owner(*flow) != 1).for_each(|flow| self.world.unbind(flow));
    }

    fn add(&mut self, number: u32) {
        let (each, factors, most) = (self.each.clone(), self.factors.clone(), self.most.clone());
        let (seen, calls) = match number {
            FIRST => (self.world.seen.clone(), self.calls.clone()),
            _ => Default::default(),
        };
        let (began, ends) = (Instant::ZERO, Instant::ZERO);
        let instance = Process { each, factors, began, ends, calls, seen, most };
        let id = InstanceId(number as u16);
        self.world.change(PluginChange::AddInstance { id, instance: Box::new(instance) });
    }

    /// Returns the time from now until the process has handled a packet.
    pub fn time_to(&mut self, packet: (u8, u16)) -> Duration {
        let start = self.world.now;
        while !self.world.seen.lock().unwrap().contains(&packet) {
            self.world.iterate();
            assert!(self.world.now.since(start) < Duration::from_secs(1), "{packet:?}");
        }
        self.world.now.since(start)
    }
}

pub(super) const ITERATION: Duration = Duration::from_micros(100);

#[test]
fn flood_of_one_principal_costs_another_one_at_a_process_no_packet_and_one_call_of_time() {
    const EACH: Duration = Duration::from_millis(3);
    for (flows, is_preceded) in [(1_u8, false), (3, false), (10, false), (1, true), (3, true)] {
        let mut shared = Shared::new(EACH, [6000, 1 << 20, 1 << 20]);
        if is_preceded {
            shared.precede();
        }
        let mut flood = (0..6000_u16).map(|number| (3 * (number as u8 % flows) + 1, number));
        let mut send_flood = |world: &mut World, most| {
            flood.by_ref().take(most).for_each(|(flow, number)| world.send(flow, number))
        };
        send_flood(&mut shared.world, 5000);
        (0..50).for_each(|_| _ = shared.world.iterate());
        for number in 0..20 {
            // More packets keep the queues full.
            send_flood(&mut shared.world, 50);
            shared.world.send(2, number);
            let took = shared.time_to((2, number));
            assert!(took <= 2 * EACH + 5 * ITERATION, "{flows} flows, {is_preceded}: {took:?}");
        }
        let counts = shared.world.counts();
        // Beyond a number of new flows in a batch, further ones are dropped at reception.
        assert!(counts[&1].drops.queue > 1000, "{counts:?}");
        assert_eq!(counts[&2].drops.total(), 0, "{counts:?}");
        // Its packets wait in its own queues, and take no more than their thresholds.
        let stages = if is_preceded { 2 } else { 1 };
        assert!(counts[&1].waiting_bytes <= u64::from(flows) * stages * 6000, "{counts:?}");
        assert_eq!(*shared.most.lock().unwrap(), 1);
        shared.world.check();
    }
}

/// The burst comes from an earlier stage while the process is free.
#[test]
fn burst_from_an_earlier_stage_waits_in_its_queue() {
    const EACH: Duration = Duration::from_millis(3);
    let mut shared = Shared::new(EACH, [1 << 20; 3]);
    shared.precede();
    // The cost of the earlier stage is known from the first packet.
    shared.world.send(1, 0);
    shared.time_to((1, 0));
    (0..100).for_each(|_| _ = shared.world.iterate());
    (1..51).for_each(|number| shared.world.send(1, number));
    shared.world.iterate();
    shared.world.send(2, 0);
    let took = shared.time_to((2, 0));
    assert!(took <= 2 * EACH + 5 * ITERATION, "{took:?}");
    shared.world.check();
}

/// Returns the greatest excess of one principal's time over that of another, by weight, above what one call of each
/// allows: over all intervals of calls.
fn excess(calls: &[(u32, Duration)], weights: [u32; 3]) -> f64 {
    let by_weight = |id: u32, took: Duration| took.as_secs_f64() / f64::from(weights[id as usize - 1]);
    let longest = |id| {
        let own = calls.iter().filter(|(payer, _)| *payer == id);
        own.map(|(_, took)| by_weight(id, *took)).fold(0.0, f64::max)
    };
    let mut greatest = f64::MIN;
    for (one, other) in [(1, 2), (1, 3), (2, 3), (2, 1), (3, 1), (3, 2)] {
        // The greatest sum of an interval is the greatest rise above the lowest sum before.
        let (mut sum, mut lowest, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
        for (payer, took) in calls {
            let sign = f64::from(u8::from(*payer == one)) - f64::from(u8::from(*payer == other));
            sum += sign * by_weight(*payer, *took);
            (lowest, most) = (lowest.min(sum), most.max(sum - lowest));
        }
        greatest = greatest.max(most - longest(one) - longest(other));
    }
    greatest
}

/// Returns the calls of a process while each principal has packets, with all flows in the first `flows` of each.
fn backlogged_calls(
    weights: [u32; 3],
    factors: [u32; 3],
    flows: usize,
    is_preceded: bool,
) -> Vec<(u32, Duration)> {
    const PACKETS: u16 = 40;
    let mut shared = Shared::new(Duration::from_millis(1), [1 << 20; 3]);
    if is_preceded {
        shared.precede();
    }
    *shared.factors.lock().unwrap() = factors;
    (1..).zip(weights).for_each(|(id, weight)| shared.world.set_principal(id, weight, 1 << 20));
    for number in 0..PACKETS {
        // The first principals have more flows.
        for flow in [1, 2, 3, 4, 5, 7].into_iter().take(3 + flows) {
            shared.world.send(flow, number);
        }
    }
    (0..10).for_each(|_| _ = shared.world.iterate());
    let mut calls = 0;
    let is_busy = |world: &World| (1..4).all(|id| world.counts()[&id].waiting > 2);
    while is_busy(&shared.world) {
        (0..10).for_each(|_| _ = shared.world.iterate());
        calls = shared.calls.lock().unwrap().len();
    }
    shared.world.check();
    let all = shared.calls.lock().unwrap();
    all[..calls].to_vec()
}

#[test]
fn time_at_a_process_follows_weights_whatever_packets_cost() {
    for (weights, is_preceded) in [([1, 1, 1], false), ([1, 2, 5], false), ([4, 1, 1], true)] {
        let calls = backlogged_calls(weights, [1, 2, 3], 3, is_preceded);
        let sum =
            |id| calls.iter().filter(|(payer, _)| *payer == id).map(|(_, took)| *took).sum::<Duration>();
        let by_weight = [1, 2, 3].map(|id| sum(id).as_micros() / u128::from(weights[id as usize - 1]));
        let above = excess(&calls, weights);
        assert!(above <= 1e-6, "{weights:?}: {above} s, {by_weight:?}");
        assert!(calls.len() > 20, "{weights:?}: {}", calls.len());
    }
}

#[test]
fn calls_of_a_process_take_a_millisecond_or_a_packet() {
    for (micros, is_alone, most) in [(1, true, 64), (50, true, 20), (3000, true, 1), (1, false, 10)] {
        let mut shared = Shared::new(Duration::from_micros(micros), [1 << 20; 3]);
        if is_alone {
            shared.leave_to_first();
        }
        (0..400).for_each(|number| shared.world.send(1, number));
        shared.world.check();
        let calls = *shared.most.lock().unwrap();
        // Time is seen in steps of an iteration.
        assert!((most..=most + most / 4).contains(&calls), "{micros} us: {calls} packets");
    }
}

/// A slow plugin is slowed down, not failed.
#[test]
fn packets_that_suddenly_take_longer_are_no_fault() {
    for (is_alone, most) in [(true, 64), (false, 10)] {
        let mut shared = Shared::new(Duration::from_micros(1), [1 << 20; 3]);
        if is_alone {
            shared.leave_to_first();
        }
        (0..200).for_each(|number| shared.world.send(1, number));
        let is_quick = (0..100).any(|_| {
            shared.world.iterate();
            *shared.most.lock().unwrap() == most
        });
        assert!(is_quick, "{most}");
        *shared.each.lock().unwrap() = Duration::from_millis(10);
        shared.world.check();
        assert_eq!(shared.world.seen.lock().unwrap().len(), 200);
    }
}

/// The other one waits for one call, which has few packets.
#[test]
fn packets_that_suddenly_take_longer_delay_others_for_the_stated_time() {
    let mut shared = Shared::new(Duration::from_micros(1), [1 << 20; 3]);
    (0..200).for_each(|number| shared.world.send(1, number));
    (0..20).for_each(|_| _ = shared.world.iterate());
    assert_eq!(*shared.most.lock().unwrap(), 10);
    *shared.each.lock().unwrap() = Duration::from_millis(10);
    shared.world.iterate();
    shared.world.send(2, 0);
    let took = shared.time_to((2, 0));
    assert!(took <= Duration::from_millis(100 + 10) + 5 * ITERATION, "{took:?}");
    shared.world.check();
}

/// The wait for the process counts, and the call of the process doesn't.
#[test]
fn longest_wait_for_a_process_ends_when_it_has_the_call() {
    const EACH: Duration = Duration::from_millis(3);
    let mut shared = Shared::new(EACH, [1 << 20; 3]);
    let deadline = Some(Duration::from_millis(1));
    shared.world.set_cpu(
        1,
        CpuPrincipal { share: CpuShare::Absolute(100_000), limit: None, deadline },
        1 << 20,
    );
    let longest = |shared: &Shared| shared.world.counts()[&1].longest_wait;
    shared.world.send(1, 0);
    shared.time_to((1, 0));
    assert!(longest(&shared) < 3 * ITERATION, "{:?}", longest(&shared));
    shared.world.send(2, 0);
    (0..5).for_each(|_| _ = shared.world.iterate());
    shared.world.send(1, 1);
    let took = shared.time_to((1, 1));
    assert!(longest(&shared).abs_diff(took - EACH) <= 3 * ITERATION, "{:?} of {took:?}", longest(&shared));
    shared.world.check();
}

/// Its flows wait for their turn when its limit, or the budget of its deadline, is used up. The process must not wait
/// for them.
#[test]
fn principal_that_cannot_run_leaves_a_process_to_others() {
    const EACH: Duration = Duration::from_millis(1);
    const CALLS: u16 = 20;
    let deadline = Some(Duration::from_millis(1));
    for settings in [
        CpuPrincipal { share: CpuShare::Weight(1), limit: Some(10_000), deadline: None },
        CpuPrincipal { share: CpuShare::Absolute(10_000), limit: None, deadline },
    ] {
        let mut shared = Shared::new(EACH, [1 << 20; 3]);
        shared.world.set_cpu(1, settings, 1 << 20);
        shared.world.bind(SECOND, 10, Some(1), (10_000_000, 0));
        // The third principal keeps the processor busy, so that a budget counts.
        shared.world.bind(SECOND + 1, 11, Some(3), (100_000, 0));
        shared.world.send(2, 0);
        shared.world.iterate();
        [1, 4, 7].into_iter().for_each(|flow| shared.world.send(flow, 0));
        shared.world.iterate();
        // The worker itself makes this call. Its 10 ms at 1 % of the processor last for a second.
        shared.world.send(10, 0);
        shared.world.iterate();
        (0..1000).for_each(|number| shared.world.send(11, number));
        (1..=CALLS).for_each(|number| shared.world.send(2, number));
        let took = shared.time_to((2, CALLS));
        assert!(took <= EACH + u32::from(CALLS) * (EACH + 3 * ITERATION), "{settings:?}: {took:?}");
        let waiting = [1, 3].map(|id| shared.world.counts()[&id].waiting);
        assert!(waiting[0] == 3 && waiting[1] > 0, "{settings:?}: {waiting:?}");
        shared.world.check();
    }
}

/// Step of a random history.
#[derive(Clone, Copy, Debug)]
enum Move {
    Send(u8),
    Iterate,
    /// Time of a packet in microseconds.
    Each(u64),
    Unbind(u32),
    Rebind(u32, Option<u32>),
}

fn random_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        20 => (1_u8..6).prop_map(Move::Send),
        8 => Just(Move::Iterate),
        1 => (0_u64..5000).prop_map(Move::Each),
        1 => (1_u32..6).prop_map(Move::Unbind),
        1 => (1_u32..6, prop::option::of(1_u32..4)).prop_map(|(number, owner)| Move::Rebind(number, owner)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Over any interval, each principal with packets has its share of the time at a process, within one call.
    #[test]
    fn each_interval_at_a_process_is_fair(
        weights in prop::array::uniform3(1_u32..8),
        factors in prop::array::uniform3(1_u32..6),
        flows in 0_usize..4,
    ) {
        let calls = backlogged_calls(weights, factors, flows, false);
        let above = excess(&calls, weights);
        prop_assert!(above <= 1e-6, "{above} s: {calls:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With two processes in the path: each packet ends once, and each flow keeps its order.
    #[test]
    fn no_packet_at_a_process_is_lost_and_no_flow_reordered(
        moves in prop::collection::vec(random_move(), 1..300),
    ) {
        let mut shared = Shared::new(Duration::from_micros(100), [1 << 20; 3]);
        shared.add(SECOND);
        shared.world.bind_at(LATER, SECOND, (SECOND, "dst 10.0.0.0/24"), Some(1));
        for (number, step) in (0..).zip(moves) {
            let world = &mut shared.world;
            match step {
                Move::Send(flow) => world.send(flow, number),
                Move::Iterate => _ = world.iterate(),
                Move::Each(micros) => *shared.each.lock().unwrap() = Duration::from_micros(micros),
                Move::Unbind(binding) => world.unbind(binding),
                Move::Rebind(binding, owner) => {
                    world.unbind(binding);
                    world.bind_instance(FIRST, (binding, binding as u8), owner);
                }
            }
        }
        shared.world.check();
    }
}
