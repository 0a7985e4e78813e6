//! Construction, changes and views of trees.

use std::time::Duration;

use crate::support::*;

#[test]
fn drr_inside_an_hfsc_leaf_behind_a_token_bucket() {
    let now = Instant::ZERO;
    let mut port = port(Some(100_000_000));
    let id = NodeId;
    port.edit()
        .add(id(0), None, Share::Only, &NodeKind::TokenBucket { rate: Rate(10_000_000), burst: 3000 }, now)
        .unwrap();
    port.edit().add(id(1), Some(id(0)), Share::Only, &NodeKind::Hfsc, now).unwrap();
    let sharing = |rate| Share::Curves(Curves::sharing(Rate(rate)));
    port.edit()
        .add(id(2), Some(id(1)), sharing(6_000_000), &NodeKind::FlowQueues(Default::default()), now)
        .unwrap();
    port.edit()
        .add(id(3), Some(id(1)), sharing(4_000_000), &NodeKind::Fifo(Default::default()), now)
        .unwrap();
    let mut number = 0;
    let mut sent = [0_u64; 4];
    let mut waiting = [0; 4];
    let mut clock = Instant::ZERO;
    while clock < Instant::from_millis(1000) {
        for (node, flow) in [(2, 0), (2, 1), (3, 2)] {
            if waiting[flow as usize] < 20 {
                number += 1;
                waiting[flow as usize] += 1;
                let frame = frame(flow, number, 1000);
                assert!(port.enqueue(id(node), FlowNumber(flow), frame, clock, &mut never));
            }
        }
        while let Some(frame) = port.dequeue(clock, &mut never) {
            sent[frame.flow as usize] += u64::from(frame.length);
            waiting[frame.flow as usize] -= 1;
        }
        let next = port.next_ready();
        assert!(next > clock, "{next} {clock}");
        clock = next;
    }
    // 10 Mb/s for a second, plus the burst, in the ratio 3:3:4.
    let total: u64 = sent.iter().sum();
    assert!((1_249_000..=1_254_000).contains(&total), "{total}");
    for (flow, share) in [(0, 0.3), (1, 0.3), (2, 0.4)] {
        let got = sent[flow] as f64 / total as f64;
        assert!((got - share).abs() < 0.005, "{flow}: {got}");
    }
    let view = port.report().view(id(0)).unwrap();
    assert_eq!(view.sent_bytes, total);
    assert_eq!(view.promised, Some(Rate(10_000_000)), "its own rate, of the link's 100 Mb/s");
    assert_eq!(port.report().view(id(1)).unwrap().promised, Some(Rate(10_000_000)));
    assert_eq!(port.report().view(id(2)).unwrap().promised, Some(Rate(6_000_000)));
}

#[test]
fn promised_rate_is_limited_by_the_token_bucket() {
    let bucket = |rate| NodeKind::TokenBucket { rate: Rate(rate), burst: 3000 };
    let promised =
        |port: &LinkScheduler<Frame>, node| port.report().view(NodeId(node)).unwrap().promised.unwrap().0;
    // A round-robin sibling gets the rate that the child below the bucket can't use.
    let mut round = port(Some(10_000_000));
    add(&mut round, 0, None, Share::Only, NodeKind::DeficitRoundRobin);
    add(&mut round, 1, 0, Share::Quantum(1500), bucket(1_000_000));
    add(&mut round, 2, 1, Share::Only, fifo());
    add(&mut round, 3, 0, Share::Quantum(1500), fifo());
    assert_eq!([1, 2, 3].map(|node| promised(&round, node)), [1_000_000, 1_000_000, 9_000_000]);
    // A bucket may be the root of a port without a rate.
    let mut alone = port(None);
    add(&mut alone, 0, None, Share::Only, bucket(1_000_000));
    assert_eq!(promised(&alone, 0), 1_000_000);
    // Siblings share the rate that a class with a bucket can't use. The class itself is promised no more than
    // the bucket's rate.
    let mut classes = port(Some(10_000_000));
    add(&mut classes, 0, None, Share::Only, NodeKind::Hfsc);
    let curves = |real_time: Option<u64>| {
        let linear = |rate| Curve::linear(Rate(rate));
        let link_sharing = Some(linear(5_000_000));
        Share::Curves(Curves { real_time: real_time.map(linear), link_sharing, upper_limit: None })
    };
    add(&mut classes, 1, 0, curves(None), bucket(1_000_000));
    add(&mut classes, 2, 0, curves(None), fifo());
    assert_eq!([1, 2].map(|node| promised(&classes, node)), [1_000_000, 9_000_000]);
    let refused =
        classes.edit().set_share(NodeId(1), curves(Some(1_500_000)), at(0)).unwrap_err().to_string();
    assert!(refused.contains("its own token bucket"), "{refused}");
    classes.edit().set_share(NodeId(1), curves(Some(1_000_000)), at(0)).unwrap();
    let refused = classes.edit().set(NodeId(1), &bucket(900_000), at(0)).unwrap_err().to_string();
    assert!(refused.contains("its own token bucket"), "{refused}");
    assert_eq!(promised(&classes, 1), 1_000_000);
    let late =
        classes.edit().add(NodeId(3), Some(NodeId(0)), curves(Some(2_000_000)), &bucket(1_000_000), at(0));
    assert!(late.unwrap_err().to_string().contains("its own token bucket"));
}

fn threshold(bytes: u32) -> NodeKind {
    NodeKind::Fifo(QueueSettings { threshold: bytes, aqm: Aqm::TailDrop })
}

/// Asserts that offered = sent + moved + held + dropped, in packets.
fn assert_conserved(view: &QueueView) {
    let held = u64::from(view.held_packets);
    assert_eq!(view.offered_packets, view.sent_packets + view.moved_packets + held + view.drops.packets());
}

#[test]
fn longest_wait_of_a_leaf_with_a_guarantee_counts_from_its_last_change() {
    let mut port = port(Some(8_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let guaranteed = |rate| {
        let real_time = Some(Curves::sharing(Rate(rate)).link_sharing.unwrap());
        Share::Curves(Curves { real_time, ..Curves::default() })
    };
    add(&mut port, 1, 0, guaranteed(4_000_000), fifo());
    add(&mut port, 2, 0, Share::Curves(Curves::sharing(Rate(1_000_000))), fifo());
    let longest = |port: &LinkScheduler<Frame>, node| {
        port.report().view(NodeId(node)).unwrap().waits.map(|waits| waits.longest)
    };
    assert_eq!((longest(&port, 1), longest(&port, 2)), (Some(Duration::ZERO), None));
    let milliseconds = Instant::from_millis;
    for (node, arrival, departure) in [(1, 0, 5), (1, 10, 12), (2, 20, 40)] {
        let frame = frame(node, arrival, 1000);
        assert!(port.enqueue(
            NodeId(node),
            FlowNumber(node),
            frame,
            milliseconds(arrival.into()),
            &mut never
        ));
        assert!(port.dequeue(milliseconds(departure), &mut never).is_some());
    }
    let unit = Duration::from_nanos(1024);
    assert!(longest(&port, 1).unwrap().abs_diff(Duration::from_millis(5)) < unit);
    assert_eq!(longest(&port, 2), None);
    port.edit().set_share(NodeId(1), guaranteed(2_000_000), milliseconds(50)).unwrap();
    assert_eq!(longest(&port, 1), Some(Duration::ZERO));
}

/// Rate of the link, and of the leaf with a guarantee, in bit/s.
const LINK: u64 = 10_000_000;
const GUARANTEED: u64 = 1_000_000;

/// Runs a leaf with a guarantee and flow queues beside a greedy one. Returns the bits that it sent, and the waits of its
/// packets. `packets`: gap before each in microseconds, flow and length.
fn run_guaranteed(packets: &[(u64, u32, u32)]) -> (f64, NodeWaits) {
    let mut port = port(Some(LINK));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let linear = |rate| Some(Curve::linear(Rate(rate)));
    let curves = Curves { real_time: linear(GUARANTEED), link_sharing: linear(1_000), upper_limit: None };
    add(&mut port, 1, 0, Share::Curves(curves), NodeKind::FlowQueues(Default::default()));
    add(&mut port, 2, 0, Share::Curves(Curves::sharing(Rate(LINK))), fifo());
    let mut arrivals: Vec<Arrival> =
        (0..10_000).map(|number| Arrival { at: 0, node: 2, frame: frame(9, number, 1500) }).collect();
    let mut now = 0;
    for (number, (gap, flow, length)) in packets.iter().enumerate() {
        now += gap * 1000;
        arrivals.push(Arrival { at: now, node: 1, frame: frame(*flow, number as u32, *length) });
    }
    run(&mut port, &arrivals, 10_000_000_000);
    let view = port.report().view(NodeId(1)).unwrap();
    (view.sent_wire_bytes as f64 * 8.0, view.waits.unwrap())
}

/// Returns the bits due by the backlog, less the longest promised wait at each of its starts.
fn due(waits: &NodeWaits) -> f64 {
    let latency = 1500.0 * 8.0 / GUARANTEED as f64 + 1500.0 * 8.0 / LINK as f64;
    let time = waits.backlogged.as_secs_f64() - f64::from(waits.periods) * latency;
    time.max(0.0) * GUARANTEED as f64
}

proptest! {
    #[test]
    fn bits_due_by_the_backlog_are_never_above_the_bits_sent(
        packets in (60_u32..=1500, 1_u64..30_000).prop_flat_map(|(longest, gap)| {
            prop::collection::vec((0..gap, 0_u32..3, 60..=longest), 1..300)
        }),
    ) {
        let (sent, waits) = run_guaranteed(&packets);
        let slack = 2.0 * 1500.0 * 8.0;
        prop_assert!(due(&waits) <= sent * 1.01 + slack, "{sent} {waits:?}");
    }
}

#[test]
fn wait_for_a_packet_of_others_makes_nothing_due() {
    let packets: Vec<_> = (0..1_000).map(|number| (6_900, number % 3, 60)).collect();
    let (sent, waits) = run_guaranteed(&packets);
    let backlogged = waits.backlogged.as_secs_f64() * GUARANTEED as f64;
    assert!(backlogged > 1.1 * sent, "{sent} {waits:?}");
    assert_eq!((waits.periods, due(&waits)), (1_000, 0.0));
}

#[test]
fn backlog_of_a_leaf_that_is_never_empty_lasts_until_its_last_packet_leaves() {
    // 2 Mb/s for two seconds.
    let packets: Vec<_> = (0..500).map(|number| (4_000, number % 3, 1_000)).collect();
    let (sent, waits) = run_guaranteed(&packets);
    assert!(sent == 4_000_000.0 && waits.periods <= 3, "{sent} {waits:?}");
    assert!((due(&waits) / sent - 1.0).abs() < 0.01, "{waits:?}");
}

#[test]
fn longest_wait_of_a_class_with_a_subtree_is_that_of_its_leaves() {
    let mut port = port(Some(8_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let real_time = Curves::sharing(Rate(4_000_000)).link_sharing;
    let curves = |real_time| Share::Curves(Curves { real_time, ..Curves::sharing(Rate(4_000_000)) });
    add(&mut port, 1, 0, curves(None), NodeKind::Hfsc);
    add(&mut port, 2, 1, curves(real_time), NodeKind::Priority);
    add(&mut port, 3, 2, Share::Level(0), fifo());
    add(&mut port, 4, 2, Share::Level(1), NodeKind::DeficitRoundRobin);
    add(&mut port, 5, 4, Share::Quantum(1500), fifo());
    let milliseconds = Instant::from_millis;
    for (node, arrival, departure) in [(5, 0, 7), (3, 10, 12), (5, 20, 23)] {
        let frame = frame(node, arrival, 1000);
        let arrival = milliseconds(arrival.into());
        assert!(port.enqueue(NodeId(node), FlowNumber(node), frame, arrival, &mut never));
        assert!(port.dequeue(milliseconds(departure), &mut never).is_some());
    }
    let longest = |node| port.report().view(NodeId(node)).unwrap().waits.map(|waits| waits.longest);
    assert!(longest(2).unwrap().abs_diff(Duration::from_millis(7)) < Duration::from_nanos(1024));
    assert_eq!([0, 1, 3, 4, 5].map(longest), [None; 5]);
}

#[test]
fn counters_before_and_behind_a_queue_agree() {
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    add(&mut port, 1, 0, Share::Level(0), threshold(2999));
    add(&mut port, 2, 0, Share::Level(1), fifo());
    let mut dropped = 0;
    for number in 0..5 {
        port.enqueue(
            NodeId(1),
            FlowNumber(0),
            frame(0, number, 1000),
            at(0),
            &mut |_: Frame, _: DropCause| dropped += 1,
        );
    }
    assert!(port.dequeue(at(0), &mut never).is_some());
    let view = port.report().queue(NodeId(1)).unwrap();
    assert_eq!((view.offered_packets, view.sent_packets, view.held_packets, dropped), (5, 1, 2, 2));
    assert_eq!((view.offered_bytes, view.peak_bytes, view.peak_packets), (5000, 3000, 3));
    assert_conserved(&view);
    assert_eq!(port.edit().remove(NodeId(1), Leftover::MoveTo(NodeId(2)), at(0), &mut never).unwrap(), 2);
    let to = port.report().queue(NodeId(2)).unwrap();
    assert_eq!((to.offered_packets, to.held_packets), (2, 2));
    assert_conserved(&to);
    let root = port.report().view(NodeId(0)).unwrap();
    assert_eq!((root.sent_packets, root.held_packets, root.drops.packets()), (1, 2, 2));
    assert_eq!(port.report().tree()[0], root);
}

#[test]
fn thresholds_and_levels_change_while_packets_wait() {
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    add(&mut port, 1, 0, Share::Level(5), threshold(1000));
    add(&mut port, 2, 0, Share::Level(6), fifo());
    put(&mut port, 1, frame(1, 1, 1001), 0);
    put(&mut port, 2, frame(2, 2, 100), 0);
    assert!(!port.enqueue(
        NodeId(1),
        FlowNumber(1),
        frame(1, 3, 10),
        at(0),
        &mut |_: Frame, _: DropCause| {}
    ));
    port.edit().set(NodeId(1), &threshold(2000), at(0)).unwrap();
    put(&mut port, 1, frame(1, 4, 10), 0);
    port.edit().set_share(NodeId(1), Share::Level(7), at(0)).unwrap();
    let order: Vec<u32> =
        std::iter::from_fn(|| port.dequeue(at(0), &mut never)).map(|frame| frame.number).collect();
    assert_eq!(order, [2, 1, 4]);
}

/// Builds a new tree apart from the root, and replaces the old tree by it. The waiting packets leave in their
/// order.
#[test]
fn a_tree_is_replaced_under_load() {
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, fifo());
    for number in 0..10 {
        put(&mut port, 0, frame(number % 3, number, 500), 0);
    }
    add(&mut port, 10, None, Share::Only, NodeKind::Hfsc);
    let sharing = Share::Curves(Curves::sharing(Rate(1_000_000)));
    add(&mut port, 11, 10, sharing, NodeKind::FlowQueues(Default::default()));
    assert_eq!(port.root(), Some(NodeId(0)));
    assert_eq!(port.edit().remove(NodeId(0), Leftover::MoveTo(NodeId(11)), at(0), &mut never).unwrap(), 10);
    assert!(port.dequeue(at(0), &mut never).is_none());
    port.edit().move_to(NodeId(10), None, Share::Only, at(0)).unwrap();
    assert_eq!((port.root(), port.held_packets()), (Some(NodeId(10)), 10));
    assert_eq!(port.report().flows(NodeId(11), 0, 2).unwrap().len(), 2);
    let mut last = [None; 3];
    for _ in 0..10 {
        let gone = port.dequeue(at(0), &mut never).unwrap();
        let before = last[gone.flow as usize].replace(gone.number);
        assert!(before < Some(gone.number));
    }
    assert_eq!(port.next_ready(), Instant::FOREVER);
}

#[test]
fn removed_class_returns_its_packets() {
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, NodeKind::DeficitRoundRobin);
    add(&mut port, 1, 0, Share::Quantum(1500), NodeKind::FqCodel(Default::default()));
    add(&mut port, 2, 0, Share::Quantum(1500), fifo());
    for number in 0..6 {
        put(&mut port, 1 + number % 2, frame(number, number, 500), 0);
    }
    let mut back = Vec::new();
    let mut sink = |frame: Frame, cause| {
        assert_eq!(cause, DropCause::Removed);
        back.push(frame.number);
    };
    assert_eq!(port.edit().remove(NodeId(1), Leftover::Drop, at(0), &mut sink).unwrap(), 3);
    back.sort_unstable();
    assert_eq!(back, [0, 2, 4]);
    assert_eq!((port.held_packets(), port.report().lost().get(DropCause::Removed)), (3, 3));
    assert_eq!(port.report().view(NodeId(1)), None);
    assert_eq!(port.report().view(NodeId(0)).unwrap().held_bytes, 1500);
}

#[test]
fn overhead_counts_in_rates_but_not_in_queues() {
    let link = LinkRate { rate: Some(Rate(8_000_000)), slack: 0 };
    let mut port: Port =
        LinkScheduler::new(link, LinkOverhead::Atm { encapsulation: 0 }, BufferLimits::default()).unwrap();
    add(&mut port, 0, None, Share::Only, fifo());
    put(&mut port, 0, frame(0, 0, 1000), 0);
    put(&mut port, 0, frame(0, 1, 1000), 0);
    assert_eq!(port.held_bytes(), 2000);
    assert!(port.dequeue(at(0), &mut never).is_some());
    // 21 cells of 53 bytes take 1,113 microseconds, at a byte per microsecond.
    assert_eq!(port.next_ready(), at(1_113_000));
    port.set_overhead(LinkOverhead::None);
    assert!(port.dequeue(at(1_113_000), &mut never).is_some());
    put(&mut port, 0, frame(0, 2, 1000), 1_113_000);
    assert_eq!(port.next_ready(), at(2_113_000));
}
