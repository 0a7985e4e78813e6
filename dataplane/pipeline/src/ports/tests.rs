use millrace_plugin::WorkerPlugins;
use millrace_schedule::{FlowQueuesSettings, NodeKind, Share};
use millrace_units::{NextHopIndex, QueueId};

use super::*;
use crate::accounts::RouteAccounts;
use crate::ports::scheduler::ScheduleChange;

/// Returns settings of a port on device number `device`, with the given tags.
pub(crate) fn settings(device: u16, tags: Tags) -> PortSettings {
    PortSettings {
        name: "p".into(),
        device: DeviceId(device),
        tags,
        stack: Stack::Own,
        mac: MacAddr::ZERO,
        mtu: 1500,
        up: true,
        forwards4: true,
        forwards6: true,
        reverse_path: ReversePath::Off,
        input_weight: 256,
        output_weight: 256,
        addresses: vec!["10.1.0.1/24".parse().unwrap(), "10.2.0.1/24".parse().unwrap()],
    }
}

#[test]
fn frames_find_the_port_of_their_tags() {
    let mut table = PortTable::default();
    table.set(PortId(0), settings(0, Tags::NONE));
    table.set(PortId(4), settings(0, Tags::single(10)));
    assert_eq!(table.by_tags(DeviceId(0), Tags::single(10)), Some(PortId(4)));
    assert_eq!(table.by_tags(DeviceId(0), Tags::single(11)), None);
    table.set(PortId(4), settings(0, Tags::single(11)));
    assert_eq!(table.by_tags(DeviceId(0), Tags::single(10)), None);
    assert_eq!(table.by_tags(DeviceId(0), Tags::single(11)), Some(PortId(4)));
}

#[test]
fn packets_beyond_a_full_queue_without_a_scheduler_are_dropped_and_counted() {
    let mut table = PortTable::default();
    table.set(PortId(0), settings(0, Tags::NONE));
    let entry = table.get_mut(PortId(0)).unwrap();
    let pool = millrace_packet::Pool::new(QUEUE_LIMIT as u32 + 8).unwrap();
    let mut drops = QueueDrops::new();
    let (mut routes, mut filters) = (RouteAccounts::default(), WorkerPlugins::new());
    let mut ledger = Ledger { routes: &mut routes, filters: &mut filters };
    for _ in 0..QUEUE_LIMIT + 3 {
        let packet = pool.packet_from(&[0; 60]).unwrap();
        entry.enqueue(packet, Instant::ZERO, &mut drops, &mut ledger);
    }
    assert_eq!((entry.held(), entry.queue_bytes), (QUEUE_LIMIT, 60 * QUEUE_LIMIT as u64));
    assert_eq!(drops.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [DropReason::QueueFull; 3]);
}

/// Returns a port whose scheduler has a queue for each flow.
fn fair() -> PortTable {
    let mut table = PortTable::default();
    table.set(PortId(0), settings(0, Tags::NONE));
    let mut scheduler = PortScheduler::new(1024, 0).unwrap();
    let kind = NodeKind::FlowQueues(FlowQueuesSettings::default());
    let leaf = ScheduleChange::Add { node: QueueId(1), parent: None, share: Share::Only, kind };
    scheduler.change(&leaf, Instant::ZERO, &mut Vec::new()).unwrap();
    table.get_mut(PortId(0)).unwrap().scheduler = Some(Box::new(scheduler));
    table
}

/// Offers packets to an empty and to a filled scheduler: only as many as the device has room for may bypass
/// it, and each flow must keep its order.
#[test]
fn packets_taken_by_the_device_at_once_bypass_an_empty_scheduler() {
    let pool = millrace_packet::Pool::new(1024).unwrap();
    let (mut routes, mut filters) = (RouteAccounts::default(), WorkerPlugins::new());
    let mut ledger = Ledger { routes: &mut routes, filters: &mut filters };
    let (mut table, mut drops, mut number) = (fair(), QueueDrops::new(), 0);
    let mut iterate = |table: &mut PortTable, come: usize, room: usize, one_by_one: bool| {
        table.note_room(|_| room);
        let entry = table.get_mut(PortId(0)).unwrap();
        let packets: Vec<Packet> = (0..come)
            .map(|_| {
                number += 1;
                let mut packet = pool.packet_from(&[0; 60]).unwrap();
                (packet.hash, packet.next_hop) = (number % 3, NextHopIndex(number));
                packet
            })
            .collect();
        match one_by_one {
            true => packets
                .into_iter()
                .for_each(|packet| entry.enqueue(packet, Instant::ZERO, &mut drops, &mut ledger)),
            false => entry.enqueue_all(packets.into_iter(), Instant::ZERO, &mut drops, &mut ledger),
        }
        let passed = entry.queue.len();
        entry.release(Instant::ZERO, &mut drops, &mut ledger);
        let sent: Vec<(u32, u32)> = entry
            .queue
            .drain(..room.min(entry.queue.len()))
            .map(|packet| (packet.hash, packet.next_hop.0))
            .collect();
        (passed, sent)
    };
    for one_by_one in [false, true] {
        let passed = |iteration: &(usize, Vec<(u32, u32)>)| iteration.0;
        let full = iterate(&mut table, 5, 5, one_by_one);
        assert_eq!((passed(&full), full.1.len()), (5, 5));
        // As many packets bypass the scheduler as the device has room for.
        let over = iterate(&mut table, 20, 7, one_by_one);
        assert_eq!((passed(&over), over.1.len()), (7, 7));
        // Packets now wait both in the scheduler and to enter it.
        let mut sent = [full.1, over.1].concat();
        let wait = iterate(&mut table, 3, 7, one_by_one);
        assert_eq!(passed(&wait), 13);
        sent.extend(wait.1);
        while table.get(PortId(0)).unwrap().held() > 0 {
            sent.extend(iterate(&mut table, 0, 4, one_by_one).1);
        }
        for flow in 0..3 {
            assert!(sent.iter().filter(|(own, _)| *own == flow).is_sorted());
        }
        assert_eq!(passed(&iterate(&mut table, 256, usize::MAX, one_by_one)), 256);
        assert_eq!(iterate(&mut table, 0, usize::MAX, one_by_one).1.len(), 0);
    }
    let scheduler = table.get(PortId(0)).unwrap().scheduler.as_ref().unwrap();
    assert_eq!((scheduler.nodes()[0].sent_packets, scheduler.report().held), (2 * (28 + 256), 0));
    assert_eq!(ledger.routes.account(NextHopIndex(0)).waiting.packets, 0);
}

#[test]
fn ports_of_one_device_share_its_room() {
    let mut table = fair();
    table.set(PortId(1), settings(0, Tags::single(9)));
    table.note_room(|_| 100);
    assert_eq!((table.get(PortId(0)).unwrap().room, table.get(PortId(1)).unwrap().room), (50, 0));
    table.get_mut(PortId(0)).unwrap().is_here = false;
    table.note_room(|_| 100);
    assert_eq!(table.get(PortId(0)).unwrap().room, 0);
}

#[test]
fn a_port_shows_the_address_of_the_peers_subnet() {
    let mut table = PortTable::default();
    table.set(PortId(0), settings(0, Tags::NONE));
    let entry = table.get(PortId(0)).unwrap();
    assert_eq!(entry.address_towards("10.2.0.9".parse().unwrap()), Some("10.2.0.1".parse().unwrap()));
    assert_eq!(entry.address_towards("192.0.2.1".parse().unwrap()), Some("10.1.0.1".parse().unwrap()));
    assert_eq!(entry.address_towards("::1".parse().unwrap()), None);
}
