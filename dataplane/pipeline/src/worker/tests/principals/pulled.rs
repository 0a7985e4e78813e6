//! Queues of stages behind forwarding: the scheduler of the egress port pulls their packets.

use std::net::Ipv4Addr;

use millrace_forward::{NextHop, NextHops, Route};
use millrace_schedule::{FlowQueuesSettings, QueueSettings};

use super::*;
use crate::commands::NeighbourCommand;
use crate::forward::changes::{NeighbourChange, NeighbourKnowledge};

const OUT: PortId = PortId(2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 9);
const ROOT: QueueId = QueueId(3);
const DEFAULT_LEAF: QueueId = QueueId(1);
const OTHER_LEAF: QueueId = QueueId(2);
/// Leaf of principal 1 while it has a reservation.
const RESERVED_LEAF: QueueId = QueueId(4);
const LATE_GATE: GateId = GateId(5);
/// Rate of the egress port, in bits per second.
const RATE: u64 = 1_000_000;
/// Bytes of a frame.
const FRAME: u64 = 60;
/// Bytes that a flow may have in the scheduler: 64 frames.
const THRESHOLD: u32 = 64 * FRAME as u32;

/// World whose packets leave by a port with a rate. `fib` has its route.
struct Routed {
    world: World,
    out: MemoryHandle,
    /// Queue of the port for packets of the binding.
    link_queue: QueueId,
}

impl Routed {
    /// Adds the port, and an instance behind forwarding for the flows of principal 1. `queue`: weight of its
    /// queue.
    fn new(queue: Option<u16>) -> Self {
        let mut world = World::new();
        let (device, out) = Memory::new(MAC, 1500);
        world.worker.add_device(DeviceId(1), Box::new(device));
        world.tell(PortCommand::Set(OUT, PortSettings { addresses: Vec::new(), ..settings(1, Tags::NONE) }));
        let route = Route::Forward(NextHops::single(NextHop::new(OUT, Some(GATEWAY.into()))));
        world.route("10.0.0.0/24", route);
        let state = NeighbourKnowledge::Known(MAC);
        let neighbour = NeighbourChange { port: OUT, address: GATEWAY.into(), state };
        world.tell(NeighbourCommand::Set(vec![neighbour]));
        let root = ScheduleChange::Add {
            node: ROOT,
            parent: None,
            share: Share::Only,
            kind: NodeKind::DeficitRoundRobin,
        };
        let (position, order) = (Position::Queue, GateOrder(2));
        world.change(PluginChange::AddGate { gate: LATE_GATE, position, order });
        let instance = Box::new(Slow { cycles: 1000, suspensions: 0, left: 0, seen: world.seen.clone() });
        world.change(PluginChange::AddInstance { id: InstanceId(5), instance });
        let mut routed = Self { world, out, link_queue: QueueId(0) };
        routed.schedule(&[root, leaf(DEFAULT_LEAF), leaf(OTHER_LEAF)]);
        routed.set_rate(Some(RATE));
        routed.bind(queue);
        routed
    }

    /// Changes the scheduler of the port.
    fn schedule(&mut self, changes: &[ScheduleChange]) {
        let (router, now) = (&mut self.world.worker.router, self.world.now);
        router.queueing().schedule(OUT, (changes, Piece::WHOLE), 1, now).unwrap();
    }

    /// Gives the principal a leaf of its own, if it has none. `queue`: weight of the queue of the binding.
    fn reserve(&mut self, queue: Option<u16>) {
        if self.link_queue == RESERVED_LEAF {
            return;
        }
        // A flow that gets another leaf while its packets wait would be reordered.
        self.run();
        self.schedule(&[leaf(RESERVED_LEAF)]);
        self.unbind();
        self.link_queue = RESERVED_LEAF;
        self.bind(queue);
    }

    /// Releases the principal with its binding and its leaf. Its packets are dropped or continue. Returns the number of
    /// the packets that waited for it.
    fn release(&mut self, drops: bool) -> u64 {
        let waiting = u64::from(self.world.counts().get(&1).map_or(0, |counts| counts.waiting));
        let held = self.held_in(RESERVED_LEAF);
        if drops {
            self.world.tell(PrincipalCommand::DropWaiting(PrincipalId(1)));
        }
        self.unbind();
        self.world.tell(PrincipalCommand::Remove(PrincipalId(1)));
        if self.link_queue == RESERVED_LEAF {
            let to = Some(DEFAULT_LEAF);
            self.schedule(&[match drops {
                true => ScheduleChange::Release(RESERVED_LEAF),
                false => ScheduleChange::Remove { node: RESERVED_LEAF, to },
            }]);
        }
        self.link_queue = QueueId(0);
        waiting + held
    }

    /// Binds the instance. Its principal may be new.
    fn bind(&mut self, queue: Option<u16>) {
        self.world.set_principal(1, 1, 1 << 20);
        self.bind_also(5, filter(), queue);
    }

    /// Binds the instance to packets of a filter, which principal 1 pays for.
    fn bind_also(&mut self, number: u32, filter: CompiledExpression, queue: Option<u16>) {
        let (call, principal) = (CallLimits::DEFAULT_PAID_CALL, Some(PrincipalId(1)));
        self.world.change(PluginChange::Bind {
            binding: BindingId(number),
            gate: LATE_GATE,
            filter,
            priority: 0,
            action: Action::Instance(InstanceId(5)),
            call_limits: CallLimits {
                call,
                principal,
                queue,
                link_queue: self.link_queue,
                ..CallLimits::default()
            },
        });
    }

    fn unbind(&mut self) {
        self.unbind_also(5, filter());
    }

    fn unbind_also(&mut self, number: u32, filter: CompiledExpression) {
        self.world.change(PluginChange::Unbind { binding: BindingId(number), gate: LATE_GATE, filter });
    }

    /// Sets the rate of the port; `None` for no limit.
    fn set_rate(&mut self, rate: Option<u64>) {
        self.schedule(&[ScheduleChange::Link(
            LinkRate { rate: rate.map(Rate), slack: 60 },
            LinkOverhead::None,
        )]);
    }

    /// Returns the number of packets in the scheduler.
    fn held(&self) -> usize {
        let port = self.world.worker.router.ports.get(OUT).unwrap();
        port.scheduler.as_ref().map_or(0, |scheduler| scheduler.held())
    }

    /// Returns the number of packets in a leaf of the scheduler.
    fn held_in(&self, leaf: QueueId) -> u64 {
        let port = self.world.worker.router.ports.get(OUT).unwrap();
        let nodes = port.scheduler.as_ref().map(|scheduler| scheduler.nodes()).unwrap_or_default();
        let node = nodes.iter().find(|view| view.node.0 == u32::from(leaf.0));
        node.map_or(0, |view| view.held_packets.into())
    }

    /// Runs iterations until no packet waits. Returns the greatest number of packets in the scheduler.
    fn run(&mut self) -> usize {
        let mut most = 0;
        for _ in 0..100_000 {
            self.world.iterate();
            most = most.max(self.held());
            if carried(&self.world.worker.router) == 0 {
                return most;
            }
        }
        panic!("{} packets still wait", carried(&self.world.worker.router));
    }

    fn dropped(&self) -> u64 {
        self.world.worker.router.observation.totals.dropped
    }

    /// Returns the number of packets dropped because their principal was released.
    fn released(&self) -> u64 {
        let ports = self.world.worker.router.ports.iter();
        ports.map(|(_, port)| port.count.drops.get(DropReason::PrincipalReleased)).sum()
    }
}

/// Returns the change that adds a leaf to the scheduler.
fn leaf(node: QueueId) -> ScheduleChange {
    let queue = QueueSettings { threshold: THRESHOLD, ..Default::default() };
    let kind = NodeKind::FlowQueues(FlowQueuesSettings { queue, ..Default::default() });
    ScheduleChange::Add { node, parent: Some(ROOT), share: Share::Quantum(1500), kind }
}

/// Returns the filter of the binding.
fn filter() -> CompiledExpression {
    filter_of("dst 10.0.0.0/29")
}

fn filter_of(text: &str) -> CompiledExpression {
    text.parse::<Filter>().unwrap().compile(|_| None).unwrap().into()
}

#[test]
fn port_pulls_packets_from_a_queue_behind_forwarding() {
    for (queue, lost) in [(None, true), (Some(1), false)] {
        let mut routed = Routed::new(queue);
        let start = routed.world.now;
        for number in 0..100 {
            (1..4).for_each(|flow| routed.world.send(flow, number));
        }
        let most = routed.run();
        assert_eq!(routed.dropped() > 0, lost, "{queue:?}: {} packets dropped", routed.dropped());
        let sent = routed.out.take_transmitted();
        assert_eq!(sent.len() as u64, 300 - routed.dropped());
        if lost {
            continue;
        }
        assert!(most <= 3 * 3, "{most} packets of 3 flows in the scheduler");
        // The link was never idle.
        let took = routed.world.now.since(start).as_secs_f64();
        let least = (300 * FRAME * 8) as f64 / RATE as f64;
        assert!((least * 0.98..least * 1.02).contains(&took), "{took} s instead of {least} s");
        // Waiting for the link is not waiting for the processor.
        let counts = routed.world.counts()[&1];
        assert!(counts.backlogged.as_secs_f64() < took / 2.0, "{counts:?}");
        let mut last = BTreeMap::new();
        for (flow, number) in routed.world.seen.lock().unwrap().iter() {
            assert!(last.insert(*flow, *number).is_none_or(|before| before < *number));
        }
    }
}

#[test]
fn packets_that_are_not_pulled_pass_when_the_rate_or_the_queue_goes() {
    for removes_rate in [true, false] {
        let mut routed = Routed::new(Some(1));
        (0..100).for_each(|number| routed.world.send(1, number));
        (0..5).for_each(|_| _ = routed.world.iterate());
        assert!(routed.world.counts()[&1].waiting > 50, "{:?}", routed.world.counts());
        let before = routed.world.now;
        if removes_rate {
            routed.set_rate(None);
            routed.run();
            assert_eq!((routed.out.take_transmitted().len(), routed.dropped()), (100, 0));
            assert!(routed.world.now.since(before) < Duration::from_millis(3));
        } else {
            routed.unbind();
            routed.run();
            assert_eq!(routed.out.take_transmitted().len() as u64, 100 - routed.dropped());
        }
    }
}

/// All its flows wait for the port, so their principal has no work meanwhile.
#[test]
fn flows_go_on_when_another_binding_of_their_principal_ends() {
    let mut routed = Routed::new(Some(1));
    let other = || filter_of("dst 10.0.0.9/32");
    routed.bind_also(6, other(), Some(1));
    for number in 0..100 {
        [1, 9].into_iter().for_each(|flow| routed.world.send(flow, number));
    }
    (0..5).for_each(|_| _ = routed.world.iterate());
    assert!(routed.world.counts()[&1].waiting > 100, "{:?}", routed.world.counts());
    routed.unbind_also(6, other());
    routed.run();
    let sent = routed.out.take_transmitted();
    assert_eq!(sent.len() as u64, 200 - routed.dropped());
    assert_eq!(sent.iter().filter(|frame| frame[33] == 1).count(), 100);
}

/// The leaf of a principal with a `link` pulls packets, whatever waits in the default leaf.
#[test]
fn packets_wait_for_the_leaf_of_their_principal() {
    let mut routed = Routed::new(None);
    routed.unbind();
    routed.link_queue = OTHER_LEAF;
    routed.bind(Some(1));
    (0..200).for_each(|number| routed.world.send(1, number));
    let start = routed.world.now;
    while routed.world.counts()[&1].packets < 150 {
        // Packets of flow 9 pass the instance by, and keep the default leaf full.
        (0..2).for_each(|number| routed.world.send(9, number));
        routed.world.iterate();
    }
    let took = routed.world.now.since(start).as_secs_f64();
    let half = (150 * FRAME * 8) as f64 / (RATE / 2) as f64;
    assert!((half * 0.9..half * 1.1).contains(&took), "{took} s instead of {half} s");
    routed.run();
    let sent = routed.out.take_transmitted();
    assert_eq!(sent.iter().filter(|frame| frame[33] == 1).count(), 200);
}

#[test]
fn packets_in_the_leaf_of_a_released_principal_are_dropped_on_request_and_no_others() {
    for (queue, drops) in [(None, true), (Some(1), true), (None, false), (Some(1), false)] {
        let mut routed = Routed::new(None);
        routed.reserve(queue);
        for number in 0..30 {
            [1, 2, 9].into_iter().for_each(|flow| routed.world.send(flow, number));
        }
        (0..20).for_each(|_| _ = routed.world.iterate());
        let (held, others) = (routed.held_in(RESERVED_LEAF), routed.held_in(DEFAULT_LEAF));
        // With a queue, most packets wait at the stage.
        assert_eq!(held > 40, queue.is_none(), "{held}");
        let own = routed.release(drops);
        assert!(own > 40 && others > 20, "{own} {others}");
        let (gone, moved) = if drops { (own, 0) } else { (0, own) };
        assert_eq!((routed.released(), routed.dropped()), (gone, gone));
        assert_eq!(routed.held_in(DEFAULT_LEAF), others + moved);
        // Later packets of the flows enter the default leaf.
        routed.world.send(1, 30);
        routed.run();
        assert_eq!(routed.out.take_transmitted().len() as u64, 91 - gone);
    }
}

/// Step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u8),
    Iterate,
    Rate(Option<u64>),
    /// Binds the instance again, with or without a queue.
    Bind(Option<u16>),
    /// Gives the principal a leaf of its own, and binds the instance with or without a queue.
    Reserve(Option<u16>),
    /// Releases the principal; its packets are dropped or continue.
    Release(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let rate = prop_oneof![Just(None), Just(Some(RATE)), Just(Some(50 * RATE))];
    prop_oneof![
        20 => (1_u8..9).prop_map(Step::Send),
        8 => Just(Step::Iterate),
        1 => rate.prop_map(Step::Rate),
        1 => prop::option::weighted(0.8, 1_u16..4).prop_map(Step::Bind),
        1 => prop::option::of(1_u16..4).prop_map(Step::Reserve),
        1 => any::<bool>().prop_map(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the rate of the port is, whether packets are pulled, and whether their principal is released: each
    /// packet ends once, each flow keeps its order, and each packet inside the router waits or is on its way. A release
    /// drops all packets that wait for the principal, or none.
    #[test]
    fn no_packet_is_lost_and_no_flow_reordered(steps in prop::collection::vec(step(), 1..300)) {
        let mut routed = Routed::new(Some(1));
        // Releases without drops: number of packets sent before, and number of the step. The packets that wait at both
        // stage and leaf then meet in the default leaf, and may be reordered.
        let (mut sent, mut continued, mut released) = (Vec::new(), Vec::new(), 0);
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Send(flow) => routed.world.send(flow, number),
                Step::Iterate => _ = routed.world.iterate(),
                Step::Rate(rate) => routed.set_rate(rate),
                // The leaf of a principal stays until its release.
                Step::Bind(_) if routed.link_queue == RESERVED_LEAF => {}
                Step::Bind(queue) => {
                    routed.unbind();
                    routed.bind(queue);
                }
                Step::Reserve(queue) => routed.reserve(queue),
                Step::Release(true) => released += routed.release(true),
                Step::Release(false) => {
                    sent.append(&mut routed.out.take_transmitted());
                    continued.push((sent.len(), number));
                    routed.release(false);
                }
            }
            let totals = &routed.world.worker.router.observation.totals;
            let held = carried(&routed.world.worker.router);
            prop_assert_eq!(totals.received, totals.transmitted + totals.dropped + held);
            prop_assert_eq!(routed.released(), released);
        }
        routed.run();
        sent.append(&mut routed.out.take_transmitted());
        prop_assert_eq!(sent.len() as u64 + routed.dropped(), routed.world.sent);
        prop_assert_eq!(routed.world.worker.pool.in_use(), 0);
        let mut last = BTreeMap::new();
        for (place, frame) in sent.iter().enumerate() {
            let number = u16::from_be_bytes([frame[NUMBER], frame[NUMBER + 1]]);
            if continued.iter().any(|(before, release)| place >= *before && number < *release) {
                continue;
            }
            let before = last.insert(frame[33], number);
            prop_assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
        }
    }
}
