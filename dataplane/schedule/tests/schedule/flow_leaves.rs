//! Leaves with a queue per flow: the port's queues among several leaves, settings of single flows, and
//! packets moved to a leaf.

use crate::support::*;

const SECOND: u64 = 1_000_000_000;

fn small_port(queues: u32) -> Port {
    let limits = BufferLimits { queues, ..BufferLimits::default() };
    let mut port = LinkScheduler::new(LinkRate::default(), LinkOverhead::None, limits).unwrap();
    add(&mut port, 0, None, Share::Only, NodeKind::DeficitRoundRobin);
    port
}

fn flow_queues(queues: u32) -> NodeKind {
    NodeKind::FlowQueues(FlowQueuesSettings { queues, ..Default::default() })
}

fn add_leaf(port: &mut Port, node: u32, kind: NodeKind, now: u64) -> Result<(), String> {
    let added = port.edit().add(NodeId(node), Some(NodeId(0)), Share::Quantum(1500), &kind, at(now));
    added.map_err(|error| error.to_string())
}

fn drain(port: &mut Port, now: u64) -> Vec<u32> {
    std::iter::from_fn(|| port.dequeue(at(now), &mut never)).map(|frame| frame.number).collect()
}

fn has_queue(port: &Port, node: u32, flow: u32) -> bool {
    port.report().flow(NodeId(node), FlowNumber(flow)).unwrap().is_some()
}

#[test]
fn empty_queues_of_a_leaf_come_back_for_a_leaf_that_is_added() {
    let mut port = small_port(6);
    add_leaf(&mut port, 1, flow_queues(5), 0).unwrap();
    (0..5).for_each(|flow| put(&mut port, 1, frame(flow, flow, 100), 0));
    assert_eq!(port.report().queue_counts(), (6, 6));
    let refused = add_leaf(&mut port, 2, flow_queues(2), 0).unwrap_err();
    assert!(
        refused
            .contains("all 6 queues of the port belong to other nodes, hold packets or are kept for a flow"),
        "{refused}"
    );
    assert_eq!(drain(&mut port, 0).len(), 5);
    add_leaf(&mut port, 2, flow_queues(2), 0).unwrap();
    assert_eq!(port.report().queue_counts(), (2, 6));
}

#[test]
fn empty_queues_of_a_leaf_come_back_for_flows_of_another() {
    let mut port = small_port(7);
    add_leaf(&mut port, 1, flow_queues(6), 0).unwrap();
    add_leaf(&mut port, 2, flow_queues(6), 0).unwrap();
    (0..5).for_each(|flow| put(&mut port, 1, frame(flow, flow, 100), 0));
    drain(&mut port, 0);
    let now = 2 * SECOND;
    // The first flow finds no free queue and uses the shared queue. The next flows get the queues that became
    // empty.
    for flow in 10..14 {
        put(&mut port, 2, frame(flow, flow, 100), now);
        drain(&mut port, now);
    }
    assert!(!has_queue(&port, 2, 10) && (11..14).all(|flow| has_queue(&port, 2, flow)));
}

#[test]
fn number_of_queues_of_a_port_changes_within_the_leaves_needs() {
    let mut port = small_port(6);
    let refused = add_leaf(&mut port, 1, flow_queues(6), 0).unwrap_err();
    assert!(
        refused.contains("6 queues for flows and one shared queue are more than the 6 of the port"),
        "{refused}"
    );
    assert!(refused.contains("at most 65536"), "{refused}");
    port.edit().set_most_queues(65_536).unwrap();
    add_leaf(&mut port, 1, flow_queues(60_000), 0).unwrap();
    (0..20).for_each(|flow| put(&mut port, 1, frame(flow, flow, 100), 0));
    assert_eq!(port.report().queue_counts(), (21, 65_536));
    let refused = |port: &mut Port, most| port.edit().set_most_queues(most).unwrap_err().to_string();
    assert!(refused(&mut port, 65_537).contains("queues must be 1 to 65536, not 65537"));
    assert!(refused(&mut port, 100).contains("60000 queues for flows"));
    port.edit().remove(NodeId(1), Leftover::Drop, at(0), &mut |_: Frame, _: DropCause| {}).unwrap();
    add_leaf(&mut port, 1, flow_queues(15), 0).unwrap();
    (0..20).for_each(|flow| put(&mut port, 1, frame(flow, flow, 100), 0));
    add_leaf(&mut port, 2, fifo(), 0).unwrap();
    // Queues that hold packets stay open. The port opens no queue while it is above the maximum.
    port.edit().set_most_queues(16).unwrap();
    put(&mut port, 1, frame(99, 99, 100), 0);
    assert_eq!((port.report().queue_counts(), has_queue(&port, 1, 99)), ((17, 16), false));
    assert_eq!(drain(&mut port, 0).len(), 21);
}

#[test]
fn flow_leaves_the_shared_queue_with_its_packets_for_its_own_queue() {
    for reserves in [true, false] {
        let mut port = port(None);
        let settings =
            FlowQueuesSettings { queues: 2, capacity: Some(Rate(1_000_000)), ..Default::default() };
        add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
        // Two flows own queues; the third and the fourth use the shared queue.
        for (number, flow) in [1, 2, 3, 4, 3, 4, 3].into_iter().enumerate() {
            put(&mut port, 0, frame(flow, number as u32, 1500), 0);
        }
        // The queue of flow 1 is empty now, so another flow can take it over.
        let mut sent = vec![port.dequeue(at(0), &mut never).unwrap()];
        assert_eq!(sent[0].flow, 1);
        let later = 2 * SECOND;
        if reserves {
            port.edit().flows(NodeId(0)).unwrap().reserve(FlowNumber(3), Rate(900_000)).unwrap();
        } else {
            port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(3), Some(6000), None).unwrap();
        }
        assert!(has_queue(&port, 0, 3));
        (7..10).for_each(|number| put(&mut port, 0, frame(3, number, 1500), later));
        put(&mut port, 0, frame(4, 10, 1500), later);
        sent.extend(std::iter::from_fn(|| port.dequeue(at(later), &mut never)));
        for flow in [3, 4] {
            let numbers: Vec<u32> =
                sent.iter().filter(|frame| frame.flow == flow).map(|frame| frame.number).collect();
            assert!(numbers.is_sorted() && numbers.len() >= 3, "flow {flow}: {numbers:?}");
        }
        assert_eq!((sent.len(), port.held_packets()), (11, 0));
        let view = port.report().view(NodeId(0)).unwrap();
        assert_eq!((view.sent_packets, view.held_packets), (11, 0));
    }
}

#[test]
fn configured_flow_keeps_its_queue() {
    let mut port = port(None);
    let settings = FlowQueuesSettings { queues: 3, capacity: Some(Rate(1_000_000)), ..Default::default() };
    add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(1), None, Some(Some(5000))).unwrap();
    port.edit().flows(NodeId(0)).unwrap().reserve(FlowNumber(2), Rate(500_000)).unwrap();
    for flow in 3..20 {
        put(&mut port, 0, frame(flow, flow, 100), 0);
        assert!([1, 2, flow].iter().all(|flow| has_queue(&port, 0, *flow)));
        assert_eq!(drain(&mut port, 0), [flow]);
    }
    assert_eq!(port.report().flow(NodeId(0), FlowNumber(1)).unwrap().unwrap().0.threshold, 5000);
}

#[test]
fn a_threshold_of_a_flow_stays_when_that_of_all_others_changes() {
    let mut port = port(None);
    let common = |threshold| {
        let queue = QueueSettings { threshold, aqm: Aqm::TailDrop };
        NodeKind::FlowQueues(FlowQueuesSettings { queue, ..Default::default() })
    };
    add(&mut port, 0, None, Share::Only, common(10_000));
    let threshold =
        |port: &Port, flow| port.report().flow(NodeId(0), FlowNumber(flow)).unwrap().unwrap().0.threshold;
    (1..4).for_each(|flow| put(&mut port, 0, frame(flow, flow, 100), 0));
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(1), None, Some(Some(500))).unwrap();
    // A flow's own threshold stays even if it equals the common threshold.
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(2), None, Some(Some(10_000))).unwrap();
    port.edit().set(NodeId(0), &common(20_000), at(0)).unwrap();
    assert_eq!([1, 2, 3].map(|flow| threshold(&port, flow)), [500, 10_000, 20_000]);
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(1), Some(3000), None).unwrap();
    assert_eq!(threshold(&port, 1), 500);
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(1), None, Some(None)).unwrap();
    port.edit().set(NodeId(0), &common(30_000), at(0)).unwrap();
    assert_eq!([1, 2, 3].map(|flow| threshold(&port, flow)), [30_000, 10_000, 30_000]);
    let (view, _) = port.report().flow(NodeId(0), FlowNumber(1)).unwrap().unwrap();
    assert_eq!(view.quantum, 3000);
}

#[test]
fn the_rate_that_reservations_are_parts_of_can_not_be_taken_away() {
    let mut port = port(None);
    let leaf = |capacity| NodeKind::FlowQueues(FlowQueuesSettings { capacity, ..Default::default() });
    add(&mut port, 0, None, Share::Only, leaf(None));
    let reserve = |port: &mut Port, flow| {
        port.edit()
            .flows(NodeId(0))
            .unwrap()
            .reserve(FlowNumber(flow), Rate(1_000_000))
            .map_err(|error| error.to_string())
    };
    assert!(reserve(&mut port, 1).unwrap_err().contains("it has no rate to reserve from"));
    port.edit().set(NodeId(0), &leaf(Some(Rate(8_000_000))), at(0)).unwrap();
    (1..4).for_each(|flow| reserve(&mut port, flow).unwrap());
    for (capacity, words) in
        [(None, "a missing rate is not above"), (Some(Rate(3_000_000)), "a rate of 3.00 Mb/s is not above")]
    {
        let refused = port.edit().set(NodeId(0), &leaf(capacity), at(0)).unwrap_err().to_string();
        assert!(
            refused.contains(words) && refused.contains("3.00 Mb/s reserved for 3 of its flows"),
            "{refused}"
        );
    }
    (1..4).for_each(|flow| assert!(port.edit().flows(NodeId(0)).unwrap().forget(FlowNumber(flow))));
    port.edit().set(NodeId(0), &leaf(None), at(0)).unwrap();
}

#[test]
fn a_leaf_gets_more_queues_and_fewer_while_packets_wait() {
    let mut port = small_port(40);
    add_leaf(&mut port, 1, flow_queues(2), 0).unwrap();
    (0..6).for_each(|flow| put(&mut port, 1, frame(flow, flow, 100), 0));
    assert_eq!((0..6).filter(|flow| has_queue(&port, 1, *flow)).count(), 2);
    port.edit().set(NodeId(1), &flow_queues(30), at(0)).unwrap();
    (10..20).for_each(|flow| put(&mut port, 1, frame(flow, flow, 100), 0));
    assert!((10..20).all(|flow| has_queue(&port, 1, flow)));
    assert!(port.edit().set(NodeId(1), &flow_queues(40), at(0)).is_err());
    port.edit().set(NodeId(1), &flow_queues(1), at(0)).unwrap();
    put(&mut port, 1, frame(30, 30, 100), 0);
    assert!(!has_queue(&port, 1, 30));
    assert_eq!(drain(&mut port, 0).len(), 17);
}

#[test]
fn single_empty_queue_of_a_hundred_is_found_for_a_configured_flow() {
    let mut port = port(None);
    let settings = FlowQueuesSettings { queues: 100, ..Default::default() };
    add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
    for flow in 0..99 {
        put(&mut port, 0, frame(flow, flow, 100), 0);
    }
    put(&mut port, 0, frame(99, 99, 40), 0);
    while port
        .report()
        .flow(NodeId(0), FlowNumber(99))
        .unwrap()
        .is_some_and(|(queue, _)| queue.held_packets > 0)
    {
        let sent = port.dequeue(at(0), &mut never).unwrap();
        if sent.flow != 99 {
            put(&mut port, 0, frame(sent.flow, 0, 100), 0);
        }
    }
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(1000), Some(3000), None).unwrap();
    let refused = port
        .edit()
        .flows(NodeId(0))
        .unwrap()
        .set(FlowNumber(1001), Some(3000), None)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("all 100 for flows hold packets or are kept for a flow"), "{refused}");
    // A caller that has checked the number of queues itself gets a queue.
    port.trust(true);
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(1001), Some(3000), None).unwrap();
    assert!(has_queue(&port, 0, 1001));
}

/// Lowers the number of queues of a leaf. Empty surplus queues are closed at once, other surplus queues once
/// they are empty.
#[test]
fn removed_queues_disappear_once_empty() {
    let mut port = port(None);
    let settings = |queues| NodeKind::FlowQueues(FlowQueuesSettings { queues, ..Default::default() });
    add(&mut port, 0, None, Share::Only, settings(40));
    for flow in 0..40 {
        put(&mut port, 0, frame(flow, 1, 100), 0);
    }
    let in_use = |port: &Port| port.report().view(NodeId(0)).unwrap().queues;
    assert_eq!(in_use(&port), 41);
    for _ in 0..30 {
        port.dequeue(at(0), &mut never).unwrap();
    }
    port.edit().set(NodeId(0), &settings(4), at(0)).unwrap();
    assert_eq!(in_use(&port), 11, "ten have packets still");
    while port.dequeue(at(0), &mut never).is_some() {}
    for flow in 100..140 {
        put(&mut port, 0, frame(flow, 1, 100), 0);
    }
    assert_eq!(in_use(&port), 5);
}

proptest! {
    /// Changes the number of FQ-CoDel flows below any kind of parent. Each flow keeps its order, although the
    /// leaf's next packet may change.
    #[test]
    fn changed_number_of_flows_keeps_the_order_of_each_flow(
        counts in prop::collection::vec(1_u32..2000, 1..4), arrivals in prop::collection::vec((0_u32..40, 64_u32..1500), 1..200),
        above in prop::sample::select(vec![NodeKind::Priority, NodeKind::DeficitRoundRobin, NodeKind::Hfsc]),
    ) {
        let mut port = port(None);
        let curves = Curves { link_sharing: Some(Curve::linear(Rate(1_000_000))), ..Default::default() };
        let share = |level| match above {
            NodeKind::Priority => Share::Level(level),
            NodeKind::DeficitRoundRobin => Share::Quantum(1500),
            _ => Share::Curves(curves),
        };
        add(&mut port, 0, None, Share::Only, above.clone());
        add(&mut port, 1, 0, share(1), NodeKind::FqCodel(FqCodelSettings::default()));
        add(&mut port, 2, 0, share(2), fifo());
        let mut numbers = 0..;
        let mut sent = Vec::new();
        for flows in &counts {
            for (flow, length) in &arrivals {
                let number = numbers.next().unwrap();
                put(&mut port, 1 + number % 2, frame(*flow, number, *length), 0);
            }
            sent.extend(port.dequeue(at(0), &mut never));
            let before = port.held_packets();
            let other = FqCodelSettings { flows: *flows, ..Default::default() };
            port.edit().set(NodeId(1), &NodeKind::FqCodel(other), at(0)).unwrap();
            let view = port.report().view(NodeId(1)).unwrap();
            prop_assert_eq!((view.queues, view.kind), (*flows, NodeKind::FqCodel(other)));
            prop_assert_eq!(port.held_packets(), before);
        }
        sent.extend(std::iter::from_fn(|| port.dequeue(at(0), &mut never)));
        prop_assert_eq!(sent.len(), counts.len() * arrivals.len());
        let mut last = std::collections::HashMap::new();
        for frame in sent {
            let before = last.insert((frame.flow, frame.number % 2), frame.number);
            prop_assert!(before.is_none_or(|before| before < frame.number), "{frame:?} behind {before:?}");
        }
        let view = port.report().view(NodeId(1)).unwrap();
        prop_assert_eq!((view.held_packets, view.held_bytes), (0, 0));
    }
}

#[test]
fn number_of_distinguished_flows_follows_the_setting() {
    let mut port = port(None);
    add(
        &mut port,
        1,
        None,
        Share::Only,
        NodeKind::FqCodel(FqCodelSettings { flows: 1, ..Default::default() }),
    );
    let order = |port: &mut Port| -> Vec<u32> {
        // Two flows send one packet per round each. In the same bucket, one flow sends after the other; in
        // separate buckets they alternate.
        for number in 0..4 {
            put(port, 1, frame(1 + number / 2, number, 1500), 0);
        }
        std::iter::from_fn(|| port.dequeue(at(0), &mut never)).map(|frame| frame.number).collect()
    };
    assert_eq!(order(&mut port), [0, 1, 2, 3]);
    let many = NodeKind::FqCodel(FqCodelSettings { flows: 1024, quantum: 1500, ..Default::default() });
    port.edit().set(NodeId(1), &many, at(0)).unwrap();
    assert_eq!(order(&mut port), [0, 2, 1, 3]);
}
