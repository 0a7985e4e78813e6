//! Comparison of batches with single packets: both send and drop the same packets in the same order, with
//! equal counters.

use millrace_schedule::Arrival;

use crate::support::*;

/// Builds the tree with the number `tree`: a leaf alone, or leaves below each kind of inner node.
fn build(tree: u8, rate: Option<u64>) -> (Port, Vec<u32>) {
    let limits = BufferLimits { queues: 12, packets: 120, bytes: 1 << 16 };
    let link = LinkRate { rate: rate.map(Rate), slack: 3000 };
    let mut port = LinkScheduler::new(link, LinkOverhead::Ethernet, limits).unwrap();
    let queue = |aqm| QueueSettings { threshold: 9000, aqm };
    let codel = CodelSettings { target: 20_000, interval: 100_000, ecn: true };
    let flows = NodeKind::FlowQueues(FlowQueuesSettings {
        queues: 4,
        quantum: 700,
        queue: queue(Aqm::TailDrop),
        ..Default::default()
    });
    let fq_codel = NodeKind::FqCodel(FqCodelSettings { flows: 8, limit: 30, codel, ..Default::default() });
    let plain = NodeKind::Fifo(queue(Aqm::TailDrop));
    let managed = NodeKind::Fifo(queue(Aqm::Codel(codel)));
    let leaves = [plain, flows, fq_codel, managed];
    if let Some(kind) = leaves.get(usize::from(tree)) {
        add(&mut port, 0, None, Share::Only, kind.clone());
        return (port, vec![0]);
    }
    let curve = |rate| Some(Curve::linear(Rate(rate)));
    let curves = Curves { real_time: curve(2_000_000), link_sharing: curve(3_000_000), upper_limit: None };
    let (root, share): (_, fn(u32, Curves) -> Share) = match tree {
        4 => (NodeKind::Priority, |child, _| Share::Level(child)),
        5 => (NodeKind::DeficitRoundRobin, |child, _| Share::Quantum(500 * child)),
        6 => (NodeKind::Hfsc, |_, curves| Share::Curves(curves)),
        _ => (NodeKind::TokenBucket { rate: Rate(300_000_000), burst: 4000 }, |_, _| Share::Only),
    };
    add(&mut port, 0, None, Share::Only, root);
    if tree > 6 {
        add(&mut port, 1, 0, Share::Only, NodeKind::Priority);
        for (kind, node) in leaves.into_iter().zip(2..) {
            add(&mut port, node, 1, Share::Level(node), kind);
        }
        return (port, vec![2, 3, 4, 5]);
    }
    let more = [NodeKind::Fifo(queue(Aqm::TailDrop))];
    for (kind, node) in leaves.into_iter().chain(more).zip(1..) {
        add(&mut port, node, 0, share(node, curves), kind);
    }
    (port, vec![1, 2, 3, 4, 5, 9])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn batch_equals_single_packets(
        tree in 0_u8..8,
        rate in prop::option::of(20_000_000_u64..1_000_000_000),
        steps in prop::collection::vec(
            (
                0_u64..100_000,
                prop::collection::vec((0_usize..6, 0_u32..7, 40_u32..1500), 0..40),
                any::<bool>(),
                0_usize..20,
            ),
            1..40,
        ),
    ) {
        let ((mut single, leaves), (mut batched, _)) = (build(tree, rate), build(tree, rate));
        let (mut now, mut number, mut batch, mut wire) = (0, 0, Vec::new(), 0);
        for (pause, arrivals, to_one, most) in steps {
            now += pause;
            let mut left: [Vec<Frame>; 2] = Default::default();
            let mut lost: [Vec<(u32, DropCause)>; 2] = Default::default();
            let one = arrivals.first().map_or(0, |first| first.0);
            for (leaf, flow, length) in arrivals {
                let leaf = NodeId(leaves[if to_one { one } else { leaf } % leaves.len()]);
                let item = Frame { capable: number % 2 == 0, ..frame(flow, number, length) };
                number += 1;
                let mut dropped = |frame: Frame, cause| lost[0].push((frame.number, cause));
                single.enqueue(leaf, FlowNumber(flow), item.clone(), at(now), &mut dropped);
                batch.push(Arrival { leaf, flow: FlowNumber(flow), item });
            }
            batched.enqueue_batch(&mut batch, at(now), &mut |frame: Frame, cause| lost[1].push((frame.number, cause)));
            prop_assert!(batch.is_empty());
            let mut dropped = |frame: Frame, cause| lost[0].push((frame.number, cause));
            left[0].extend((0..most).map_while(|_| single.dequeue(at(now), &mut dropped)));
            let mut dropped = |frame: Frame, cause| lost[1].push((frame.number, cause));
            let count = batched.dequeue_batch(most, at(now), &mut dropped, |frame| left[1].push(frame));
            prop_assert_eq!(count, left[1].len());
            prop_assert_eq!(&left[0], &left[1]);
            prop_assert_eq!(&lost[0], &lost[1]);
            prop_assert_eq!(single.held_packets(), batched.held_packets());
            prop_assert_eq!(single.held_bytes(), batched.held_bytes());
            prop_assert_eq!(single.next_ready(), batched.next_ready());
            let nodes = batched.report().tree();
            prop_assert_eq!(&single.report().tree(), &nodes);
            // The counters of bytes on the wire equal the bytes that left, at the root and for all leaves
            // together.
            wire += left[1].iter().map(|frame| u64::from(LinkOverhead::Ethernet.wire_length(frame.length))).sum::<u64>();
            let of_leaves = nodes.iter().filter(|node| node.kind.is_leaf()).map(|node| node.sent_wire_bytes);
            prop_assert_eq!((nodes[0].sent_wire_bytes, of_leaves.sum()), (wire, wire));
        }
    }
}
