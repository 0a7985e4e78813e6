//! Refusal of invalid settings, with the values in the error texts.

use crate::support::*;

fn tree() -> Port {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    add(&mut port, 1, 0, Share::Level(0), NodeKind::DeficitRoundRobin);
    add(&mut port, 2, 1, Share::Quantum(1500), fifo());
    add(&mut port, 3, 0, Share::Level(1), NodeKind::TokenBucket { rate: Rate(4_000_000), burst: 3000 });
    add(&mut port, 4, 3, Share::Only, NodeKind::Hfsc);
    port
}

fn refused(port: &mut Port, node: u32, parent: u32, share: Share, kind: NodeKind) -> String {
    let before = port.report().tree();
    let error = port.edit().add(NodeId(node), Some(NodeId(parent)), share, &kind, at(0)).unwrap_err();
    assert_eq!(port.report().tree(), before, "a refused change changed something");
    error.to_string()
}

fn rate(bits: u64) -> Curve {
    Curve::linear(Rate(bits))
}

#[test]
fn ids_and_places_must_make_sense() {
    let mut port = tree();
    for (node, parent, share, part) in [
        (2, 1, Share::Quantum(1), "node 2: id already in use"),
        (9, 77, Share::Quantum(1), "node 9: its parent 77 does not exist; add 77 first"),
        (9, 2, Share::Quantum(1), "its parent 2 is a fifo, a leaf that has no children"),
        (9, 1, Share::Level(1), "a child of a deficit-round-robin needs a quantum"),
        (9, 1, Share::Quantum(0), "the quantum must be 1 to 1073741824, not 0"),
        (9, 0, Share::Level(1), "level 1 of node 0 is taken by node 3"),
        (9, 0, Share::Level(65_536), "the level must be 0 to 65535, not 65536"),
        (9, 3, Share::Only, "node 3 is a token-bucket and already has its only child 4"),
        (MOST_NODES, 0, Share::Level(5), "its id must be 0 to 131071"),
    ] {
        let error = refused(&mut port, node, parent, share, fifo());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn cycles_and_towers_are_refused() {
    let mut port = tree();
    let error =
        port.edit().move_to(NodeId(0), Some(NodeId(1)), Share::Quantum(1), at(0)).unwrap_err().to_string();
    assert!(error.contains("below 1 it would be its own ancestor: 1 < 0"), "{error}");
    let error =
        port.edit().move_to(NodeId(1), Some(NodeId(1)), Share::Quantum(1), at(0)).unwrap_err().to_string();
    assert!(error.contains("own ancestor"), "{error}");
    let mut parent = 1;
    for node in 10..10 + MOST_DEPTH as u32 - 2 {
        add(&mut port, node, parent, Share::Quantum(1), NodeKind::DeficitRoundRobin);
        parent = node;
    }
    let error = refused(&mut port, 50, parent, Share::Quantum(1), fifo());
    assert!(error.contains("the tree would have 17 levels; the limit is 16"), "{error}");
}

#[test]
fn settings_are_checked_by_themselves() {
    let mut port = tree();
    let red = |change: fn(&mut RedSettings)| {
        let mut settings = RedSettings::default();
        change(&mut settings);
        NodeKind::Fifo(QueueSettings { threshold: 1, aqm: Aqm::Red(settings) })
    };
    let codel = CodelSettings { target: 5, interval: 5, ecn: true };
    for (kind, part) in [
        (red(|red| red.minimum = red.maximum), "minimum 90000 >= maximum 90000"),
        (red(|red| red.probability = f64::NAN), "probability NaN"),
        (red(|red| red.weight = 0.0), "weight 0"),
        (red(|red| red.mean_packet = 0), "mean packet"),
        (
            NodeKind::Fifo(QueueSettings { threshold: 1, aqm: Aqm::Codel(codel) }),
            "target 5 ns, interval 5 ns",
        ),
        (NodeKind::FqCodel(FqCodelSettings { quantum: 255, ..Default::default() }), "quantum must be 256"),
        (NodeKind::FqCodel(FqCodelSettings { flows: 0, ..Default::default() }), "queues must be 1 to"),
        (NodeKind::FlowQueues(FlowQueuesSettings { quantum: 0, ..Default::default() }), "quantum must be 1"),
        (NodeKind::TokenBucket { rate: Rate(0), burst: 1 }, "the rate must be 1 to"),
        (NodeKind::TokenBucket { rate: Rate(1), burst: 0 }, "the burst must be 1 to"),
    ] {
        let error = refused(&mut port, 9, 0, Share::Level(7), kind);
        assert!(error.contains(part), "{error}");
    }
    let error = port.edit().set(NodeId(2), &NodeKind::Priority, at(0)).unwrap_err().to_string();
    assert!(error.contains("node 2 is a fifo and can't become a priority"), "{error}");
    assert!(
        LinkScheduler::<Frame>::new(
            LinkRate { rate: Some(Rate(0)), slack: 0 },
            LinkOverhead::None,
            BufferLimits::default()
        )
        .is_err()
    );
    for limits in [
        BufferLimits { queues: 0, ..Default::default() },
        BufferLimits { queues: 65_537, ..Default::default() },
        BufferLimits { packets: 0, ..Default::default() },
        BufferLimits { bytes: 1, ..Default::default() },
    ] {
        assert!(Port::new(LinkRate::default(), LinkOverhead::None, limits).is_err());
    }
}

#[test]
fn curves_above_the_link_are_refused_with_the_sum() {
    let mut port = tree();
    let curves = |real_time, link_sharing| {
        Share::Curves(Curves { real_time: Some(real_time), link_sharing, upper_limit: None })
    };
    let error = refused(&mut port, 9, 4, curves(rate(5_000_000), None), fifo());
    assert!(error.contains(
        "slope 5.00 Mb/s of its real-time curve exceeds the rate available to its H-FSC scheduler, 4.00 Mb/s"
    ));
    add(&mut port, 5, 4, curves(rate(3_000_000), None), fifo());
    let error = refused(&mut port, 9, 4, curves(rate(1_500_000), None), fifo());
    assert!(error.contains("4.50 Mb/s in the long run") && error.contains("4.00 Mb/s"), "{error}");
    // 3 Mb/s plus a burst of 2 Mb/s for 10 ms need 6,250 bytes, but the link sends 5,000.
    let burst = Curve { first: Rate(2_000_000), duration: 10_000_000, then: Rate(500_000) };
    let error = refused(&mut port, 9, 4, curves(burst, None), fifo());
    assert!(error.contains("promise 6250 bytes in the first 10 ms"), "{error}");
    assert!(error.contains("allows 5000 bytes in that time"), "{error}");
    let flat = Curve { first: Rate(0), duration: 10_000_000, then: Rate(1_000_000) };
    add(&mut port, 6, 4, curves(flat, None), fifo());
    // The guarantees need the bucket's and the link's rate, so neither rate can fall below them.
    let smaller = NodeKind::TokenBucket { rate: Rate(3_999_999), burst: 3000 };
    let error = port.edit().set(NodeId(3), &smaller, at(0)).unwrap_err().to_string();
    assert!(error.contains("4.00 Mb/s in the long run"), "{error}");
    let link = LinkRate { rate: Some(Rate(3_999_999)), slack: 0 };
    assert!(port.set_link(link, at(0)).is_err());
    assert_eq!(port.report().link().rate, Some(Rate(10_000_000)));
}

#[test]
fn inner_classes_and_limits_are_checked() {
    let mut port = tree();
    let all =
        |real_time, link_sharing, upper_limit| Share::Curves(Curves { real_time, link_sharing, upper_limit });
    let one = Some(rate(1_000_000));
    for (share, kind, part) in [
        (all(one, one, None), NodeKind::Hfsc, "a class with children can't have a real-time curve"),
        (all(None, None, None), NodeKind::Hfsc, "a class with children needs a link-sharing curve"),
        (all(None, None, None), fifo(), "needs a real-time or a link-sharing curve"),
        (all(one, None, one), fifo(), "an upper-limit curve needs a link-sharing curve"),
        (
            all(None, Some(Curve { first: Rate(5), duration: 9, then: Rate(0) }), None),
            fifo(),
            "link-sharing curve must be above 0",
        ),
        (all(Some(rate(2_000_000)), one, one), fifo(), "but its own upper limit allows"),
    ] {
        let error = refused(&mut port, 9, 4, share, kind);
        assert!(error.contains(part), "{error}");
    }
    add(&mut port, 5, 4, all(None, one, one), NodeKind::Hfsc);
    add(&mut port, 6, 5, all(Some(rate(600_000)), None, None), fifo());
    let error = refused(&mut port, 9, 5, all(Some(rate(600_000)), None, None), fifo());
    assert!(
        error.contains("1.20 Mb/s in the long run") && error.contains("the upper limit of node 5"),
        "{error}"
    );
}

#[test]
fn packets_move_only_to_leaves_that_stay() {
    let mut port = tree();
    put(&mut port, 2, frame(0, 0, 100), 0);
    for (to, part) in [(77, "no such node"), (3, "name a leaf"), (2, "it is the same node, or below it")] {
        let error = port
            .edit()
            .remove(NodeId(1), Leftover::MoveTo(NodeId(to)), at(0), &mut never)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(port.report().view(NodeId(0)).unwrap().held_packets, 1);
    assert!(port.edit().remove(NodeId(99), Leftover::Drop, at(0), &mut never).is_err());
}

#[test]
fn a_packet_for_no_leaf_is_dropped_and_counted() {
    let mut port = tree();
    let mut causes = Vec::new();
    for node in [1, 77] {
        assert!(!port.enqueue(
            NodeId(node),
            FlowNumber(0),
            frame(0, 0, 100),
            at(0),
            &mut |_: Frame, cause| { causes.push(cause) }
        ));
    }
    assert_eq!(causes, [DropCause::NoQueue; 2]);
    assert_eq!((port.report().lost().packets(), port.report().lost().bytes()), (2, 200));
}

#[test]
fn port_holds_its_limit_and_no_queue_holds_all_of_it() {
    let limits = BufferLimits { packets: 9, bytes: 65_536, ..Default::default() };
    let mut port: Port = LinkScheduler::new(LinkRate::default(), LinkOverhead::None, limits).unwrap();
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    for node in 1..4 {
        add(&mut port, node, 0, Share::Level(node), fifo());
    }
    let mut causes = Vec::new();
    let mut offer = |port: &mut Port, node, length| {
        let mut sink = |_: Frame, cause| causes.push(cause);
        port.enqueue(NodeId(node), FlowNumber(0), frame(0, 0, length), at(0), &mut sink)
    };
    // Queue 1 holds 40,000 bytes, more than the 25,536 free bytes, so it takes no more. Another queue may use
    // the free bytes.
    assert!(offer(&mut port, 1, 40_000) && !offer(&mut port, 1, 100));
    assert!(!offer(&mut port, 2, 25_537) && offer(&mut port, 2, 25_536));
    assert!(port.dequeue(at(0), &mut never).is_some());
    // One packet is held. Queue 1 takes four packets, until it holds no less than the free space. Queue 3
    // then takes two.
    for _ in 0..4 {
        assert!(offer(&mut port, 1, 100));
    }
    assert!(!offer(&mut port, 1, 100));
    assert!(offer(&mut port, 3, 100) && offer(&mut port, 3, 100) && !offer(&mut port, 3, 100));
    assert_eq!(causes, [DropCause::BufferFull; 4]);
    assert_eq!(port.held_packets(), 7);
}

#[test]
fn guarantees_of_hierarchies_that_stand_apart_under_a_priority_are_held_against_the_link_together() {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Priority);
    for (node, level) in [(1, 0), (2, 1)] {
        add(&mut port, node, 0, Share::Level(level), NodeKind::Hfsc);
    }
    // One of the guarantees is below a token bucket and a round robin. All share the link.
    add(&mut port, 3, 0, Share::Level(2), NodeKind::TokenBucket { rate: Rate(9_000_000), burst: 3000 });
    add(&mut port, 4, 3, Share::Only, NodeKind::DeficitRoundRobin);
    add(&mut port, 5, 4, Share::Quantum(1500), NodeKind::Hfsc);
    let guaranteed = |bits| Share::Curves(Curves { real_time: Some(rate(bits)), ..Curves::default() });
    add(&mut port, 11, 1, guaranteed(6_000_000), fifo());
    let error = refused(&mut port, 12, 2, guaranteed(5_000_000), fifo());
    assert!(
        error.contains("(11.00 Mb/s in the long run)")
            && error.contains("the link")
            && error.contains("10.00 Mb/s"),
        "{error}"
    );
    add(&mut port, 12, 2, guaranteed(3_000_000), fifo());
    let error = refused(&mut port, 13, 5, guaranteed(2_000_000), fifo());
    assert!(error.contains("11.00 Mb/s"), "{error}");
    add(&mut port, 13, 5, guaranteed(1_000_000), fifo());
    // A slower link, and other curves, are checked against all guarantees as well.
    let slower = LinkRate { rate: Some(Rate(9_900_000)), slack: 0 };
    assert!(port.set_link(slower, at(0)).unwrap_err().to_string().contains("10.00 Mb/s in the long run"));
    assert!(port.edit().set_share(NodeId(11), guaranteed(6_100_000), at(0)).is_err());
    port.edit().set_share(NodeId(11), guaranteed(5_000_000), at(0)).unwrap();
    port.set_link(slower, at(0)).unwrap();
}
