//! Tests of the flow table's guarantees when it is full, or when hashes collide.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_packet::FlowKey;
use millrace_units::{Instant, PortId};

use super::super::eviction::PROBATION_SHARE;
use super::super::expiry::ENDS_AT_ONCE;
use super::super::index::FlowHash;
use super::super::record_set::UNREAD;
use super::super::{FlowIndex, FlowTable, FlowTableConfig, FlowTableError, Full, LARGEST, RemovalReason};
use super::model::{TICK, answer};

/// Seed of the flow hash.
const SEED: u64 = 7;

fn table(initial: u32, maximum: u32) -> FlowTable {
    FlowTable::new(FlowTableConfig {
        initial,
        maximum,
        populate: maximum < 100,
        seed: SEED,
        ..FlowTableConfig::default()
    })
    .unwrap()
}

fn key(flow: u32) -> FlowKey {
    FlowKey::v4(Ipv4Addr::from(flow), Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(3))
}

fn insert(table: &mut FlowTable, flow: u32, now: Instant) -> Result<FlowIndex, Full> {
    let key = key(flow);
    table.insert(&key, table.hash(&key), 0, answer(flow), now)
}

/// Inserts a record and counts two packets of its flow.
fn establish(table: &mut FlowTable, flow: u32, now: Instant) -> FlowIndex {
    let index = insert(table, flow, now).unwrap();
    table.touch(index, 64, now);
    table.touch(index, 64, now);
    index
}

fn find(table: &FlowTable, flow: u32) -> Option<FlowIndex> {
    table.find(&key(flow), table.hash(&key(flow)), 0)
}

fn read_all(table: &mut FlowTable) -> u32 {
    std::iter::from_fn(|| table.pop_removed()).map(|_| 1).sum()
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for (initial, maximum) in [(0, 0), (0, 5), (6, 5), (1, LARGEST + 1)] {
        let config = FlowTableConfig { initial, maximum, ..FlowTableConfig::default() };
        assert!(matches!(FlowTable::new(config), Err(FlowTableError::Size { .. })), "{initial} {maximum}");
    }
}

#[test]
fn the_capacity_doubles_up_to_the_maximum_and_nothing_is_lost() {
    let mut table = table(8, 5000);
    let mut capacities = vec![table.capacity()];
    for flow in 0..5000 {
        insert(&mut table, flow, Instant::ZERO).unwrap();
        if table.capacity() != capacities[capacities.len() - 1] {
            capacities.push(table.capacity());
        }
    }
    assert_eq!(capacities, [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 5000]);
    assert!(
        (0..5000)
            .all(|flow| find(&table, flow).is_some_and(|index| table.record(index).answer == answer(flow)))
    );
    assert_eq!((table.len(), table.counts().inserted, table.unread()), (5000, 5000, 0));
    while table.maintain(Instant::ZERO, 1000) {}
    assert!((0..5000).all(|flow| find(&table, flow).is_some()));
}

#[test]
fn batched_lookups_equal_single_lookups() {
    let mut table = table(8, 1024);
    (0..50).for_each(|flow| _ = insert(&mut table, flow * 2, Instant::ZERO).unwrap());
    let keys: Vec<FlowKey> = (0..100).map(key).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| table.hash(key)).collect();
    let single: Vec<_> = (0..100).map(|flow| find(&table, flow)).collect();
    for length in 0..100 {
        let mut found = vec![None; length];
        table.find_batch(&keys[..length], &hashes[..length], &mut found);
        assert_eq!(found, single[..length]);
    }
}

#[test]
fn index_is_valid_until_its_end_record_is_read() {
    let mut table = table(1, 1);
    let index = insert(&mut table, 1, Instant::ZERO).unwrap();
    let other = insert(&mut table, 2, Instant::ZERO).unwrap();
    // The second flow has displaced the first one. A packet of the batch still finds the first flow's answer,
    // and is counted.
    assert_ne!(index, other);
    assert_eq!((find(&table, 1), table.record(index).is_live()), (None, false));
    assert_eq!((table.key(index), table.record(index).answer), (key(1), answer(1)));
    for _ in 0..3 {
        table.touch(index, 100, Instant::ZERO);
    }
    let removed = table.pop_removed().unwrap();
    assert_eq!((removed.index, removed.packets, removed.bytes), (index, 3, 300));
    assert_eq!((removed.reason, table.on_probation()), (RemovalReason::Recycled, 1));
    assert_eq!(table.pop_removed(), None);
    assert_eq!(insert(&mut table, 3, Instant::ZERO), Ok(index), "the place is used again");
}

#[test]
fn established_flows_keep_records_in_a_flood_of_new_flows() {
    let mut table = table(1024, 4096);
    let established: Vec<FlowIndex> =
        (0..3000).map(|flow| establish(&mut table, flow, Instant::ZERO)).collect();
    let mut now = Instant::ZERO;
    for flow in 0..100_000 {
        now += Duration::from_micros(2);
        insert(&mut table, 1_000_000 + flow, now).unwrap();
        if flow % 256 == 0 {
            table.maintain(now, 256);
            read_all(&mut table);
        }
    }
    assert!((0..3000).all(|flow| find(&table, flow) == Some(established[flow as usize])));
    let counts = table.counts();
    assert_eq!((table.len(), counts.recycled, counts.recycled_on_probation), (4096, 0, 103_000 - 4096));
}

#[test]
fn new_flows_take_their_share_of_established_records_and_then_each_others() {
    let mut table = table(100, 100);
    (0..100).for_each(|flow| _ = establish(&mut table, flow, Instant::ZERO));
    (1000..1500).for_each(|flow| _ = insert(&mut table, flow, Instant::ZERO).unwrap());
    let share = 100 / PROBATION_SHARE;
    assert_eq!(table.on_probation(), share);
    let counts = table.counts();
    assert_eq!((counts.recycled, counts.recycled_on_probation), (share.into(), (500 - share).into()));
}

#[test]
fn interleaved_new_flows_are_established_in_a_full_table() {
    let mut table = table(512, 512);
    (0..512).for_each(|flow| _ = establish(&mut table, flow, Instant::ZERO));
    let later = Instant::ZERO + Duration::from_secs(1);
    for flow in 1000..1064 {
        let index = insert(&mut table, flow, later).unwrap();
        table.touch(index, 64, later);
    }
    assert!((1000..1064).all(|flow| find(&table, flow).is_some()));
    read_all(&mut table);
}

#[test]
fn reserved_and_stateful_records_are_never_recycled() {
    let mut table = table(64, 64);
    for flow in 0..64 {
        let index = insert(&mut table, flow, Instant::ZERO).unwrap();
        if flow % 2 == 0 { table.set_reserved(index, true) } else { table.set_state(index, flow) }
    }
    assert_eq!(table.on_probation(), 32);
    for flow in 0..64 {
        let index = find(&table, flow).unwrap();
        table.touch(index, 64, Instant::ZERO);
        table.touch(index, 64, Instant::ZERO);
    }
    assert_eq!(table.on_probation(), 0);
    assert_eq!(insert(&mut table, 100, Instant::ZERO), Err(Full::Protected));
    let last = find(&table, 63).unwrap();
    table.set_state(last, 0);
    assert!(insert(&mut table, 100, Instant::ZERO).is_ok());
    assert!((0..63).all(|flow| find(&table, flow).is_some()) && find(&table, 63).is_none());
    assert_eq!(table.counts().refused_protected, 1);
}

#[test]
fn a_flood_of_flows_with_state_displaces_itself_and_no_other_state() {
    let mut table = table(256, 256);
    // These records leave room for 16 others, fewer than the share of records on probation.
    for flow in 0..240 {
        let index = establish(&mut table, flow, Instant::ZERO);
        table.set_state(index, 1 + flow);
    }
    for flow in 1000..11_000 {
        let index = insert(&mut table, flow, Instant::ZERO).unwrap();
        table.set_state(index, flow);
        read_all(&mut table);
    }
    assert!((0..240).all(|flow| find(&table, flow).is_some_and(|index| table.state(index) == 1 + flow)));
    let counts = table.counts();
    assert_eq!((table.on_probation(), counts.recycled, counts.refused_protected), (16, 0, 0));
}

#[test]
fn single_recyclable_record_is_found_by_further_calls() {
    let mut table = table(4096, 4096);
    for flow in 0..4096 {
        let index = establish(&mut table, flow, Instant::ZERO);
        table.set_reserved(index, flow != 4000);
    }
    let refused = (0..100).position(|flow| insert(&mut table, 10_000 + flow, Instant::ZERO).is_ok());
    assert!(refused.is_some_and(|refused| refused <= 16), "{refused:?}");
    assert_eq!(find(&table, 4000), None);
}

#[test]
fn record_recycled_without_probation_was_idle() {
    let size = 4096;
    let mut table = table(size, size);
    let steps: Vec<Instant> = (0..size as u64).map(|step| Instant::from_nanos(step << 24)).collect();
    // Give the flows times of their last packets that don't depend on their slots.
    for flow in 0..size {
        let step = (flow.wrapping_mul(2_654_435_761) % size) as usize;
        establish(&mut table, flow, steps[step]);
    }
    let now = steps[size as usize - 1];
    let mut ranks = Vec::new();
    for flow in 0..512 {
        establish(&mut table, 100_000 + flow, now);
        let removed = table.pop_removed().unwrap();
        ranks.push((removed.last_used.as_nanos() >> 24) as f64 / f64::from(size));
    }
    let (mean, worst) = (ranks.iter().sum::<f64>() / 512.0, ranks.iter().copied().fold(0.0, f64::max));
    // If exactly the oldest 512 of 4,096 records were displaced, the mean would be 0.0625; with 512 random
    // records it would be 0.5.
    assert!(mean < 0.09 && worst < 0.4, "mean {mean}, worst {worst}");
}

#[test]
fn ends_that_are_not_read_are_kept_and_new_flows_refused() {
    let mut table = table(8, 16);
    let mut full = None;
    for flow in 0..2 * UNREAD {
        if let Err(reason) = insert(&mut table, flow, Instant::ZERO) {
            full = Some((flow, reason));
            break;
        }
    }
    assert_eq!(full, Some((16 + UNREAD, Full::Unread)));
    let keys: HashSet<FlowKey> =
        std::iter::from_fn(|| table.pop_removed()).map(|removed| removed.key).collect();
    assert_eq!(keys, (0..UNREAD).map(key).collect());
    assert!(insert(&mut table, 99_999, Instant::ZERO).is_ok());
}

/// Keys of both families that differ from one key in a single byte each.
fn alike() -> Vec<FlowKey> {
    let [source, destination] = [[1; 16], [2; 16]];
    let six = |source: [u8; 16], destination: [u8; 16], protocol, ports, port| {
        FlowKey::v6(source.into(), destination.into(), protocol, ports, PortId(port))
    };
    let four = |source, destination, protocol, ports, port| {
        FlowKey::v4(Ipv4Addr::from(source), Ipv4Addr::from(destination), protocol, ports, PortId(port))
    };
    let mut keys = vec![];
    for (protocol, ports, port) in
        [(6, (1, 2), 3), (17, (1, 2), 3), (6, (257, 2), 3), (6, (1, 3), 3), (6, (1, 2), 4), (6, (1, 2), 259)]
    {
        keys.push(six(source, destination, protocol, ports, port));
        keys.push(four([1; 4], [2; 4], protocol, ports, port));
    }
    for byte in 0..16 {
        let other = |mut address: [u8; 16]| {
            address[byte] ^= 0x80;
            address
        };
        keys.push(six(other(source), destination, 6, (1, 2), 3));
        keys.push(six(source, other(destination), 6, (1, 2), 3));
    }
    for byte in 0..4 {
        let other = |mut address: [u8; 4]| {
            address[byte] ^= 0x80;
            address
        };
        keys.push(four(other([1; 4]), [2; 4], 6, (1, 2), 3));
        keys.push(four([1; 4], other([2; 4]), 6, (1, 2), 3));
    }
    keys
}

#[test]
fn keys_and_variants_with_equal_hashes_are_distinguished() {
    let (mut table, now) = (table(1024, 1024), Instant::ZERO);
    let keys = alike();
    // For each variant, choose the base record's hash so that the hash of the variant is 42.
    let hash = FlowHash::new(SEED);
    let base = |variant| 42_u64.wrapping_sub(hash.with_variant(0, variant));
    let records: Vec<(FlowKey, u32)> =
        keys.iter().map(|&key| (key, 0)).chain((1..8).map(|variant| (keys[0], variant))).collect();
    for (number, (key, variant)) in (0..).zip(&records) {
        let hash = base(*variant);
        table.insert(key, hash, *variant, answer(number), now).unwrap();
        for (other, (key, variant)) in (0..).zip(&records) {
            let found = table.find(key, base(*variant), *variant);
            let found = found.map(|index| table.record(index).answer);
            assert_eq!(
                found,
                (other <= number).then(|| answer(other)),
                "{other} of {number}: {key} {variant}"
            );
        }
        let mut found = vec![None; keys.len()];
        table.find_batch(&keys, &vec![42; keys.len()], &mut found);
        let expected = keys.iter().map(|key| table.find(key, 42, 0));
        assert!(found.iter().copied().eq(expected));
    }
}

#[test]
fn colliding_records_recycle_each_other_but_not_reserved_records() {
    let mut table = table(1024, 1024);
    let mut colliding = |flow, reserved| {
        let made = table.insert(&key(flow), 42, 0, answer(flow), Instant::from_millis(u64::from(flow)));
        made.inspect(|&index| table.set_reserved(index, reserved))
    };
    // Number of places in a group of buckets and in the overflow.
    let places = 64 + 32;
    (0..places + 1).for_each(|flow| _ = colliding(flow, false).unwrap());
    (places + 1..2 * places + 1).for_each(|flow| _ = colliding(flow, true).unwrap());
    assert_eq!(colliding(2 * places + 1, false), Err(Full::Collisions));
    assert_eq!((table.len(), table.counts().recycled_on_probation), (places, u64::from(places) + 1));
    let ended: Vec<FlowKey> = std::iter::from_fn(|| table.pop_removed()).map(|removed| removed.key).collect();
    assert_eq!(ended, (0..places + 1).map(key).collect::<Vec<_>>(), "the oldest go first");
}

#[test]
fn a_group_that_is_full_displaces_no_record_while_the_table_has_room() {
    let mut table = table(1024, 1024);
    let mut indexes = Vec::new();
    for flow in 0..70 {
        let index = table.insert(&key(flow), 42, 0, answer(flow), Instant::ZERO).unwrap();
        table.touch(index, 64, Instant::ZERO);
        table.touch(index, 64, Instant::ZERO);
        indexes.push(index);
    }
    let counts = table.counts();
    assert_eq!((table.len(), counts.recycled, counts.recycled_on_probation), (70, 0, 0));
    assert!((0..70).all(|flow| table.find(&key(flow), 42, 0) == Some(indexes[flow as usize])));
    let keys: Vec<FlowKey> = (0..70).map(key).collect();
    let mut found = vec![None; 70];
    table.find_batch(&keys, &[42; 70], &mut found);
    assert!(found.into_iter().eq(indexes.into_iter().map(Some)));
}

#[test]
fn active_flow_does_not_expire() {
    let mut table = table(8, 1024);
    let (busy, quiet) = (establish(&mut table, 1, Instant::ZERO), establish(&mut table, 2, Instant::ZERO));
    table.set_reserved(quiet, true);
    let mut now = Instant::ZERO;
    while now < Instant::from_millis(100_000) {
        now += Duration::from_millis(250);
        table.touch(busy, 64, now);
        table.maintain(now, 1);
        assert_eq!(find(&table, 1), Some(busy));
        let due = Duration::from_secs(30) * 5 / 4 + Duration::from_millis(250) + 2 * TICK;
        match table.pop_removed() {
            Some(removed) => {
                assert_eq!((removed.key, removed.reason), (key(2), RemovalReason::Expired));
                assert!(
                    now.since(removed.last_used) >= Duration::from_secs(30) && now <= Instant::ZERO + due
                );
            }
            None => assert!(table.len() == 1 || now <= Instant::ZERO + due),
        }
    }
    assert_eq!((table.len(), table.counts().expired), (1, 1));
}

#[test]
fn maintenance_step_keeps_its_budget() {
    // A larger budget lets the table visit more records, but still no more than `ENDS_AT_ONCE` records end in
    // one call.
    for (budget, most) in [(10, 10), (100_000, ENDS_AT_ONCE)] {
        let mut table = table(4096, 4096);
        (0..3000).for_each(|flow| _ = establish(&mut table, flow, Instant::ZERO));
        (3000..4096).for_each(|flow| _ = insert(&mut table, flow, Instant::ZERO));
        let late = Instant::from_millis(100_000);
        for _ in 0..1000 {
            let more = table.maintain(late, budget);
            let ended = read_all(&mut table);
            assert!(ended as usize <= most, "{ended} at once");
            if !more {
                break;
            }
        }
        assert_eq!((table.len(), table.counts().expired), (0, 4096));
    }
}

#[test]
fn packets_are_counted_beyond_32_bits() {
    let mut table = table(8, 8);
    let index = insert(&mut table, 1, Instant::ZERO).unwrap();
    table.touch_many(index, u64::from(u32::MAX), 0, Instant::ZERO);
    table.touch(index, u32::MAX, Instant::ZERO);
    table.touch(index, u32::MAX, Instant::ZERO);
    assert_eq!((table.packets(index), table.record(index).bytes()), ((1 << 32) + 1, u64::from(u32::MAX) * 2));
}
