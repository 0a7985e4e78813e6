//! Tests of the connection table: cases, and random packets against a slow twin.

mod twin;

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_units::PortId;
use millrace_wire::Protocol;

use super::*;
use crate::state::Fragment;

/// Packet of a test: flow key and octets from the transport header on.
#[derive(Clone, Debug)]
struct Made {
    key: FlowKey,
    octets: Vec<u8>,
}

impl Made {
    fn new(source: [u8; 4], destination: [u8; 4], protocol: u8, ports: (u16, u16), octets: Vec<u8>) -> Self {
        let [source, destination] = [source, destination].map(Ipv4Addr::from);
        Self { key: FlowKey::v4(source, destination, protocol, ports, PortId(1)), octets }
    }

    fn udp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Self {
        Self::new(source, destination, 17, ports, vec![0; 8])
    }

    fn tcp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16), flags: u8, numbers: (u32, u32)) -> Self {
        let mut octets = vec![0; 20];
        octets[4..8].copy_from_slice(&numbers.0.to_be_bytes());
        octets[8..12].copy_from_slice(&numbers.1.to_be_bytes());
        (octets[12], octets[13]) = (0x50, flags);
        octets[14..16].copy_from_slice(&1000u16.to_be_bytes());
        Self::new(source, destination, 6, ports, octets)
    }

    fn packet(&self) -> Packet<'_> {
        let fragment = Fragment::Whole;
        let transport = Transport { octets: &self.octets, length: self.octets.len(), fragment };
        Packet { key: &self.key, transport }
    }
}

const CONFIG: ConnectionConfig = ConnectionConfig {
    maximum: 4,
    per_source: 3,
    timeouts: Timeouts {
        opening: Duration::from_secs(5),
        established: Duration::from_secs(100),
        closing: Duration::from_secs(4),
        closed: Duration::from_secs(1),
        udp_unanswered: Duration::from_secs(2),
        udp: Duration::from_secs(2000),
        query: Duration::from_secs(3),
        other: Duration::from_secs(6),
    },
    adopts: false,
    seed: 7,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const C: [u8; 4] = [10, 0, 0, 3];

fn table() -> ConnectionTable {
    ConnectionTable::new(&CONFIG, Instant::ZERO).unwrap()
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn track(table: &mut ConnectionTable, made: &Made, now: Instant) -> Tracked {
    table.track(&made.packet(), ConnectionRef::default(), now)
}

fn expire(table: &mut ConnectionTable, now: Instant) -> Vec<Ended> {
    std::iter::from_fn(|| table.expire(now, &mut 1_000_000)).collect()
}

#[test]
fn both_directions_are_one_connection() {
    let mut table = table();
    let there = track(&mut table, &Made::udp(B, A, (5, 53)), at(0)).known.unwrap();
    let back = track(&mut table, &Made::udp(A, B, (53, 5)), at(0)).known.unwrap();
    assert_eq!((there.direction, there.relation), (Direction::Original, Relation::Opening));
    assert_eq!((back.direction, back.relation), (Direction::Reply, Relation::Established));
    assert_eq!((there.connection, table.len()), (back.connection, 1));
}

#[test]
fn word_belongs_to_one_connection() {
    let mut table = table();
    let first = track(&mut table, &Made::udp(A, B, (1, 2)), at(0)).known.unwrap().connection;
    table.set_word(first, 9);
    assert_eq!(table.word(first), 9);
    assert_eq!(table.remove(first).unwrap().word, 9);
    let next = track(&mut table, &Made::udp(A, B, (1, 2)), at(0)).known.unwrap().connection;
    assert_eq!((table.word(first), table.word(next), table.remove(first)), (0, 0, None));
    table.set_word(first, 5);
    assert_eq!(table.word(next), 0);
}

#[test]
fn connections_expire_by_state() {
    let mut table = table();
    track(&mut table, &Made::udp(A, B, (1, 2)), at(0)).known.unwrap();
    track(&mut table, &Made::udp(A, C, (1, 2)), at(0)).known.unwrap();
    track(&mut table, &Made::udp(C, A, (2, 1)), at(1)).known.unwrap();
    assert!(expire(&mut table, at(2)).is_empty());
    let ended = expire(&mut table, at(3));
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].reason, EndReason::Expired);
    assert!(expire(&mut table, at(2001)).is_empty());
    assert_eq!(expire(&mut table, at(2002)).len(), 1);
    assert!(table.is_empty() && table.sources() == 0);
}

/// Returns a table with a TCP connection whose handshake is complete.
fn with_handshake() -> ConnectionTable {
    let mut table = table();
    let packets = [
        Made::tcp(A, B, (1, 2), 2, (10, 0)),
        Made::tcp(B, A, (2, 1), 0x12, (70, 11)),
        Made::tcp(A, B, (1, 2), 0x10, (11, 71)),
    ];
    for packet in &packets {
        track(&mut table, packet, at(0)).known.unwrap();
    }
    table
}

#[test]
fn shorter_idle_time_ends_a_connection_sooner() {
    let mut table = with_handshake();
    assert!(expire(&mut table, at(50)).is_empty());
    track(&mut table, &Made::tcp(A, B, (1, 2), 4, (11, 0)), at(50)).known.unwrap();
    assert_eq!(expire(&mut table, at(52)).len(), 1);
}

/// Returns the packets that make an assured connection of UDP.
fn stream(source: [u8; 4], destination: [u8; 4], (from, to): (u16, u16)) -> [Made; 4] {
    let there = Made::udp(source, destination, (from, to));
    let back = Made::udp(destination, source, (to, from));
    [there.clone(), back.clone(), there, back]
}

/// Anybody can forge the source of the originator's packets.
#[test]
fn packets_of_the_originator_alone_assure_no_stream() {
    let mut table = table();
    let [there, back, ..] = stream(A, B, (1, 2));
    let mut is_assured_after = |packet: &Made| {
        track(&mut table, packet, at(0)).known.unwrap();
        table.iter().all(|listed| listed.is_assured)
    };
    for packet in [&there, &there, &back, &there, &there] {
        assert!(!is_assured_after(packet));
    }
    assert!(is_assured_after(&back));
}

#[test]
fn flood_of_unanswered_streams_recycles_no_handshakes() {
    let mut table = table();
    for packet in [Made::tcp(A, B, (1, 2), 2, (10, 0)), Made::tcp(B, C, (1, 2), 2, (10, 0))] {
        track(&mut table, &packet, at(0)).known.unwrap();
    }
    for last in 10..50 {
        let tracked = track(&mut table, &Made::udp([10, 0, 0, last], B, (1, 2)), at(0));
        assert_eq!(tracked.ended.map(|ended| ended.key.protocol()), (last > 11).then_some(Protocol::UDP));
    }
    // Streams with an answer are no longer in the list of the flood.
    track(&mut table, &Made::udp(B, [10, 0, 0, 49], (2, 1)), at(0)).known.unwrap();
    let tracked = track(&mut table, &Made::udp(C, A, (1, 2)), at(0));
    let (handshake, _) = ConnectionKey::of(&Made::tcp(A, B, (1, 2), 2, (10, 0)).key, &[]).unwrap();
    assert_eq!(tracked.ended.map(|ended| ended.key), Some(handshake));
}

#[test]
fn full_table_recycles_the_oldest_that_is_not_assured() {
    let mut table = table();
    for packet in &stream(A, B, (1, 2)) {
        track(&mut table, packet, at(0)).known.unwrap();
    }
    for port in 0..3 {
        track(&mut table, &Made::udp(B, C, (port, 9)), at(0)).known.unwrap();
    }
    let tracked = track(&mut table, &Made::udp(C, B, (8, 8)), at(0));
    let ended = tracked.ended.unwrap();
    let (oldest, _) = ConnectionKey::of(&Made::udp(B, C, (0, 9)).key, &[]).unwrap();
    assert_eq!((ended.key, ended.reason), (oldest, EndReason::Recycled));
    assert!(tracked.known.is_ok() && table.len() == 4);
}

#[test]
fn table_of_assured_connections_refuses_new_ones() {
    let mut table = table();
    for (source, port) in [(A, 1), (A, 2), (C, 1), (C, 2)] {
        for packet in &stream(source, B, (port, 2)) {
            track(&mut table, packet, at(0)).known.unwrap();
        }
    }
    let refused = track(&mut table, &Made::udp(B, C, (7, 7)), at(0));
    assert_eq!((refused.known, refused.ended), (Err(Refusal::TableFull), None));
}

#[test]
fn source_has_a_maximum_and_costs_nobody_else_a_connection() {
    let mut table = table();
    for port in 0..3 {
        track(&mut table, &Made::udp(A, B, (port, 9)), at(0)).known.unwrap();
    }
    track(&mut table, &Made::udp(B, C, (1, 9)), at(0)).known.unwrap();
    let refused = track(&mut table, &Made::udp(A, C, (7, 9)), at(0));
    assert_eq!((refused.known, refused.ended, table.len()), (Err(Refusal::SourceFull), None, 4));
}

#[test]
fn syn_after_a_reset_opens_another_connection() {
    let mut table = table();
    let open = Made::tcp(A, B, (1, 2), 2, (10, 0));
    let first = track(&mut table, &open, at(0)).known.unwrap().connection;
    track(&mut table, &Made::tcp(B, A, (2, 1), 0x14, (0, 11)), at(0)).known.unwrap();
    let tracked = track(&mut table, &Made::tcp(A, B, (1, 2), 2, (99, 0)), at(0));
    assert_eq!(tracked.ended.unwrap().reason, EndReason::Reopened);
    let known = tracked.known.unwrap();
    assert!(known.connection != first && known.relation == Relation::Opening);
}

#[test]
fn icmp_error_is_related_and_changes_nothing() {
    let mut table = table();
    track(&mut table, &Made::tcp(A, B, (1, 2), 2, (10, 0)), at(0)).known.unwrap();
    let error = |sequence: u32| {
        let mut octets = vec![3, 1, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 60, 6, 0, 0];
        octets.extend_from_slice(&A);
        octets.extend_from_slice(&B);
        octets.extend_from_slice(&[0, 1, 0, 2]);
        octets.extend_from_slice(&sequence.to_be_bytes());
        octets
    };
    let error_to = |host, sequence: u32| Made::new(C, host, 1, (0, 0), error(sequence));
    let known = track(&mut table, &error_to(A, 10), at(0)).known.unwrap();
    assert_eq!((known.direction, known.relation), (Direction::Reply, Relation::Related));
    let nothing = Err(Refusal::Invalid(Invalid::QuotesNothing));
    assert_eq!(track(&mut table, &error_to(A, 5_000_000), at(0)).known, nothing);
    // Nobody but the sender of the packet has a use for the error.
    assert_eq!(track(&mut table, &error_to(B, 10), at(0)).known, nothing);
    assert_eq!(expire(&mut table, at(6)).len(), 1);
    assert_eq!(track(&mut table, &error_to(A, 10), at(6)).known, nothing);
}

#[test]
fn reply_without_a_request_opens_nothing() {
    let mut table = table();
    let reply = Made::new(A, B, 1, (0, 0), vec![0, 0, 0, 0, 0, 7, 0, 1]);
    let refused = Err(Refusal::Invalid(Invalid::NotOpening));
    assert_eq!(track(&mut table, &reply, at(0)).known, refused);
    let request = Made::new(B, A, 1, (0, 0), vec![8, 0, 0, 0, 0, 7, 0, 1]);
    track(&mut table, &request, at(0)).known.unwrap();
    assert_eq!(track(&mut table, &reply, at(0)).known.unwrap().relation, Relation::Established);
}

#[test]
fn later_fragment_of_a_query_belongs_to_the_query_of_its_flow_and_is_no_error() {
    let mut table = table();
    let request = Made::new(A, B, 1, (0, 0), vec![8, 0, 0, 0, 0, 7, 0, 1]);
    let query = track(&mut table, &request, at(0)).known.unwrap().connection;
    // The data of the fragments look like a reply with another identifier, and like an error.
    let mut later = |source, destination, octets: &[u8], hint| {
        let made = Made::new(source, destination, 1, (0, 0), octets.to_vec());
        let transport = Transport { octets, length: octets.len(), fragment: Fragment::Later };
        let known = table.track(&Packet { key: &made.key, transport }, hint, at(0)).known;
        known.map(|known| (known.connection, known.direction))
    };
    let refused = Err(Refusal::Invalid(Invalid::NotOpening));
    assert_eq!(later(A, B, &[0, 0, 0, 0, 9, 9, 0, 1], query), Ok((query, Direction::Original)));
    assert_eq!(later(B, A, &[3, 1, 0, 0, 0, 0, 0, 0], query), Ok((query, Direction::Reply)));
    assert_eq!(later(A, C, &[0, 0, 0, 0, 9, 9, 0, 1], query), refused);
    assert_eq!(later(A, B, &[8, 0, 0, 0, 0, 8, 0, 1], ConnectionRef::default()), refused);
}

#[test]
fn idle_times_may_be_longer_than_the_wheel() {
    let day = 24 * 3600;
    let timeouts = Timeouts { udp_unanswered: Duration::from_secs(5 * day), ..CONFIG.timeouts };
    for (timeout, days) in [(timeouts.udp_unanswered, 5), (Duration::MAX, 20)] {
        let timeouts = Timeouts { udp_unanswered: timeout, ..timeouts };
        let mut table = ConnectionTable::new(&ConnectionConfig { timeouts, ..CONFIG }, at(0)).unwrap();
        track(&mut table, &Made::udp(A, B, (1, 2)), at(0)).known.unwrap();
        let mut budget = u32::MAX;
        assert_eq!(table.expire(at(days * day - 1), &mut budget), None, "{days}");
        assert_eq!(table.expire(at(days * day + 1), &mut budget).is_some(), days == 5, "{days}");
    }
}

#[test]
fn association_after_the_end_of_another_is_a_new_connection() {
    let mut table = table();
    let packet = |tag: u32, kind: u8| {
        let value = if kind == 1 { 7u32 } else { 0 };
        let octets =
            [&[0, 1, 0, 2][..], &tag.to_be_bytes(), &[0; 4], &[kind, 0, 0, 20], &value.to_be_bytes()];
        Made::new(A, B, 132, (1, 2), [octets.concat(), vec![0; 12]].concat())
    };
    let first = track(&mut table, &packet(0, 1), at(0)).known.unwrap().connection;
    table.set_word(first, 5);
    // ABORT with the tag of its sender.
    let mut abort = packet(7, 6);
    abort.octets[13] = 1;
    track(&mut table, &abort, at(0)).known.unwrap();
    let tracked = track(&mut table, &packet(0, 1), at(0));
    assert_eq!(tracked.ended.map(|ended| (ended.reason, ended.word)), Some((EndReason::Reopened, 5)));
    assert!(tracked.known.unwrap().connection != first);
}

#[test]
fn serial_numbers_count_the_connections_of_a_number() {
    let mut table = table();
    for serial in 1..4 {
        let known = track(&mut table, &Made::udp(A, B, (1, 2)), at(0)).known.unwrap();
        assert_eq!(known.connection, ConnectionRef::new(1, serial));
        assert_eq!(table.remove(ConnectionRef::new(1, serial + 1)), None, "not opened yet");
        assert!(table.remove(known.connection).is_some());
    }
}

/// Packets of the connection pass untracked, so its sequence numbers are unknown.
#[test]
fn windows_are_not_checked_after_a_change_of_epoch() {
    let mut table = with_handshake();
    let late = Made::tcp(A, B, (1, 2), 0x10, (900_000, 700_000));
    assert_eq!(track(&mut table, &late, at(0)).known, Err(Refusal::Invalid(Invalid::Sequence)));
    table.begin_epoch();
    assert_eq!(track(&mut table, &late, at(0)).known.unwrap().relation, Relation::Established);
    // A connection of the new epoch is checked.
    for packet in [Made::tcp(A, C, (1, 2), 2, (10, 0)), Made::tcp(C, A, (2, 1), 0x12, (70, 11))] {
        track(&mut table, &packet, at(0)).known.unwrap();
    }
    let late = Made::tcp(A, C, (1, 2), 0x10, (900_000, 700_000));
    assert_eq!(track(&mut table, &late, at(0)).known, Err(Refusal::Invalid(Invalid::Sequence)));
}

#[test]
fn connection_ends_when_all_its_packets_are_dropped() {
    let mut table = table();
    let packets = [Made::udp(A, B, (1, 2)), Made::udp(A, B, (1, 2)), Made::udp(B, A, (2, 1))];
    let known = packets.each_ref().map(|packet| track(&mut table, packet, at(0)).known.unwrap());
    assert!(known.iter().all(|known| known.is_counted));
    let connection = known[0].connection;
    assert_eq!((table.drop_counted(connection), table.drop_counted(connection)), (None, None));
    assert_eq!(table.drop_counted(connection).map(|ended| ended.reason), Some(EndReason::Dropped));
    assert_eq!((table.len(), table.sources(), table.drop_counted(connection)), (0, 0, None));
    // A packet that passes keeps the next connection, whatever happens to later packets.
    let next = track(&mut table, &packets[0], at(0)).known.unwrap().connection;
    for _ in 0..3 {
        track(&mut table, &packets[2], at(0)).known.unwrap();
        assert_eq!(table.drop_counted(next), None);
    }
    assert_eq!(table.len(), 1);
}

#[test]
fn packets_beyond_the_largest_count_are_not_counted() {
    let mut table = table();
    let packet = Made::udp(A, B, (1, 2));
    let known: Vec<_> = (0..70_000).map(|_| track(&mut table, &packet, at(0)).known.unwrap()).collect();
    let counted: Vec<_> = known.iter().filter(|known| known.is_counted).collect();
    assert_eq!(counted.len(), usize::from(u16::MAX));
    let ended = counted.iter().filter_map(|known| table.drop_counted(known.connection)).count();
    assert_eq!((ended, table.len()), (1, 0));
}

/// The router has started during the connection.
#[test]
fn adopted_connection_is_assured_when_the_other_side_has_sent() {
    let mut table = ConnectionTable::new(&ConnectionConfig { adopts: true, ..CONFIG }, at(0)).unwrap();
    let there = Made::tcp(A, B, (1, 2), 0x10, (500, 900));
    let back = Made::tcp(B, A, (2, 1), 0x10, (900, 500));
    let assured = [&there, &there, &back].map(|packet| {
        track(&mut table, packet, at(0)).known.unwrap();
        table.iter().all(|listed| listed.is_assured)
    });
    assert_eq!(assured, [false, false, true]);
    // A FIN does not open a connection, and without `adopts`, no segment but SYN does.
    let fin = Made::tcp(A, C, (1, 2), 0x11, (500, 900));
    let refused = Err(Refusal::Invalid(Invalid::NotOpening));
    assert_eq!(track(&mut table, &fin, at(0)).known, refused);
    assert_eq!(track(&mut self::table(), &there, at(0)).known, refused);
}

/// Anybody may open connections while packets pass untracked, so only those past their handshake are left unchecked.
#[test]
fn each_change_of_epoch_leaves_incomplete_handshakes_checked() {
    let mut table = table();
    track(&mut table, &Made::tcp(A, B, (1, 2), 2, (10, 0)), at(0)).known.unwrap();
    table.begin_epoch();
    track(&mut table, &Made::tcp(B, A, (2, 1), 0x12, (70, 11)), at(0)).known.unwrap();
    table.begin_epoch();
    let forged = Made::tcp(A, B, (1, 2), 0x10, (11, 700_000));
    assert_eq!(track(&mut table, &forged, at(0)).known, Err(Refusal::Invalid(Invalid::Acknowledgment)));
    track(&mut table, &Made::tcp(A, B, (1, 2), 0x10, (11, 71)), at(0)).known.unwrap();
    table.begin_epoch();
    track(&mut table, &Made::tcp(A, B, (1, 2), 0x10, (900_000, 700_000)), at(0)).known.unwrap();
}

#[test]
fn sizes_out_of_range_are_refused() {
    for maximum in [0, ConnectionConfig::LARGEST + 1] {
        let error = ConnectionTable::new(&ConnectionConfig { maximum, ..CONFIG }, Instant::ZERO).unwrap_err();
        assert!(error.to_string().contains("a table holds 1 to 67108864"), "{error}");
    }
}

#[test]
fn connection_takes_at_most_192_bytes() {
    assert_eq!((size_of::<Record>(), ConnectionTable::BYTES_PER_CONNECTION), (128, 168));
}
