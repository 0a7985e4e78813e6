//! Stages with queues of their own: their shares, the order of packets, and the length of runs.

use super::*;
use crate::commands::ObservationCommand;
use crate::observe::trace::{TraceOrder, TraceStep, Waits, trace};

/// Id of the first gate of a path.
const FIRST_GATE: u8 = 10;

/// Stage of the path of all flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageOf {
    principal: u32,
    queue: Option<u16>,
    cycles: u64,
    suspensions: u32,
}

impl StageOf {
    fn limits(self) -> CallLimits {
        CallLimits {
            call: CallLimits::DEFAULT_PAID_CALL,
            principal: Some(PrincipalId(self.principal)),
            queue: self.queue,
            ..CallLimits::default()
        }
    }
}

/// Slices of calls in their order: who used cycles, and how many.
type Slices = Arc<Mutex<Vec<(u32, u64)>>>;

/// Instance that uses cycles for each packet, and as many for each suspension of a call. It records its slices.
struct Timed {
    who: u32,
    cycles: u64,
    suspensions: u32,
    left: u32,
    slices: Slices,
}

impl Timed {
    fn pass(&self, cycles: u64) {
        pretended::pass(cycles);
        self.slices.lock().unwrap().push((self.who, cycles));
    }
}

impl Instance for Timed {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.left = self.suspensions;
        self.resume(packets, now)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            self.pass(self.cycles);
            return Progress::Suspended;
        }
        self.pass(self.cycles * packets.len() as u64);
        packets.for_each(|_, _| Verdict::Pass);
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

impl World {
    /// Adds a gate with an instance, which all packets pass.
    fn add_stage(&mut self, number: u32, stage: StageOf, instance: Box<dyn Instance>) {
        let gate = GateId(FIRST_GATE + number as u8);
        let order = GateOrder(number as u16 + 2);
        self.change(PluginChange::AddGate { gate, position: Position::Early, order });
        self.change(PluginChange::AddInstance { id: InstanceId(number as u16), instance });
        self.bind_stage((number, number), stage, "dst 10.0.0.0/24");
    }

    /// Binds the instance of a stage for packets that match a filter.
    pub(super) fn bind_stage(&mut self, (number, binding): (u32, u32), stage: StageOf, filter: &str) {
        let filter: CompiledExpression = filter.parse::<Filter>().unwrap().compile(|_| None).unwrap().into();
        self.filters.insert(binding, filter.clone());
        self.change(PluginChange::Bind {
            binding: BindingId(binding),
            gate: GateId(FIRST_GATE + number as u8),
            filter,
            priority: binding as i32,
            action: Action::Instance(InstanceId(number as u16)),
            call_limits: stage.limits(),
        });
    }

    /// Changes bindings of a stage in place.
    fn renew_stage(&mut self, number: u32, bindings: &[u32], stage: StageOf) {
        let renewed = |binding: &u32| PluginChange::Rebind {
            binding: BindingId(*binding),
            gate: GateId(FIRST_GATE + number as u8),
            filter: self.filters[binding].clone(),
            priority: *binding as i32,
            call_limits: stage.limits(),
        };
        let changes = bindings.iter().map(renewed).collect();
        let changes = self.tables.publish(changes);
        self.tell(PluginCommand::Change(changes));
    }

    pub(super) fn unbind_stage(&mut self, number: u32, binding: u32) {
        let Some(filter) = self.filters.remove(&binding) else { return };
        let gate = GateId(FIRST_GATE + number as u8);
        self.change(PluginChange::Unbind { binding: BindingId(binding), gate, filter });
    }

    /// Adds a stage whose instance records packets. Returns its record.
    pub(super) fn add_recorded(&mut self, number: u32, stage: StageOf) -> Seen {
        let seen = Seen::default();
        let StageOf { cycles, suspensions, .. } = stage;
        self.add_stage(number, stage, Box::new(Slow { cycles, suspensions, left: 0, seen: seen.clone() }));
        seen
    }
}

pub(super) fn stage(principal: u32, queue: Option<u16>, cycles: u64) -> StageOf {
    StageOf { principal, queue, cycles, suspensions: 0 }
}

/// The second stage gets its packets from the first one, which is three times as fast: it is busy from the
/// first slice on.
#[test]
fn queued_stages_divide_the_time_of_their_flow_by_weight() {
    for suspensions in [0, 4] {
        let mut world = World::new();
        let slices = Slices::default();
        world.set_principal(1, 1, 1 << 20);
        for (who, weight, cycles) in [(0, 3, 30_000), (1, 1, 20_000)] {
            let timed = Timed { who, cycles, suspensions, left: 0, slices: slices.clone() };
            world.add_stage(who, stage(1, Some(weight), cycles), Box::new(timed));
        }
        for number in 0..3000 {
            world.send(1, number);
        }
        let used = |who: u32| {
            let of_stage = |(stage, cycles): &(u32, u64)| if *stage == who { *cycles } else { 0 };
            slices.lock().unwrap().iter().map(of_stage).sum::<u64>()
        };
        while used(0) < 80_000_000 {
            world.iterate();
        }
        let ratio = used(0) as f64 / used(1) as f64;
        assert!((2.97..3.03).contains(&ratio), "{ratio} with {suspensions} suspensions of each call");
        world.drain();
        let reports = Snapshot::counters_of(&world.worker.router, world.now).instances;
        let accounts: Vec<u64> = reports.iter().map(|(_, report)| report.used.0).collect();
        assert_eq!(accounts, [used(0), used(1)]);
    }
}

/// Returns the longest time for which principal 1 has the processor while principal 2 wants it.
fn longest_run(queue: Option<u16>) -> u64 {
    let mut world = World::new();
    let slices = Slices::default();
    for (id, weight) in [(1, 1), (2, 10)] {
        world.set_principal(id, weight, 1 << 20);
    }
    for (number, cycles) in [(0, 50_000), (1, 70_000), (2, 40_000)] {
        let timed = Timed { who: 1, cycles, suspensions: 0, left: 0, slices: slices.clone() };
        world.add_stage(number, stage(1, queue.filter(|_| number > 0), cycles), Box::new(timed));
    }
    // Flow 2 waits at another gate, and pays for itself.
    (0..3).for_each(|number| world.unbind_stage(number, number));
    for number in 0..3 {
        world.bind_stage((number, number), stage(1, queue.filter(|_| number > 0), 0), "dst 10.0.0.1/32");
    }
    let timed = Timed { who: 2, cycles: 50_000, suspensions: 0, left: 0, slices: slices.clone() };
    world.change(PluginChange::AddInstance { id: InstanceId(9), instance: Box::new(timed) });
    world.bind_instance(9, (9, 2), Some(2));
    for number in 0..2000 {
        world.send(1, number);
        world.send(2, number);
    }
    while world.counts()[&1].packets < 60 {
        world.iterate();
    }
    assert!(world.counts()[&2].waiting > 0);
    let (mut longest, mut run) = (0, 0);
    for (who, cycles) in slices.lock().unwrap().iter() {
        run = if *who == 1 { run + cycles } else { 0 };
        longest = run.max(longest);
    }
    world.drain();
    longest
}

#[test]
fn queues_shorten_the_longest_run_of_a_path() {
    assert_eq!((longest_run(None), longest_run(Some(1))), (160_000, 70_000));
}

#[test]
fn trace_tells_the_waits_for_the_processor_from_others() {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.add_recorded(0, stage(1, None, 1000));
    world.add_recorded(1, stage(1, Some(1), 1000));
    let order = TraceOrder { filter: None, every: 1, count: 10, time: Duration::from_secs(1) };
    let (sink, mut source) = trace(1, order);
    world.tell(ObservationCommand::StartTrace(Box::new(sink)));
    world.send(1, 0);
    world.drain();
    let events = std::iter::from_fn(|| source.next_event());
    let waits: Vec<_> = events
        .filter_map(|event| match event.step {
            TraceStep::Waits(Waits::Processor(wait)) => Some((wait.payer, wait.queue)),
            _ => None,
        })
        .collect();
    let gate = GateId(FIRST_GATE + 1);
    assert_eq!(waits, [(PrincipalId(1), None), (PrincipalId(1), Some(gate))]);
}

/// Step of a random history.
#[derive(Clone, Copy, Debug)]
enum Change {
    Send(u8),
    Iterate,
    Unbind(u32),
    /// Binds a stage again, with or without a queue, for some or all flows.
    Bind(u32, Option<u16>, bool),
    /// Changes the payer and the queue of a stage in place.
    Renew(u32, u32, Option<u16>),
}

fn any_stage() -> impl Strategy<Value = StageOf> {
    let queue = prop::option::weighted(0.7, 1_u16..5);
    (1_u32..3, queue, 500_u64..40_000, 0_u32..3).prop_map(|(principal, queue, cycles, suspensions)| StageOf {
        principal,
        queue,
        cycles,
        suspensions,
    })
}

fn change() -> impl Strategy<Value = Change> {
    let queue = || prop::option::of(1_u16..5);
    let renew = (0_u32..5, 1_u32..3, queue());
    prop_oneof![
        20 => (1_u8..4).prop_map(Change::Send),
        8 => Just(Change::Iterate),
        1 => (0_u32..5).prop_map(Change::Unbind),
        1 => (0_u32..5, queue(), any::<bool>()).prop_map(|(number, queue, some)| Change::Bind(number, queue, some)),
        1 => renew.prop_map(|(number, principal, queue)| Change::Renew(number, principal, queue)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stages a path has, and whatever control changes: each packet ends once, each flow keeps its
    /// order at each stage, and each packet inside the router waits or is on its way.
    #[test]
    fn no_packet_is_lost_and_no_stage_reordered(
        mut stages in prop::collection::vec(any_stage(), 1..5),
        changes in prop::collection::vec(change(), 1..250),
    ) {
        let mut world = World::new();
        for id in [1, 2] {
            world.set_principal(id, id, 1 << 20);
        }
        let seen: Vec<Seen> =
            (0..).zip(&stages).map(|(number, stage)| world.add_recorded(number, *stage)).collect();
        let mut next = 100;
        let mut bound: Vec<Vec<u32>> = (0..stages.len() as u32).map(|number| vec![number]).collect();
        for (number, change) in (0..).zip(changes) {
            match change {
                Change::Send(flow) => world.send(flow, number),
                Change::Iterate => _ = world.iterate(),
                Change::Unbind(stage) => {
                    let Some(bindings) = bound.get_mut(stage as usize) else { continue };
                    bindings.drain(..).for_each(|binding| world.unbind_stage(stage, binding));
                }
                Change::Bind(number, queue, some) => {
                    let Some(bindings) = bound.get_mut(number as usize) else { continue };
                    let stage = StageOf { queue, ..stages[number as usize] };
                    let filter = if some { "dst 10.0.0.2/31" } else { "dst 10.0.0.0/24" };
                    world.bind_stage((number, next), stage, filter);
                    bindings.push(next);
                    next += 1;
                }
                Change::Renew(number, principal, queue) => {
                    let Some(stage) = stages.get_mut(number as usize) else { continue };
                    *stage = StageOf { principal, queue, ..*stage };
                    world.renew_stage(number, &bound[number as usize], *stage);
                }
            }
            let totals = &world.worker.router.observation.totals;
            let held = carried(&world.worker.router);
            prop_assert_eq!(totals.received, totals.dropped + held);
        }
        world.check();
        for (stage, seen) in seen.iter().enumerate() {
            let mut last = BTreeMap::new();
            for (flow, number) in seen.lock().unwrap().iter() {
                let before = last.insert(*flow, *number);
                prop_assert!(
                    before.is_none_or(|before| before < *number),
                    "stage {stage}, flow {flow}: {number} after {before:?}"
                );
            }
        }
    }
}
