//! Tests of packets that bypass an empty tree: in each iteration the same packets leave as through the tree,
//! and the counters agree.

use millrace_schedule::Arrival;

use crate::support::*;

fn build(tree: u8) -> Port {
    let link = LinkRate { rate: (tree == 2).then_some(Rate(400_000_000)), slack: 0 };
    let mut port = LinkScheduler::new(link, LinkOverhead::Ethernet, BufferLimits::default()).unwrap();
    let flows = FlowQueuesSettings { queues: 5, quantum: 700, ..Default::default() };
    let codel = QueueSettings { aqm: Aqm::Codel(CodelSettings::default()), ..Default::default() };
    let kind = match tree {
        0 => fifo(),
        1 | 2 => NodeKind::FlowQueues(flows),
        3 => NodeKind::FlowQueues(FlowQueuesSettings { queue: codel, ..flows }),
        _ => NodeKind::Fifo(codel),
    };
    add(&mut port, 0, None, Share::Only, kind);
    port
}

proptest! {
    #[test]
    fn bypassing_packets_equal_the_packets_a_queue_would_send(
        tree in 0_u8..5,
        turns in prop::collection::vec((prop::collection::vec((0_u32..9, 40_u32..1500), 0..30), 0_usize..40), 1..40),
    ) {
        let (mut through, mut by) = (build(tree), build(tree));
        let (mut number, mut passed, mut offered) = (0, 0, 0);
        for (turn, (arrivals, room)) in (0_u64..).zip(turns) {
            let now = at(turn * 200_000);
            let frames: Vec<Frame> = arrivals
                .into_iter()
                .map(|(flow, length)| {
                    number += 1;
                    frame(flow, number, length)
                })
                .collect();
            let batch = |frames: &[Frame]| -> Vec<Arrival<Frame>> {
                let arrival = |item: &Frame| Arrival { leaf: NodeId(0), flow: FlowNumber(item.flow), item: item.clone() };
                frames.iter().map(arrival).collect()
            };
            let (mut gone, mut left) = (Vec::new(), Vec::new());
            through.enqueue_batch(&mut batch(&frames), now, &mut never);
            through.dequeue_batch(room, now, &mut never, |frame| gone.push(frame.number));
            offered += frames.len();
            if by.is_passable() && frames.len() <= room {
                passed += frames.len();
                by.pass(frames.iter().map(|frame| frame.length));
                left.extend(frames.iter().map(|frame| frame.number));
            } else {
                by.enqueue_batch(&mut batch(&frames), now, &mut never);
                by.dequeue_batch(room, now, &mut never, |frame| left.push(frame.number));
            }
            gone.sort_unstable();
            left.sort_unstable();
            // With fewer queues than flows, the two trees may give queues to different flows, so their order
            // may differ.
            if tree == 0 || gone.len() == left.len() && by.held_packets() == 0 {
                prop_assert_eq!(&gone, &left);
            }
            prop_assert_eq!(through.held_packets(), by.held_packets());
        }
        if tree > 1 {
            prop_assert_eq!(passed, 0, "a rate, and active queue management, see all packets");
        }
        if passed == offered {
            let count = |port: &Port| {
                let view = port.report().view(NodeId(0)).unwrap();
                (view.sent_packets, view.sent_bytes, view.sent_wire_bytes)
            };
            prop_assert_eq!(count(&through), count(&by));
        }
    }
}

#[test]
fn no_packet_bypasses_a_backlog_or_a_configured_flow() {
    let mut port = build(1);
    assert!(port.is_passable());
    put(&mut port, 0, frame(1, 1, 100), 0);
    assert!(!port.is_passable());
    assert!(port.dequeue(at(0), &mut never).is_some() && port.is_passable());
    port.edit().flows(NodeId(0)).unwrap().set(FlowNumber(7), None, Some(Some(9000))).unwrap();
    assert!(!port.is_passable(), "the queue of such a flow shows what was sent");
    port.edit().flows(NodeId(0)).unwrap().forget(FlowNumber(7));
    assert!(port.is_passable());
    let flows = port.report().flows(NodeId(0), 0, 10).unwrap().len();
    port.pass([60, 1000].into_iter());
    let view = port.report().view(NodeId(0)).unwrap();
    assert_eq!((view.sent_packets, view.sent_bytes, view.sent_wire_bytes), (3, 1160, 124 + 84 + 1024));
    assert_eq!(
        port.report().flows(NodeId(0), 0, 10).unwrap().len(),
        flows,
        "flows get no queues for what passes by"
    );
    // Below another node, bypassing would break the order: a queue of a lower level goes first.
    let mut tree = port_of_levels();
    assert!(!tree.is_passable());
    tree.set_link(LinkRate::default(), at(0)).unwrap();
    assert!(!tree.is_passable());
}

fn port_of_levels() -> Port {
    let mut tree = port(None);
    add(&mut tree, 0, None, Share::Only, NodeKind::Priority);
    add(&mut tree, 1, 0, Share::Level(0), fifo());
    add(&mut tree, 2, 0, Share::Level(1), fifo());
    tree
}
