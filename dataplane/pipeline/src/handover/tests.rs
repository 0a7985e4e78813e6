use millrace_packet::Pool;

use super::*;

#[test]
fn packets_leave_unchanged_until_all_parcels_are_full() {
    let pool = Pool::new(64).unwrap();
    let mut ends = Handover::mesh(&[None, None, None]);
    let (mut third, mut first) = (ends.pop().unwrap(), ends.swap_remove(0));
    let mut packet = pool.packet_from(&[7; 5000]).unwrap();
    packet.set_network(14);
    (packet.port, packet.out_port, packet.exceptions) = (PortId(3), PortId(4), Exceptions::TTL);
    assert!(third.next(0).is_none() && third.fall_asleep());
    let mut put = 0;
    packet.next_hop = NextHopIndex(70_000);
    let transport = Transport { protocol: 6, ports: (5, 60_000), tcp_flags: Some(0) };
    while first.put(2, Errand::Transmit, &packet, transport, &[5, u64::MAX]) {
        put += 1;
    }
    assert!(put >= PARCELS * FULL / 5020, "{put}");
    assert!(!third.fall_asleep());
    assert_eq!(first.publish(), PARCELS);
    assert!(!first.is_waiting());
    for _ in 0..put {
        first.publish();
        let handed = third.next(0).unwrap();
        assert_eq!((handed.errand, handed.network, handed.bytes), (Errand::Transmit, 14, &[7; 5000][..]));
        assert_eq!((handed.port, handed.out_port), (PortId(3), PortId(4)));
        assert_eq!((handed.exceptions, handed.next_hop), (Exceptions::TTL, NextHopIndex(70_000)));
        assert_eq!(handed.transport, transport);
        assert_eq!(handed.counts_for, [5u64, u64::MAX].map(u64::to_le_bytes).concat());
    }
    assert!(third.next(0).is_none() && third.next(1).is_none());
    assert!(first.put(2, Errand::Flow, &packet, Transport::default(), &[]), "parcels come back");
}

#[test]
fn partly_filled_parcel_is_sent_unless_many_are_under_way() {
    let pool = Pool::new(8).unwrap();
    let mut ends = Handover::mesh(&[None, None]);
    let (mut second, mut first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let packet = pool.packet_from(&[1; 60]).unwrap();
    let mut sent = 0;
    for _ in 0..100 {
        assert!(first.put(1, Errand::Flow, &packet, Transport::default(), &[]));
        sent += first.publish();
    }
    assert_eq!(sent, UNDER_WAY);
    assert!(first.is_waiting());
    let mut taken = 0;
    while second.next(0).is_some() {
        taken += 1;
        sent += first.publish();
    }
    assert_eq!(sent, UNDER_WAY + 1);
    assert_eq!(taken, 100);
}

#[test]
fn every_flow_and_every_device_has_one_owner() {
    let ends = Handover::mesh(&[None, None, None]);
    for hash in (0..64).map(|number| u32::wrapping_mul(number, 0x9e37_79b9)) {
        assert_eq!(ends.iter().filter(|end| end.owner_of_flow(hash).is_none()).count(), 1);
    }
    for device in 0..7 {
        assert_eq!(ends.iter().filter(|end| end.owns(DeviceId(device))).count(), 1);
    }
}
