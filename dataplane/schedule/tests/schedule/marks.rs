//! Tests of ECN marks in place of drops, and of drops for lack of room: the right node counts them.

use crate::support::*;

/// Returns a packet of an ECN-capable sender.
fn capable(number: u32) -> Frame {
    Frame { capable: true, ..frame(1, number, 1000) }
}

#[test]
fn marks_are_counted_at_the_queue_the_leaf_and_above() {
    let codel = CodelSettings { target: 5_000_000, interval: 100_000_000, ecn: true };
    let red =
        RedSettings { minimum: 2000, maximum: 4000, weight: 1.0, probability: 1.0, ..Default::default() };
    let of_queue = |aqm| QueueSettings { threshold: 1 << 30, aqm };
    let flows = |aqm| NodeKind::FlowQueues(FlowQueuesSettings { queue: of_queue(aqm), ..Default::default() });
    for kind in [
        NodeKind::Fifo(of_queue(Aqm::Codel(codel))),
        NodeKind::Fifo(of_queue(Aqm::Red(red))),
        flows(Aqm::Codel(codel)),
        flows(Aqm::Red(red)),
        NodeKind::FqCodel(FqCodelSettings { codel, ..Default::default() }),
    ] {
        let mut port = port(Some(8_000_000));
        add(&mut port, 1, None, Share::Only, NodeKind::Priority);
        add(&mut port, 2, 1, Share::Level(0), kind.clone());
        let (mut now, mut marked) = (0, 0);
        // Two packets arrive while one leaves, for a second.
        for number in 0..2000 {
            port.enqueue(NodeId(2), FlowNumber(1), capable(number), at(now), &mut |_: Frame, _| {});
            now += 500_000;
            marked +=
                u64::from(port.dequeue(at(now), &mut |_: Frame, _| {}).is_some_and(|frame| frame.marked));
        }
        while port.held_packets() > 0 {
            now = now.max(port.next_ready().as_nanos());
            marked +=
                u64::from(port.dequeue(at(now), &mut |_: Frame, _| {}).is_some_and(|frame| frame.marked));
        }
        assert!(marked > 0, "{kind:?}");
        let counted = |node| port.report().view(NodeId(node)).unwrap().drops.marked();
        assert_eq!((counted(2), counted(1)), (marked, marked), "{kind:?}");
        assert_eq!(port.report().tree()[0].drops.marked(), marked, "{kind:?}");
        if matches!(kind, NodeKind::FlowQueues(_)) {
            assert_eq!(
                port.report().flow(NodeId(2), FlowNumber(1)).unwrap().unwrap().0.drops.marked(),
                marked
            );
        }
        // The parent keeps the counts when the node is removed.
        port.edit().remove(NodeId(2), Leftover::Drop, at(now), &mut never).unwrap();
        assert_eq!(port.report().view(NodeId(1)).unwrap().drops.marked(), marked, "{kind:?}");
    }
}

#[test]
fn dropped_packets_are_not_marked() {
    let red =
        RedSettings { minimum: 2000, maximum: 100_000, weight: 1.0, probability: 1.0, ..Default::default() };
    for (threshold, packets, cause) in
        [(30_000, 1 << 14, DropCause::Threshold), (1 << 30, 32, DropCause::BufferFull)]
    {
        let limits = BufferLimits { packets, ..Default::default() };
        let mut port = Port::new(LinkRate::default(), LinkOverhead::None, limits).unwrap();
        add(&mut port, 1, None, Share::Only, NodeKind::Fifo(QueueSettings { threshold, aqm: Aqm::Red(red) }));
        let mut dropped = Vec::new();
        for number in 0..200 {
            let mut sink = |frame: Frame, _| dropped.push(frame);
            port.enqueue(NodeId(1), FlowNumber(1), capable(number), at(0), &mut sink);
        }
        assert!(dropped.len() > 100 && dropped.iter().all(|frame| !frame.marked));
        let drops = port.report().view(NodeId(1)).unwrap().drops;
        assert_eq!(drops.get(cause), dropped.len() as u64, "{drops:?}");
        let sent = std::iter::from_fn(|| port.dequeue(at(0), &mut never));
        let marked = sent.filter(|frame| frame.marked).count() as u64;
        assert!(marked > 0);
        assert_eq!(drops.marked(), marked, "{cause:?}");
    }
}

#[test]
fn drops_for_lack_of_room_and_for_a_limit_are_distinguished() {
    let limits = BufferLimits { packets: 64, ..Default::default() };
    let (link, overhead) = (LinkRate::default(), LinkOverhead::None);
    for (limit, cause) in [(10_240, DropCause::BufferFull), (16, DropCause::Overlimit)] {
        let mut port = LinkScheduler::new(link, overhead, limits).unwrap();
        let kind = NodeKind::FqCodel(FqCodelSettings { limit, ..Default::default() });
        port.edit().add(NodeId(1), None, Share::Only, &kind, at(0)).unwrap();
        for number in 0..100 {
            port.enqueue(
                NodeId(1),
                FlowNumber(number % 7),
                frame(number % 7, number, 100),
                at(0),
                &mut |_: Frame, _| {},
            );
        }
        let drops = port.report().view(NodeId(1)).unwrap().drops;
        assert!(drops.packets() > 0);
        assert_eq!(drops.get(cause), drops.packets(), "{drops:?}");
    }
}
