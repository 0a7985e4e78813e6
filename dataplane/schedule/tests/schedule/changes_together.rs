//! Groups of changes that are valid together and would be refused one by one; and views of trees.

use crate::support::*;

fn linear(rate: u64) -> Option<Curve> {
    Some(Curve::linear(Rate(rate)))
}

fn share(real_time: Option<Curve>, link_sharing: Option<Curve>) -> Share {
    Share::Curves(Curves { real_time, link_sharing, upper_limit: None })
}

fn promised(port: &Port, node: u32) -> Option<u64> {
    port.report().view(NodeId(node)).unwrap().promised.map(|rate| rate.0)
}

#[test]
fn two_nodes_change_levels_while_packets_wait() {
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    for node in [1, 2, 3] {
        add(&mut port, node, 0, Share::Level(node), fifo());
        put(&mut port, node, frame(node, node, 100), 0);
    }
    assert!(port.edit().set_share(NodeId(1), Share::Level(2), at(0)).is_err(), "it is the other's");
    port.trust(true);
    // Nodes rotate their levels: node 1 gets level 2, node 2 level 3, node 3 level 1.
    for (node, level) in [(1, 2), (2, 3), (3, 1)] {
        port.edit().set_share(NodeId(node), Share::Level(level), at(0)).unwrap();
    }
    let shares = [1, 2, 3].map(|node| port.report().view(NodeId(node)).unwrap().share);
    assert_eq!(shares, [Share::Level(2), Share::Level(3), Share::Level(1)]);
    let order: Vec<u32> =
        std::iter::from_fn(|| port.dequeue(at(0), &mut never)).map(|sent| sent.flow).collect();
    assert_eq!(order, [3, 1, 2]);
}

#[test]
fn guarantees_change_from_one_class_to_another() {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    for (node, rate) in [(1, 7_000_000), (2, 2_000_000)] {
        add(&mut port, node, 0, share(linear(rate), None), fifo());
    }
    let more = share(linear(7_000_000), None);
    assert!(port.edit().set_share(NodeId(2), more, at(0)).is_err(), "the other has it still");
    port.trust(true);
    port.edit().set_share(NodeId(2), more, at(0)).unwrap();
    port.edit().set_share(NodeId(1), share(linear(2_000_000), None), at(0)).unwrap();
    port.trust(false);
    port.edit().set_share(NodeId(1), share(linear(3_000_000), None), at(0)).unwrap();
    assert_eq!([promised(&port, 1), promised(&port, 2)], [Some(3_000_000), Some(7_000_000)]);
}

#[test]
fn promised_rate_is_the_rate_left_by_guarantees_of_others() {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    add(&mut port, 1, 0, share(linear(6_000_000), None), fifo());
    add(&mut port, 2, 0, share(None, linear(2_000_000)), fifo());
    add(&mut port, 3, 0, share(None, linear(1_000_000)), NodeKind::Hfsc);
    add(&mut port, 4, 3, share(linear(3_000_000), linear(1_000_000)), fifo());
    // Guarantees take 6 and 3 of the link's 10 Mb/s; the rest goes to node 2.
    let all = [1, 2, 3, 4].map(|node| promised(&port, node).unwrap());
    assert_eq!(all, [6_000_000, 1_000_000, 3_000_000, 3_000_000]);
    // The promised rate is the share if that is above the guarantee.
    port.edit().set_share(NodeId(1), share(linear(1_000_000), linear(2_000_000)), at(0)).unwrap();
    let all = [1, 2, 3].map(|node| promised(&port, node).unwrap());
    assert_eq!(all, [3_500_000, 3_500_000, 3_000_000]);
}

#[test]
fn a_rate_of_which_flows_reserve_parts_is_not_more_than_there_is() {
    let mut port = port(Some(2_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::DeficitRoundRobin);
    let leaf =
        |rate| NodeKind::FlowQueues(FlowQueuesSettings { capacity: Some(Rate(rate)), ..Default::default() });
    let refused = port.edit().add(NodeId(1), Some(NodeId(0)), Share::Quantum(1500), &leaf(3_000_000), at(0));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("3.00 Mb/s exceeds the rate available to the node, 2.00 Mb/s"), "{refused}");
    add(&mut port, 1, 0, Share::Quantum(1500), leaf(2_000_000));
    assert!(port.edit().set(NodeId(1), &leaf(2_000_001), at(0)).is_err());
    let slower = LinkRate { rate: Some(Rate(1_999_999)), slack: 0 };
    assert!(port.set_link(slower, at(0)).is_err());
    // A second child takes half of the rate.
    assert!(port.edit().add(NodeId(2), Some(NodeId(0)), Share::Quantum(1500), &fifo(), at(0)).is_err());
    port.edit().set(NodeId(1), &leaf(1_000_000), at(0)).unwrap();
    add(&mut port, 2, 0, Share::Quantum(1500), fifo());
}

#[test]
fn tree_is_listed_with_parents_before_children() {
    let mut port = port(None);
    add(&mut port, 5, None, Share::Only, NodeKind::Priority);
    add(&mut port, 1, 5, Share::Level(1), NodeKind::DeficitRoundRobin);
    add(&mut port, 2, 5, Share::Level(2), NodeKind::DeficitRoundRobin);
    add(&mut port, 3, 1, Share::Quantum(1), fifo());
    add(&mut port, 4, 2, Share::Quantum(1), fifo());
    add(&mut port, 0, 1, Share::Quantum(1), fifo());
    let order: Vec<u32> = port.report().tree().iter().map(|view| view.node.0).collect();
    assert_eq!(order, [5, 1, 0, 3, 2, 4]);
}

#[test]
fn drops_of_a_removed_leaf_stay_counted_at_its_ancestors() {
    let mut port = port(None);
    let full = NodeKind::Fifo(QueueSettings { threshold: 0, aqm: Aqm::TailDrop });
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    add(&mut port, 1, 0, Share::Level(1), NodeKind::DeficitRoundRobin);
    add(&mut port, 2, 1, Share::Quantum(1500), full);
    let mut dropped = 0;
    for number in 0..10 {
        port.enqueue(
            NodeId(2),
            FlowNumber(1),
            frame(1, number, 100),
            at(0),
            &mut |_: Frame, _: DropCause| dropped += 1,
        );
    }
    assert_eq!(dropped, 9);
    let drops = |port: &Port, node| port.report().view(NodeId(node)).unwrap().drops.packets();
    assert_eq!([drops(&port, 0), drops(&port, 1)], [9, 9]);
    port.edit().remove(NodeId(2), Leftover::Drop, at(0), &mut |_: Frame, _: DropCause| {}).unwrap();
    assert_eq!([drops(&port, 0), drops(&port, 1)], [9, 9]);
    port.edit().remove(NodeId(1), Leftover::Drop, at(0), &mut |_: Frame, _: DropCause| {}).unwrap();
    assert_eq!((drops(&port, 0), port.report().tree()[0].drops.packets()), (9, 9));
}

#[test]
fn leaf_moves_with_its_packets_to_and_from_the_root() {
    let mut port = port(None);
    port.trust(true);
    add(&mut port, 1, None, Share::Only, fifo());
    let mut number = 0;
    let mut send = |port: &mut Port| {
        number += 1;
        put(port, 1, frame(1, number, 100), 0);
    };
    send(&mut port);
    // Moves the leaf from the root to below a new root.
    port.edit().set_apart(NodeId(1), at(0)).unwrap();
    send(&mut port);
    assert!(port.dequeue(at(0), &mut never).is_none(), "nothing is sent from there");
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    add(&mut port, 2, 0, Share::Level(7), fifo());
    port.edit().move_to(NodeId(1), Some(NodeId(0)), Share::Level(7), at(0)).unwrap();
    assert_ne!(port.report().view(NodeId(2)).unwrap().share, Share::Level(7), "it gave way");
    port.edit().set_share(NodeId(2), Share::Level(3), at(0)).unwrap();
    send(&mut port);
    assert_eq!(port.report().view(NodeId(0)).unwrap().held_packets, 3);
    assert_eq!(port.dequeue(at(0), &mut never).map(|sent| sent.number), Some(1));
    // Moves the leaf below a token bucket at the leaf's old level, and then back to the root.
    port.edit().set_apart(NodeId(1), at(0)).unwrap();
    add(&mut port, 3, 0, Share::Level(7), NodeKind::TokenBucket { rate: Rate(8_000_000), burst: 100 });
    port.edit().move_to(NodeId(1), Some(NodeId(3)), Share::Only, at(0)).unwrap();
    assert_eq!(port.dequeue(at(0), &mut never).map(|sent| sent.number), Some(2));
    assert!(port.dequeue(at(0), &mut never).is_none(), "the bucket is empty");
    port.edit().set_apart(NodeId(1), at(0)).unwrap();
    port.edit().remove(NodeId(0), Leftover::Drop, at(0), &mut never).unwrap();
    port.edit().move_to(NodeId(1), None, Share::Only, at(0)).unwrap();
    send(&mut port);
    let rest: Vec<u32> =
        std::iter::from_fn(|| port.dequeue(at(0), &mut never)).map(|sent| sent.number).collect();
    assert_eq!((rest, port.report().tree().len(), port.root()), (vec![3, 4], 1, Some(NodeId(1))));
    let view = port.report().view(NodeId(1)).unwrap();
    assert_eq!((view.sent_packets, view.held_packets), (4, 0));
}

/// Builds and removes a tree so large that a quadratic cost would take minutes.
#[test]
fn twenty_thousand_nodes_with_a_leaf_each_are_set_and_go_from_below() {
    const NODES: u32 = 20_000;
    for above in [NodeKind::Priority, NodeKind::DeficitRoundRobin] {
        let limits = BufferLimits { queues: 65_536, ..Default::default() };
        let mut port = Port::new(LinkRate::default(), LinkOverhead::None, limits).unwrap();
        port.trust(true);
        add(&mut port, 0, None, Share::Only, above.clone());
        let share = |node| match above {
            NodeKind::Priority => Share::Level(node),
            _ => Share::Quantum(1 + node),
        };
        let nodes = || 1..=NODES;
        for node in nodes() {
            let bucket = NodeKind::TokenBucket { rate: Rate(1_000_000), burst: 3000 };
            add(&mut port, node, 0, share(node), bucket);
            add(&mut port, NODES + node, node, Share::Only, fifo());
        }
        nodes().for_each(|node| port.edit().set_share(NodeId(node), share(node), at(0)).unwrap());
        put(&mut port, 2 * NODES, frame(1, 1, 100), 0);
        let to = Leftover::MoveTo(NodeId(2 * NODES));
        for node in nodes().filter(|node| *node < NODES) {
            put(&mut port, NODES + node, frame(1, 1 + node, 100), 0);
            for gone in [NODES + node, node] {
                port.edit().remove(NodeId(gone), to, at(0), &mut never).unwrap();
            }
        }
        assert_eq!(port.report().tree().len(), 3);
        assert_eq!(port.held_packets(), NODES);
        // Removes the node and its descendants.
        assert_eq!(port.edit().remove(NodeId(0), Leftover::Drop, at(0), &mut |_: Frame, _| {}), Ok(NODES));
        assert_eq!(port.root(), None);
    }
}
