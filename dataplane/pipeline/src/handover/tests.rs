use millrace_packet::Pool;

use super::parcels::{FULL, LOANS, PARCELS, UNDER_WAY};
use super::*;

fn workers(count: usize) -> Vec<Handover> {
    HandoverRings::mesh(&vec![None; count]).into_iter().map(|rings| Handover::new(rings, 4096)).collect()
}

/// Packet memory of a sender and of a receiver, and the two.
struct Two {
    pools: [Pool; 2],
    first: Handover,
    second: Handover,
}

impl Two {
    fn new(frames: u32) -> Self {
        let mut ends = workers(2);
        let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
        Self { pools: [0, 1].map(|_| Pool::new(frames).unwrap()), first, second }
    }

    fn packet(&self, length: usize, first: u8) -> Packet {
        let bytes: Vec<u8> = (0..length).map(|at| first.wrapping_add(at as u8)).collect();
        self.pools[0].packet_from(&bytes).unwrap()
    }

    fn put(&mut self, packet: Packet) -> Result<(), Packet> {
        self.first.put(1, packet, Note::of(Errand::Flow))
    }
}

#[test]
fn packets_leave_unchanged_until_all_parcels_are_full() {
    let (pool, other) = (Pool::new(64).unwrap(), Pool::new(4096).unwrap());
    let mut ends = workers(3);
    let (mut third, mut first) = (ends.pop().unwrap(), ends.swap_remove(0));
    assert!(third.next(0, &other).is_none() && third.fall_asleep());
    let transport = Transport { protocol: 6, ports: (5, 60_000), tcp_flags: Some(0) };
    let packet = || {
        let mut packet = pool.packet_from(&[7; 5000]).unwrap();
        packet.set_network(14);
        (packet.port, packet.out_port, packet.exceptions) = (PortId(3), PortId(4), Exceptions::TTL);
        packet.next_hop = NextHopIndex(70_000);
        packet
    };
    let mut put = 0;
    let note = Note { transport, filters: &[5, u64::MAX], ..Note::of(Errand::Transmit) };
    while first.put(2, packet(), note).is_ok() {
        put += 1;
    }
    // A parcel is left for the kernel.
    assert!(put >= (PARCELS - 1) * FULL / 5020, "{put}");
    assert!(!third.fall_asleep());
    assert_eq!(first.publish(), PARCELS - 1);
    assert!(!first.is_waiting());
    for _ in 0..put {
        first.publish();
        let handed = third.next(0, &other).unwrap();
        let taken = handed.packet.as_ref().unwrap();
        assert_eq!((handed.errand, taken.network_offset()), (Errand::Transmit, 14));
        assert_eq!(taken.to_vec(), [7; 5000]);
        assert_eq!((handed.port, handed.out_port), (PortId(3), PortId(4)));
        assert_eq!((handed.exceptions, handed.next_hop), (Exceptions::TTL, NextHopIndex(70_000)));
        assert_eq!(handed.transport, transport);
        assert_eq!(handed.counts_for, [5u64, u64::MAX].map(u64::to_le_bytes).concat());
    }
    assert!(third.next(0, &other).is_none() && third.next(1, &other).is_none());
    assert!(first.put(2, packet(), Note::of(Errand::Flow)).is_ok(), "parcels come back");
}

#[test]
fn marks_of_earlier_stages_go_with_a_packet_to_the_worker_of_an_instance() {
    let mut two = Two::new(64);
    let mut packet = two.packet(60, 1);
    (packet.queue, packet.tag, packet.passes, packet.is_framed) = (QueueId(300), 7, 3, true);
    two.put(packet).unwrap();
    two.first.publish();
    let handed = two.second.next(0, &two.pools[1]).unwrap();
    assert_eq!((handed.queue, handed.tag, handed.passes, handed.is_framed), (QueueId(300), 7, 3, true));
}

#[test]
fn partly_filled_parcel_is_sent_unless_many_are_under_way() {
    let mut two = Two::new(256);
    let mut sent = 0;
    for _ in 0..100 {
        two.put(two.packet(60, 1)).unwrap();
        sent += two.first.publish();
    }
    assert_eq!(sent, UNDER_WAY);
    assert!(two.first.is_waiting());
    let mut taken = 0;
    while two.second.next(0, &two.pools[1]).is_some() {
        taken += 1;
        sent += two.first.publish();
    }
    assert_eq!(sent, UNDER_WAY + 1);
    assert_eq!(taken, 100);
}

#[test]
fn packet_of_1500_bytes_crosses_with_at_most_192_bytes_and_its_memory_comes_back() {
    let mut two = Two::new(16);
    let mut packet = two.packet(1500, 3);
    packet.set_transport(54);
    let bytes = packet.to_vec();
    two.put(packet).unwrap();
    assert!(two.first.bytes_to(1) <= 192, "{}", two.first.bytes_to(1));
    two.first.publish();
    let taken = two.second.next(0, &two.pools[1]).unwrap().packet.unwrap();
    assert_eq!(taken.to_vec(), bytes);
    assert!(taken.data().len() <= 160, "the rest stays where it is");
    two.second.publish();
    two.first.publish();
    assert_eq!((two.pools[0].in_use(), two.pools[1].in_use()), (1, 1));
    drop(taken);
    two.second.publish();
    two.first.publish();
    assert_eq!((two.pools[0].in_use(), two.pools[1].in_use()), (0, 0));
}

#[test]
fn packets_beyond_the_loans_are_copied_in_order() {
    let count = usize::from(LOANS) + 100;
    let mut two = Two::new(2048);
    for number in 0..count {
        two.put(two.packet(1000, number as u8)).unwrap();
    }
    two.first.publish();
    assert_eq!(two.pools[0].in_use(), u32::from(LOANS));
    let mut kept = Vec::new();
    for number in 0..count {
        let taken = two.second.next(0, &two.pools[1]).unwrap().packet.unwrap();
        assert_eq!((taken.len(), taken.data()[0]), (1000, number as u8));
        kept.push(taken);
        two.first.publish();
    }
    assert_eq!(kept.iter().filter(|packet| packet.is_linear()).count(), 100);
    drop(kept);
    two.second.publish();
    two.first.publish();
    assert_eq!((two.pools[0].in_use(), two.pools[1].in_use()), (0, 0));
}

#[test]
fn receiver_without_memory_gives_the_loan_back() {
    let mut two = Two::new(4);
    let all: Vec<Packet> = std::iter::from_fn(|| two.pools[1].allocate()).collect();
    two.put(two.packet(1500, 0)).unwrap();
    two.put(two.packet(100, 9)).unwrap();
    two.first.publish();
    assert!(two.second.next(0, &two.pools[1]).unwrap().packet.is_none());
    drop(all);
    let second = two.second.next(0, &two.pools[1]).unwrap().packet.unwrap();
    assert_eq!(second.data()[0], 9, "the record behind it is read");
    two.second.publish();
    two.first.publish();
    assert_eq!(two.pools[0].in_use(), 0);
}

#[test]
fn packet_may_go_on_to_a_third_worker_and_back() {
    let pools: Vec<Pool> = (0..3).map(|_| Pool::new(8).unwrap()).collect();
    let mut ends = workers(3);
    let bytes: Vec<u8> = (0..1400).map(|at| at as u8).collect();
    let mut packet = pools[0].packet_from(&bytes).unwrap();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        ends[from].put(to, packet, Note::of(Errand::Flow)).unwrap();
        assert!(ends[from].bytes_to(to) <= 192, "{from} to {to}");
        ends[from].publish();
        packet = ends[to].next(from, &pools[to]).unwrap().packet.unwrap();
        assert_eq!(packet.to_vec(), bytes);
    }
    drop(packet);
    // A loan ends one publication after the loan that depends on it.
    for _ in 0..5 {
        for end in &mut ends {
            end.publish();
        }
    }
    assert_eq!(pools.iter().map(Pool::in_use).collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn every_flow_and_every_device_has_one_owner() {
    let ends = workers(3);
    for hash in (0..64).map(|number| u32::wrapping_mul(number, 0x9e37_79b9)) {
        assert_eq!(ends.iter().filter(|end| end.owner_of(hash).is_none()).count(), 1);
    }
    for device in 0..7 {
        assert_eq!(ends.iter().filter(|end| end.owns(DeviceId(device))).count(), 1);
    }
}

/// Puts packets until one finds no room. Returns their number.
fn fill(two: &mut Two, errand: Errand, payer: Option<u32>, most: usize) -> usize {
    let note = Note { payer: payer.map(PrincipalId), ..Note::of(errand) };
    (0..most).take_while(|_| two.first.put(1, two.packet(200, 1), note).is_ok()).count()
}

/// The receiver takes nothing, and each class sends as much as it can, one after the other.
#[test]
fn classes_that_flood_a_slow_worker_leave_room_for_others() {
    let mut two = Two::new(1 << 15);
    let whole = PARCELS * FULL.div_ceil(232);
    let alone = fill(&mut two, Errand::Transmit, None, 10_000);
    assert_eq!(alone, whole - FULL.div_ceil(232), "only the kernel needs room");
    assert_eq!(fill(&mut two, Errand::Host, None, 10), 10);
    let mut two = Two::new(1 << 15);
    fill(&mut two, Errand::Transmit, Some(9), 1);
    let plain = fill(&mut two, Errand::Transmit, None, 10_000);
    assert!(plain.abs_diff(whole / 2) < 100, "{plain} of {whole}");
    let floods = [(Errand::Transmit, Some(5)), (Errand::Host, None), (Errand::Flow, Some(6))];
    for ((errand, payer), part) in floods.into_iter().zip([4, 8, 16]) {
        let found = fill(&mut two, errand, payer, 10_000);
        assert!(found.abs_diff(whole / part) < 100, "{found} of {whole} for {payer:?}");
    }
    assert_eq!(
        fill(&mut two, Errand::Host, Some(5), 10),
        0,
        "its packets to the kernel are part of its flood"
    );
    assert_eq!(fill(&mut two, Errand::Transmit, Some(8), 10), 10, "a quiet principal finds room");
    let load = |two: &Two, id| two.first.load(PrincipalId(id));
    assert_eq!([5, 6, 8, 9].map(|id| load(&two, id).dropped), [2, 1, 0, 0]);
    assert!(load(&two, 5).bytes.abs_diff((PARCELS * FULL / 4) as u64) < 32 << 10, "{:?}", load(&two, 5));
    // The receiver takes them, so each class gets its room back.
    for _ in 0..2 {
        two.first.publish();
        while two.second.next(0, &two.pools[1]).is_some() {}
    }
    two.first.publish();
    assert_eq!([5, 6, 8, 9].map(|id| load(&two, id).bytes), [0; 4]);
    two.first.forget(PrincipalId(5));
    assert_eq!(load(&two, 5), HandoverLoad::default());
}
