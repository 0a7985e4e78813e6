//! Memory that is held back for leaves and flows with a guarantee, while others flood the port.

use std::collections::{BTreeMap, VecDeque};

use crate::support::*;

/// Bytes of a largest packet.
const LARGEST: u64 = 9_216;
/// Packets and bytes of the memory of a port.
const MEMORY: (u64, u64) = (300, 200_000);

/// Slow twin of a port with FIFO leaves only: decides about each packet by adding up all that waits.
struct Twin {
    /// Reserves by leaf, in packets and bytes.
    reserves: BTreeMap<u32, (u64, u64)>,
    waiting: BTreeMap<u32, VecDeque<u64>>,
}

impl Twin {
    fn held(&self, leaf: u32) -> (u64, u64) {
        let lengths = self.waiting.get(&leaf);
        lengths.map_or((0, 0), |lengths| (lengths.len() as u64, lengths.iter().sum()))
    }

    fn all(&self) -> (u64, u64) {
        let held = self.waiting.keys().map(|leaf| self.held(*leaf));
        held.fold((0, 0), |all, held| (all.0 + held.0, all.1 + held.1))
    }

    /// Returns the part of a leaf's reserve that is held back, and of all reserves.
    fn part(&self, leaf: u32) -> ((u64, u64), (u64, u64)) {
        let wanted = self.reserves.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let kept = (wanted.0.min(MEMORY.0 / 2), wanted.1.min(MEMORY.1 / 2));
        let own = self.reserves.get(&leaf).copied().unwrap_or_default();
        ((own.0 * kept.0 / wanted.0.max(1), own.1 * kept.1 / wanted.1.max(1)), kept)
    }

    /// Whether a packet is within the reserve of its leaf.
    fn is_within(&self, leaf: u32, length: u64) -> bool {
        let (own, part) = (self.held(leaf), self.part(leaf).0);
        own.0 < part.0 && own.1 + length <= part.1
    }

    /// Whether the port takes a packet.
    fn takes(&self, leaf: u32, length: u64) -> bool {
        let (own, all, kept) = (self.held(leaf), self.all(), self.part(leaf).1);
        let free = (MEMORY.0 - all.0, MEMORY.1 - all.1);
        let shared = (free.0.saturating_sub(kept.0), free.1.saturating_sub(kept.1));
        let is_shared = own.0 < shared.0 && own.1 <= shared.1 && length <= shared.1;
        is_shared || self.is_within(leaf, length) && free.0 > 0 && length <= free.1
    }
}

fn curves(real_time: Option<Curve>) -> Share {
    let link_sharing = Some(Curve::linear(Rate(1_000_000)));
    Share::Curves(Curves { real_time, link_sharing, upper_limit: None })
}

/// Creates a port with an H-FSC root, and small memory.
fn small_port() -> Port {
    let limits = BufferLimits { queues: 200, packets: MEMORY.0 as u32, bytes: MEMORY.1 as u32 };
    let link = LinkRate { rate: Some(Rate(100_000_000)), slack: 0 };
    let mut port = LinkScheduler::new(link, LinkOverhead::None, limits).unwrap();
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    port
}

/// Sends all that the link can send from the time `now` until `end`. Calls `out` with each packet.
fn send(
    port: &mut Port,
    (mut now, end): (u64, u64),
    mut out: impl FnMut(Frame),
    sink: &mut impl DropSink<Frame>,
) {
    while port.next_ready().as_nanos() <= end {
        now = now.max(port.next_ready().as_nanos());
        match port.dequeue(at(now), sink) {
            Some(frame) => out(frame),
            None => assert!(port.next_ready() > at(now), "the port waits for nothing"),
        }
    }
}

/// Offers packets of a length to a leaf, in batches or one by one. Returns the number of dropped ones.
fn offer(
    port: &mut Port,
    (leaf, number, length): (u32, u32, u32),
    count: u32,
    now: u64,
    batches: bool,
) -> u64 {
    let mut dropped = 0;
    let mut sink = |_: Frame, cause: DropCause| {
        assert_eq!(cause, DropCause::BufferFull);
        dropped += 1;
    };
    let frames: Vec<_> = (0..count).map(|more| frame(leaf, number + more, length)).collect();
    let (node, flow) = (NodeId(leaf), FlowNumber(leaf));
    if !batches {
        for frame in frames {
            port.enqueue(node, flow, frame, at(now), &mut sink);
        }
        return dropped;
    }
    for part in frames.chunks(32) {
        let arrival = |frame: &Frame| millrace_schedule::Arrival { leaf: node, flow, item: frame.clone() };
        port.enqueue_batch(&mut part.iter().map(arrival).collect(), at(now), &mut sink);
    }
    dropped
}

/// Leaf with a guarantee: its rate in Mb/s, and the bytes that its curve grants at once.
fn guaranteed() -> impl Strategy<Value = (u64, u64)> {
    (1_u64..8, prop_oneof![Just(0), 1_000_u64..30_000])
}

/// Returns a curve of a rate, which grants a burst in a millisecond and a half; a flat one without a burst.
fn curve(megabits: u64, burst: u64) -> Curve {
    let then = Rate::from_megabits(megabits);
    match burst {
        0 => Curve::linear(then),
        burst => Curve { first: Rate(then.0 + burst * 8_000), duration: 1_500_000, then },
    }
}

/// Returns the reserve of a leaf: its burst or a largest packet, and a largest packet more.
fn reserve(curve: Curve) -> (u64, u64) {
    let burst = if curve.first > curve.then { curve.bytes_after(curve.duration) } else { 0 };
    let bytes = burst.max(LARGEST) + LARGEST;
    (bytes.div_ceil(512), bytes)
}

/// Arrivals at random leaves in random batches, and departures between them. Leaves 1 to 4 have guarantees.
fn steps() -> impl Strategy<Value = Vec<(u32, u32, u32, bool)>> {
    // Leaf, number of packets, length, departure instead.
    prop::collection::vec((1_u32..12, 1_u32..40, 40_u32..9_216, prop::bool::weighted(0.15)), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_port_of_fifos_decides_as_its_slow_twin(
        guarantees in prop::collection::vec(guaranteed(), 0..5),
        steps in steps(),
        batches in any::<bool>(),
    ) {
        let mut port = small_port();
        let mut twin = Twin { reserves: BTreeMap::new(), waiting: BTreeMap::new() };
        port.defer_promises(true);
        for leaf in 1..12_u32 {
            let real_time = guarantees.get(leaf as usize - 1).map(|(rate, burst)| curve(*rate, *burst));
            add(&mut port, leaf, 0, curves(real_time), fifo());
            twin.reserves.extend(real_time.map(|curve| (leaf, reserve(curve))));
        }
        let (mut now, mut number, mut offered, mut sent, mut lost) = (0_u64, 0_u32, 0_u64, 0_u64, 0_u64);
        for (leaf, count, length, is_departure) in steps {
            now += 100_000;
            if is_departure {
                let mut gone = Vec::new();
                send(&mut port, (now - 100_000, now), |frame| gone.push(frame), &mut never);
                for frame in gone {
                    sent += 1;
                    let first = twin.waiting.get_mut(&frame.flow).and_then(VecDeque::pop_front);
                    prop_assert_eq!(first, Some(u64::from(frame.length)));
                }
                continue;
            }
            let mut expected = Vec::new();
            for _ in 0..count {
                let takes = twin.takes(leaf, length.into());
                prop_assert!(takes || !twin.is_within(leaf, length.into()), "others took the reserve of {}", leaf);
                if takes {
                    twin.waiting.entry(leaf).or_default().push_back(length.into());
                } else {
                    expected.push(number + expected.len() as u32);
                }
                offered += 1;
            }
            let dropped = offer(&mut port, (leaf, number, length), count, now, batches);
            number += count;
            prop_assert_eq!(dropped, expected.len() as u64);
            lost += dropped;
            prop_assert_eq!((u64::from(port.held_packets()), u64::from(port.held_bytes())), twin.all());
            prop_assert_eq!(offered, sent + lost + u64::from(port.held_packets()));
        }
    }

    /// Leaves of every kind flood the port, and other leaves or flows stay within their reserve: these lose nothing.
    #[test]
    fn no_flood_drops_a_packet_of_a_leaf_or_flow_within_its_guarantee(
        kinds in prop::collection::vec(0_u8..4, 1..5),
        floods in prop::collection::vec((5_u32..12, 1_u32..60, 40_u32..9_216), 10..80),
        length in 40_u32..1_500,
    ) {
        let mut port = small_port();
        let queue = QueueSettings { threshold: 1 << 30, aqm: Aqm::TailDrop };
        let settings = FlowQueuesSettings { queues: 8, queue, ..Default::default() };
        let flow_queues = || NodeKind::FlowQueues(settings);
        let fq_codel = || NodeKind::FqCodel(FqCodelSettings { flows: 8, limit: 1_000, ..Default::default() });
        let rate = Rate::from_megabits(5);
        for (leaf, kind) in (1..).zip(&kinds) {
            let real_time = curves(Some(Curve::linear(rate)));
            match kind {
                0 => add(&mut port, leaf, 0, real_time, fifo()),
                1 => add(&mut port, leaf, 0, real_time, flow_queues()),
                2 => add(&mut port, leaf, 0, real_time, fq_codel()),
                // A class whose leaf is below another node.
                _ => {
                    add(&mut port, leaf + 100, 0, real_time, NodeKind::Priority);
                    add(&mut port, leaf, leaf + 100, Share::Level(0), fifo());
                }
            }
        }
        for leaf in 5..12 {
            let kind = [fifo(), flow_queues(), fq_codel()][leaf as usize % 3].clone();
            add(&mut port, leaf, 0, curves(None), kind);
        }
        let (mut now, mut number) = (0, 0);
        let (mut offered, mut sent, mut lost) = (0_u64, 0_u64, 0_u64);
        for (leaf, count, flood) in floods {
            let (dropped, flow) = (&mut lost, number % 20 + 100);
            let mut sink = |frame: Frame, _: DropCause| {
                assert!(frame.flow >= 100, "{frame:?} is lost");
                *dropped += 1;
            };
            for more in 0..count {
                let frame = frame(flow + more % 5, number + more, flood);
                port.enqueue(NodeId(leaf), FlowNumber(frame.flow), frame, at(now), &mut sink);
            }
            for guaranteed in 1..=kinds.len() as u32 {
                let frame = frame(guaranteed, number, length);
                port.enqueue(NodeId(guaranteed), FlowNumber(guaranteed), frame, at(now), &mut sink);
            }
            (number, offered) = (number + count, offered + u64::from(count) + kinds.len() as u64);
            // 5 Mb/s send a packet of the guaranteed leaves in this time.
            let from = now;
            now += u64::from(length) * 1_600;
            send(&mut port, (from, now), |_| sent += 1, &mut sink);
            prop_assert_eq!(offered, sent + lost + u64::from(port.held_packets()));
        }
    }

    /// As above, for flows with a reserved rate in a leaf with a queue per flow.
    #[test]
    fn no_flood_drops_a_packet_of_a_reserved_flow(
        reserved in 1_u32..4,
        floods in prop::collection::vec((1_u32..60, 40_u32..9_216), 10..60),
        batches in any::<bool>(),
    ) {
        let limits = BufferLimits { queues: 200, packets: MEMORY.0 as u32, bytes: MEMORY.1 as u32 };
        let rate = Rate::from_megabits(100);
        let link = LinkRate { rate: Some(rate), slack: 0 };
        let mut port: Port = LinkScheduler::new(link, LinkOverhead::None, limits).unwrap();
        let queue = QueueSettings { threshold: 1 << 30, aqm: Aqm::TailDrop };
        let settings = FlowQueuesSettings { queues: 100, queue, capacity: Some(rate), ..Default::default() };
        add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
        for flow in 0..reserved {
            port.edit().flows(NodeId(0)).unwrap().reserve(FlowNumber(flow), Rate::from_megabits(20)).unwrap();
        }
        let (mut number, mut waiting) = (0, [0_u64; 4]);
        for (now, (count, length)) in (0_u64..).step_by(600_000).zip(floods) {
            let others = (0..count).map(|more| frame(100 + (number + more) % 80, number + more, length));
            let own = (0..reserved).map(|flow| frame(flow, number, 500));
            let arrival = |frame: Frame| millrace_schedule::Arrival {
                leaf: NodeId(0),
                flow: FlowNumber(frame.flow),
                item: frame,
            };
            let mut all: Vec<_> = others.chain(own).map(arrival).collect();
            number += count;
            // A reserve has room for 36 packets and 18,432 bytes: for 36 packets of 500 bytes.
            let within = waiting.map(|packets| packets < 36);
            let mut lost = [0; 4];
            let mut sink = |frame: Frame, _: DropCause| {
                if let Some(lost) = lost.get_mut(frame.flow as usize) {
                    *lost += 1;
                }
            };
            while !all.is_empty() {
                let mut batch: Vec<_> = all.drain(..all.len().min(32)).collect();
                if batches {
                    port.enqueue_batch(&mut batch, at(now), &mut sink);
                } else {
                    for millrace_schedule::Arrival { leaf, flow, item } in batch {
                        port.enqueue(leaf, flow, item, at(now), &mut sink);
                    }
                }
            }
            for flow in 0..reserved as usize {
                prop_assert!(lost[flow] == 0 || !within[flow], "flow {} lost a packet within its reserve", flow);
                waiting[flow] += 1 - lost[flow];
            }
            let count_sent = |frame: Frame| {
                if let Some(waiting) = waiting.get_mut(frame.flow as usize) {
                    *waiting -= 1;
                }
            };
            send(&mut port, (now, now + 599_999), count_sent, &mut never);
        }
    }
}

#[test]
fn the_reserve_ends_with_the_guarantee() {
    let mut port = small_port();
    let mut now = 0;
    // Returns the number of packets that other leaves get into the memory together.
    let mut most = |port: &mut Port| {
        let (mut count, mut lost) = (0, false);
        while !lost {
            let mut sink = |_: Frame, _: DropCause| lost = true;
            for leaf in 2..9 {
                let stays = port.enqueue(NodeId(leaf), FlowNumber(0), frame(0, 0, 100), at(now), &mut sink);
                count += u32::from(stays);
            }
        }
        let from = now;
        now += 1_000_000_000;
        send(port, (from, now - 1), drop, &mut never);
        count
    };
    for leaf in 1..9 {
        add(&mut port, leaf, 0, curves(None), fifo());
    }
    let whole = most(&mut port);
    let real_time = curves(Some(Curve::linear(Rate::from_megabits(1))));
    port.edit().set_share(NodeId(1), real_time, at(5_000_000_000)).unwrap();
    assert!(most(&mut port) < whole, "{whole}");
    port.edit().set_share(NodeId(1), curves(None), at(5_000_000_000)).unwrap();
    assert_eq!(most(&mut port), whole);
    port.edit().set_share(NodeId(1), real_time, at(5_000_000_000)).unwrap();
    port.edit().remove(NodeId(1), Leftover::Drop, at(5_000_000_000), &mut never).unwrap();
    assert_eq!(most(&mut port), whole);
}
