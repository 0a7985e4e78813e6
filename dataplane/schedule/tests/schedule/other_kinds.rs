//! Changes of the kind of a leaf while packets wait in it.

use std::collections::HashMap;

use crate::support::*;

fn leaf(kind: u8) -> NodeKind {
    match kind {
        0 => fifo(),
        1 => {
            let queue = QueueSettings { threshold: 1 << 30, aqm: Aqm::TailDrop };
            NodeKind::FlowQueues(FlowQueuesSettings { queues: 3, queue, ..Default::default() })
        }
        _ => NodeKind::FqCodel(FqCodelSettings::default()),
    }
}

/// Returns the parent numbered `kind`, and the share that the leaf has in it; `None` for no parent.
fn above(kind: u8) -> Option<(NodeKind, Share)> {
    let curve = Some(Curve::linear(Rate(1_000_000)));
    let curves = Curves { real_time: curve, link_sharing: curve, upper_limit: None };
    match kind {
        0 => None,
        1 => Some((NodeKind::Priority, Share::Level(1))),
        2 => Some((NodeKind::DeficitRoundRobin, Share::Quantum(1500))),
        3 => Some((NodeKind::Hfsc, Share::Curves(curves))),
        _ => Some((NodeKind::TokenBucket { rate: Rate(1 << 40), burst: 1 << 20 }, Share::Only)),
    }
}

/// Builds a leaf below a parent, with a second leaf if the parent allows several.
fn tree(parent: u8, kind: u8) -> Port {
    let mut port = port(Some(1 << 40));
    let Some((parent_kind, share)) = above(parent) else {
        add(&mut port, 1, None, Share::Only, leaf(kind));
        return port;
    };
    let other = match share {
        Share::Level(_) => Some(Share::Level(0)),
        Share::Only => None,
        share => Some(share),
    };
    add(&mut port, 9, None, Share::Only, parent_kind);
    add(&mut port, 1, 9, share, leaf(kind));
    if let Some(other) = other {
        add(&mut port, 2, 9, other, fifo());
    }
    port
}

/// Checks that the counters of each inner node are the sums of its children's, and that the root's counters
/// equal the port's.
fn check_counts(port: &Port) {
    let tree = port.report().tree();
    for node in &tree {
        let below: u32 =
            tree.iter().filter(|one| one.parent == Some(node.node)).map(|one| one.held_packets).sum();
        assert!(node.kind.is_leaf() || node.held_packets == below, "{tree:?}");
    }
    assert_eq!(tree[0].held_packets, port.held_packets());
    assert_eq!(tree[0].held_bytes, port.held_bytes());
}

proptest! {
    /// Changes a leaf to another kind, below parents of every kind, with random packets before and after. No
    /// packet is lost and each flow keeps its order.
    #[test]
    fn a_leaf_becomes_another_with_all_that_waits(
        (parent, from, to) in (0..5u8, 0..3u8, 0..3u8),
        steps in prop::collection::vec((0..8u32, any::<bool>(), any::<bool>()), 1..80),
        when in 0..80usize,
    ) {
        prop_assume!(from != to);
        let mut port = tree(parent, from);
        let (mut out, mut came) = (Vec::new(), 0);
        let mut now = 0;
        for (number, (flow, at_other, sends)) in steps.iter().copied().enumerate() {
            now += 1000;
            if number == when {
                port.edit().become_kind(NodeId(1), &leaf(to), at(now)).unwrap();
                check_counts(&port);
            }
            let other = at_other && port.contains(NodeId(2));
            put(&mut port, if other { 2 } else { 1 }, frame(if other { 100 + flow } else { flow }, number as u32, 100), now);
            came += 1;
            if sends {
                out.extend(port.dequeue(at(now), &mut never));
            }
        }
        let before = port.report().view(NodeId(1)).unwrap();
        port.edit().become_kind(NodeId(1), &leaf(if when < steps.len() { from } else { to }), at(now)).unwrap();
        check_counts(&port);
        let after = port.report().view(NodeId(1)).unwrap();
        prop_assert_eq!(
            (before.sent_packets, before.sent_bytes, before.held_packets, before.held_bytes, before.sent_wire_bytes),
            (after.sent_packets, after.sent_bytes, after.held_packets, after.held_bytes, after.sent_wire_bytes)
        );
        prop_assert!(after.peak_packets >= before.held_packets);
        while port.held_packets() > 0 {
            now = now.max(port.next_ready().as_nanos()) + 1000;
            out.extend(port.dequeue(at(now), &mut never));
            check_counts(&port);
        }
        prop_assert_eq!(out.len(), came);
        let mut last = HashMap::new();
        for frame in out {
            let before = last.insert(frame.flow, frame.number);
            prop_assert!(before.is_none_or(|before| before < frame.number), "flow {}", frame.flow);
        }
        port.edit().remove(NodeId(1), Leftover::Drop, at(now), &mut never).unwrap();
    }
}

#[test]
fn only_leaves_become_of_another_kind_and_only_leaves() {
    let mut port = tree(1, 0);
    let text = |error: ScheduleError| error.to_string();
    let refused = port.edit().become_kind(NodeId(9), &fifo(), at(0)).map_err(text).unwrap_err();
    assert!(refused.contains("priority"), "{refused}");
    let refused = port.edit().become_kind(NodeId(1), &NodeKind::Hfsc, at(0)).map_err(text).unwrap_err();
    assert!(refused.contains("hfsc"), "{refused}");
    let too_many = NodeKind::FlowQueues(FlowQueuesSettings { queues: 9000, ..Default::default() });
    assert!(port.edit().become_kind(NodeId(1), &too_many, at(0)).is_err());
    let above_link = FlowQueuesSettings { capacity: Some(Rate(1 << 41)), ..Default::default() };
    assert!(port.edit().become_kind(NodeId(1), &NodeKind::FlowQueues(above_link), at(0)).is_err());
    assert_eq!(port.edit().become_kind(NodeId(7), &fifo(), at(0)), Err(ScheduleError::Unknown(NodeId(7))));
    put(&mut port, 1, frame(1, 0, 100), 0);
    assert!(port.dequeue(at(0), &mut never).is_some());
}

#[test]
fn drops_of_a_leaf_stay_counted_after_a_change_of_kind() {
    let mut port = port(None);
    let short = QueueSettings { threshold: 150, aqm: Aqm::TailDrop };
    add(&mut port, 1, None, Share::Only, NodeKind::Fifo(short));
    let mut dropped = 0;
    for number in 0..5 {
        port.enqueue(NodeId(1), FlowNumber(1), frame(1, number, 100), at(0), &mut |_: Frame, _| dropped += 1);
    }
    for kind in [2, 1, 0, 2] {
        port.edit().become_kind(NodeId(1), &leaf(kind), at(0)).unwrap();
        let view = port.report().view(NodeId(1)).unwrap();
        assert_eq!((view.drops.get(DropCause::Threshold), view.held_packets), (3, 2), "{kind}");
    }
    assert_eq!(dropped, 3);
}
