use millrace_packet::Pool;

use super::*;

fn add(node: u16, parent: Option<u16>, share: Share, kind: NodeKind) -> ScheduleChange {
    ScheduleChange::Add { node: QueueId(node), parent: parent.map(QueueId), share, kind }
}

fn scheduler(changes: &[ScheduleChange]) -> PortScheduler {
    let mut scheduler = PortScheduler::new(1024, 0).unwrap();
    for change in changes {
        scheduler.change(change, Instant::ZERO, &mut Vec::new()).unwrap();
    }
    scheduler
}

/// Releases the next packet from the scheduler.
fn next(scheduler: &mut PortScheduler, now: Instant, drops: &mut QueueDrops) -> Option<Packet> {
    let mut sent = None;
    scheduler.release(1, now, drops, |packet| sent = Some(packet));
    sent
}

fn packet(pool: &Pool, queue: u16) -> Packet {
    let mut packet = pool.packet_from(&[0; 100]).unwrap();
    packet.queue = QueueId(queue);
    packet
}

#[test]
fn packets_go_to_the_named_queue_or_the_default_queue() {
    let pool = Pool::new(16).unwrap();
    let fifo = || NodeKind::Fifo(Default::default());
    let mut scheduler = scheduler(&[
        add(1, None, Share::Only, NodeKind::Priority),
        add(3, Some(1), Share::Level(1), fifo()),
        add(2, Some(1), Share::Level(0), fifo()),
    ]);
    let mut drops = Vec::new();
    for queue in [0, 3, 2, 1, 900] {
        scheduler.enqueue(packet(&pool, queue), Instant::ZERO, &mut drops);
    }
    let order: Vec<u16> = std::iter::from_fn(|| next(&mut scheduler, Instant::ZERO, &mut drops))
        .map(|packet| packet.queue.0)
        .collect();
    // Leaf 2 has the highest priority. Packets for queues without a leaf are in the default leaf, 3, with its
    // own packet.
    assert_eq!((order, drops.len()), (vec![2, 0, 3, 1, 900], 0));
}

#[test]
fn packets_for_a_removed_leaf_wait_behind_moved_packets_until_the_leaf_returns() {
    let pool = Pool::new(64).unwrap();
    let fifo = || NodeKind::Fifo(Default::default());
    let leaf = |node: u16| add(node, Some(1), Share::Level(node.into()), fifo());
    let mut scheduler =
        scheduler(&[add(1, None, Share::Only, NodeKind::Priority), leaf(2), leaf(3), leaf(4)]);
    let mut drops = Vec::new();
    // The test identifies packets by their hash. Leaf 2, the default leaf, has the highest priority.
    let mut number = 0;
    let mut send = |scheduler: &mut PortScheduler, queue: u16| {
        number += 1;
        let mut packet = packet(&pool, queue);
        packet.hash = number;
        scheduler.enqueue(packet, Instant::ZERO, &mut Vec::new());
    };
    let remove =
        |node: u16, to: Option<u16>| ScheduleChange::Remove { node: QueueId(node), to: to.map(QueueId) };
    send(&mut scheduler, 4);
    scheduler.change(&remove(4, Some(3)), Instant::ZERO, &mut drops).unwrap();
    send(&mut scheduler, 4);
    // Leaf 3, which got the packets of leaf 4, is removed as well, in favour of leaf 5.
    scheduler.change(&leaf(5), Instant::ZERO, &mut drops).unwrap();
    scheduler.change(&remove(3, Some(5)), Instant::ZERO, &mut drops).unwrap();
    send(&mut scheduler, 4);
    send(&mut scheduler, 0);
    let backlog = scheduler.backlog(&packet(&pool, 4)).map(|(leaf, backlog)| (leaf, backlog.packets));
    assert_eq!(backlog, Some((QueueId(5), 3)), "what waits there is told of the leaf that it goes to");
    let hash = || next(&mut scheduler, Instant::ZERO, &mut Vec::new()).map(|packet| packet.hash);
    assert_eq!(std::iter::from_fn(hash).collect::<Vec<u32>>(), [4, 1, 2, 3]);
    // Leaf 4 exists again. Leaf 5 is removed and its packets dropped, so packets for it enter the default
    // leaf.
    scheduler.change(&leaf(4), Instant::ZERO, &mut drops).unwrap();
    scheduler.change(&remove(5, None), Instant::ZERO, &mut drops).unwrap();
    for queue in [4, 3, 5] {
        send(&mut scheduler, queue);
    }
    scheduler.settle(Instant::ZERO, &mut drops);
    let report = scheduler.report();
    let held =
        |node: u32| scheduler.nodes().iter().find(|view| view.node.0 == node).map(|view| view.held_packets);
    assert_eq!((held(2), held(4), report.default), (Some(2), Some(1), QueueId(2)));
    // When the default leaf is removed, the leaf that gets its packets becomes the default.
    scheduler.change(&remove(2, Some(4)), Instant::ZERO, &mut drops).unwrap();
    assert_eq!(scheduler.report().default, QueueId(4));
}

#[test]
fn packets_for_a_removed_leaf_go_to_the_default_leaf_once_order_is_safe() {
    let pool = Pool::new(64).unwrap();
    let leaf = |node: u16| add(node, Some(1), Share::Level(node.into()), NodeKind::Fifo(Default::default()));
    let mut scheduler =
        scheduler(&[add(1, None, Share::Only, NodeKind::Priority), leaf(2), leaf(3), leaf(4)]);
    let mut drops = Vec::new();
    scheduler.enqueue(packet(&pool, 4), Instant::ZERO, &mut drops);
    let remove = ScheduleChange::Remove { node: QueueId(4), to: Some(QueueId(3)) };
    scheduler.change(&remove, Instant::ZERO, &mut drops).unwrap();
    scheduler.enqueue(packet(&pool, 4), Instant::ZERO, &mut drops);
    assert_eq!(scheduler.leaf_for(QueueId(4)), QueueId(3), "one is moved, and one waits behind it");
    for _ in 0..2 {
        assert_eq!(scheduler.leaf_for(QueueId(4)), QueueId(3));
        assert!(next(&mut scheduler, Instant::ZERO, &mut drops).is_some());
    }
    assert_eq!(scheduler.leaf_for(QueueId(4)), QueueId(2), "as a router does that has just begun");
    // Leaf 3 gets another packet, but packets for the removed leaf 4 still enter the default leaf.
    scheduler.enqueue(packet(&pool, 4), Instant::ZERO, &mut drops);
    scheduler.enqueue(packet(&pool, 3), Instant::ZERO, &mut drops);
    assert_eq!(scheduler.leaf_for(QueueId(4)), QueueId(2));
}

#[test]
fn leaf_of_a_new_kind_queues_arrivals_behind_its_old_packets() {
    let pool = Pool::new(16).unwrap();
    let mut scheduler = scheduler(&[add(1, None, Share::Only, NodeKind::Fifo(Default::default()))]);
    let (mut drops, mut sent) = (Vec::new(), Vec::new());
    let kinds = [NodeKind::FlowQueues(Default::default()), NodeKind::FqCodel(Default::default())];
    // The second packet is for queue 9, which has no leaf. It waits in the default leaf, which is leaf 1.
    for (queue, kind) in [1, 9].into_iter().zip(kinds) {
        scheduler.enqueue(packet(&pool, queue), Instant::ZERO, &mut drops);
        let change = ScheduleChange::Become { node: QueueId(1), kind };
        scheduler.change(&change, Instant::ZERO, &mut drops).unwrap();
    }
    scheduler.enqueue(packet(&pool, 8), Instant::ZERO, &mut drops);
    sent.extend(std::iter::from_fn(|| next(&mut scheduler, Instant::ZERO, &mut drops)));
    assert_eq!(sent.iter().map(|packet| packet.queue.0).collect::<Vec<_>>(), [1, 9, 8]);
    assert_eq!((drops.len(), scheduler.report().default), (0, QueueId(1)));
}

#[test]
fn port_waits_for_its_rate() {
    let pool = Pool::new(16).unwrap();
    let mut scheduler = scheduler(&[
        add(1, None, Share::Only, NodeKind::Fifo(Default::default())),
        ScheduleChange::Link(LinkRate { rate: Some(Rate::from_megabits(8)), slack: 0 }, LinkOverhead::None),
    ]);
    let mut drops = Vec::new();
    (0..2).for_each(|_| scheduler.enqueue(packet(&pool, 1), Instant::ZERO, &mut drops));
    assert!(next(&mut scheduler, Instant::ZERO, &mut drops).is_some());
    assert!(next(&mut scheduler, Instant::ZERO, &mut drops).is_none());
    // A packet of 100 bytes takes 100 microseconds at 8 Mb/s.
    assert_eq!(scheduler.next_ready(), Some(Instant::from_nanos(100_000)));
    assert!(next(&mut scheduler, Instant::from_nanos(100_000), &mut drops).is_some());
    assert_eq!(scheduler.next_ready(), None);
}

#[test]
fn drops_of_fq_codel_for_a_refused_packet_are_counted() {
    let pool = Pool::new(256).unwrap();
    let mut scheduler = PortScheduler::new(64, 0).unwrap();
    let mut drops = Vec::new();
    for change in [
        add(1, None, Share::Only, NodeKind::Priority),
        add(2, Some(1), Share::Level(0), NodeKind::Fifo(Default::default())),
        add(3, Some(1), Share::Level(1), NodeKind::FqCodel(Default::default())),
    ] {
        scheduler.change(&change, Instant::ZERO, &mut drops).unwrap();
    }
    // Fills leaf 3 with flows of one packet each, then leaf 2, beyond the packet limit of the scheduler.
    for number in 0..100 {
        let mut packet = packet(&pool, if number < 60 { 3 } else { 2 });
        packet.hash = u32::wrapping_mul(number, 0x9e37_79b9);
        scheduler.enqueue(packet, Instant::ZERO, &mut drops);
    }
    (0..10).for_each(|_| scheduler.enqueue(packet(&pool, 3), Instant::ZERO, &mut drops));
    scheduler.settle(Instant::ZERO, &mut drops);
    let report = scheduler.report();
    let nodes = scheduler.nodes();
    let of_leaves: u32 = nodes[1..].iter().map(|node| node.held_packets).sum();
    assert_eq!((of_leaves, nodes[0].held_packets), (report.held, report.held));
    assert_eq!(report.held as usize + drops.len(), 110);
    assert_eq!(pool.in_use(), 110);
}

#[test]
fn packets_of_a_removed_node_are_dropped_and_counted() {
    let pool = Pool::new(16).unwrap();
    for (removed, reason) in [
        (ScheduleChange::Remove { node: QueueId(1), to: None }, DropReason::QueueRemoved),
        (ScheduleChange::Release(QueueId(1)), DropReason::PrincipalReleased),
    ] {
        let mut scheduler = scheduler(&[add(1, None, Share::Only, NodeKind::Fifo(Default::default()))]);
        let mut drops = Vec::new();
        scheduler.enqueue(packet(&pool, 1), Instant::ZERO, &mut drops);
        scheduler.change(&removed, Instant::ZERO, &mut drops).unwrap();
        assert_eq!(drops.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [reason]);
        assert!(!scheduler.takes_packets());
    }
}

/// Removes nearly all of 40,000 leaves. Work that grows with the square of their number would take minutes.
#[test]
fn forty_thousand_removed_leaves_send_their_packets_to_a_remaining_leaf() {
    const LEAVES: u16 = 40_000;
    let fifo = || NodeKind::Fifo(Default::default());
    let mut drops = Vec::new();
    let mut scheduler =
        scheduler(&[ScheduleChange::Queues(65_536), add(1, None, Share::Only, NodeKind::Priority)]);
    let leaves = || 2..2 + LEAVES;
    for node in leaves() {
        let leaf = add(node, Some(1), Share::Level(node.into()), fifo());
        scheduler.change(&leaf, Instant::ZERO, &mut drops).unwrap();
    }
    let (last, to) = (LEAVES + 1, LEAVES);
    for node in leaves().filter(|node| *node != to) {
        // Removes leaves from both ends, so that the first and the last leaf go early.
        let node = if node % 2 == 0 { node } else { last + 3 - node };
        let change = ScheduleChange::Remove { node: QueueId(node), to: Some(QueueId(to)) };
        scheduler.change(&change, Instant::ZERO, &mut drops).unwrap();
    }
    assert!(leaves().all(|queue| scheduler.leaf_for(QueueId(queue)) == QueueId(to)));
    // Packets for removed leaves enter leaf `to`. Once that is removed as well, they enter the leaf that got
    // its packets.
    scheduler.change(&add(2, Some(1), Share::Level(2), fifo()), Instant::ZERO, &mut drops).unwrap();
    let remove =
        |node: u16, to: Option<u16>| ScheduleChange::Remove { node: QueueId(node), to: to.map(QueueId) };
    scheduler.change(&remove(to, Some(2)), Instant::ZERO, &mut drops).unwrap();
    assert!(leaves().all(|queue| scheduler.leaf_for(QueueId(queue)) == QueueId(2)));
    scheduler.change(&add(last, Some(1), Share::Level(3), fifo()), Instant::ZERO, &mut drops).unwrap();
    scheduler.change(&remove(2, None), Instant::ZERO, &mut drops).unwrap();
    assert!(leaves().all(|queue| scheduler.leaf_for(QueueId(queue)) == QueueId(last)));
    assert_eq!(scheduler.leaves.default, QueueId(last));
}

#[test]
fn default_is_the_first_remaining_leaf_after_any_change() {
    let fifo = || NodeKind::Fifo(Default::default());
    let leaf = |node: u16| add(node, Some(1), Share::Level(node.into()), fifo());
    let remove = |node: u16| ScheduleChange::Remove { node: QueueId(node), to: None };
    let mut scheduler =
        scheduler(&[add(1, None, Share::Only, NodeKind::Priority), leaf(5), leaf(3), leaf(9)]);
    for (change, default) in [(leaf(2), 5), (remove(5), 2), (remove(2), 3), (leaf(4), 3), (leaf(2), 3)] {
        scheduler.change(&change, Instant::ZERO, &mut Vec::new()).unwrap();
        assert_eq!(scheduler.leaves.default, QueueId(default), "{change:?}");
    }
    for (gone, default) in [(3, 2), (2, 4), (4, 9), (9, 0)] {
        scheduler.change(&remove(gone), Instant::ZERO, &mut Vec::new()).unwrap();
        assert_eq!(scheduler.leaves.default, QueueId(default), "without {gone}");
    }
}

#[test]
fn shared_queue_enters_the_leaf_of_another_one_until_that_ends() {
    let pool = Pool::new(64).unwrap();
    let leaf = |node: u16| add(node, Some(1), Share::Level(node.into()), NodeKind::Fifo(Default::default()));
    let mut scheduler = scheduler(&[add(1, None, Share::Only, NodeKind::Priority), leaf(2), leaf(3)]);
    let mut drops = Vec::new();
    let share = |leaf: Option<u16>| ScheduleChange::SameAs { queue: QueueId(9), leaf: leaf.map(QueueId) };
    let mut change = |scheduler: &mut PortScheduler, change: ScheduleChange| {
        scheduler.change(&change, Instant::ZERO, &mut drops)
    };
    assert!(change(&mut scheduler, share(Some(7))).is_err());
    change(&mut scheduler, share(Some(3))).unwrap();
    // The leaf is empty, and stays the leaf of both queues.
    assert_eq!(scheduler.leaf_for(QueueId(9)), QueueId(3));
    scheduler.enqueue(packet(&pool, 9), Instant::ZERO, &mut Vec::new());
    assert_eq!(scheduler.backlog(&packet(&pool, 3)).map(|(_, backlog)| backlog.packets), Some(1));
    // Packets that have begun to wait there aren't overtaken.
    change(&mut scheduler, share(None)).unwrap();
    assert_eq!(scheduler.leaf_for(QueueId(9)), QueueId(3));
    assert!(next(&mut scheduler, Instant::ZERO, &mut Vec::new()).is_some());
    assert_eq!(scheduler.leaf_for(QueueId(9)), QueueId(2));
    // A removed leaf takes its shared queues along, and an own leaf ends the sharing.
    change(&mut scheduler, share(Some(3))).unwrap();
    change(&mut scheduler, ScheduleChange::Remove { node: QueueId(3), to: None }).unwrap();
    assert_eq!(scheduler.leaf_for(QueueId(9)), QueueId(2));
    change(&mut scheduler, share(Some(2))).unwrap();
    change(&mut scheduler, leaf(9)).unwrap();
    assert_eq!(scheduler.leaf_for(QueueId(9)), QueueId(9));
    change(&mut scheduler, share(None)).unwrap();
    assert_eq!(scheduler.leaf_for(QueueId(9)), QueueId(9));
}
