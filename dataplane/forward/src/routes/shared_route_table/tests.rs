//! Tests of the shared route table against a reference table, and with readers that look up addresses during
//! all changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::routes::route_table::linear_oracle::{LinearOracle, operations4, operations6};
use millrace_testkit::Random;
use proptest::prelude::*;

/// Conversion between addresses and octets.
trait Octets<const N: usize>: PrefixBits {
    fn octets(self) -> [u8; N];
    /// Makes an address from the upper bits of a number.
    fn cut(bits: u128) -> Self;
}

impl Octets<4> for u32 {
    fn octets(self) -> [u8; 4] {
        self.to_be_bytes()
    }

    fn cut(bits: u128) -> Self {
        (bits >> 96) as u32
    }
}

impl Octets<16> for u128 {
    fn octets(self) -> [u8; 16] {
        self.to_be_bytes()
    }

    fn cut(bits: u128) -> Self {
        bits
    }
}

/// Returns a reader's results, and checks that single lookups and a batch lookup agree.
fn answers<A: Octets<N>, const N: usize>(reader: &TableReader<N>, addresses: &[A]) -> Vec<Option<u32>> {
    let single: Vec<_> = addresses.iter().map(|address| reader.lookup(address.octets())).collect();
    let mut batch = vec![Some(u32::MAX); addresses.len()];
    reader.lookup_batch(addresses, A::octets, &mut batch, |value| value);
    assert_eq!(single, batch, "one at a time, and all at once");
    single
}

fn quiesce<A: PrefixBits>(table: &mut SharedTable<A>) {
    let epoch = table.close_epoch();
    table.quiesced(epoch);
}

/// Applies the operations to both tables and compares every result. An operation with value 0 also frees the
/// retired nodes.
fn compare<A: Octets<N>, const N: usize>(operations: &[(bool, A, u8, u32)]) -> Result<(), TestCaseError> {
    let (mut table, mut oracle) = (SharedTable::new().unwrap(), LinearOracle::default());
    let reader = table.reader::<N>();
    let probes: Vec<A> = operations.iter().map(|(_, address, ..)| *address).collect();
    for &(insert, address, length, value) in operations {
        if insert {
            prop_assert_eq!(table.insert(address, length, value), Ok(oracle.insert(address, length, value)));
        } else {
            prop_assert_eq!(table.remove(address, length), oracle.remove(address, length));
        }
        if value == 0 {
            quiesce(&mut table);
        }
        let expected: Vec<_> = probes.iter().map(|probe| Some(oracle.lookup_prefix(*probe)?.2)).collect();
        prop_assert_eq!(answers(&reader, &probes), expected);
    }
    for (address, length, value) in oracle.0 {
        prop_assert_eq!(table.remove(address, length), Some(value));
    }
    prop_assert!(answers(&reader, &probes).iter().all(Option::is_none));
    quiesce(&mut table);
    prop_assert_eq!(table.nodes.used(), 0);
    Ok(())
}

/// Replaces most very short IPv4 prefixes by longer ones, because each very short prefix takes up to 8
/// million stores.
fn affordable(operations: Vec<(bool, u32, u8, u32)>) -> Vec<(bool, u32, u8, u32)> {
    let longer = |length, value| if (1..8).contains(&length) && value > 3 { length + 8 } else { length };
    operations
        .into_iter()
        .map(|(i, address, length, value)| (i, address, longer(length, value), value))
        .collect()
}

proptest! {
    // Few cases: each one maps huge pages, which the kernel must clear.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn ipv4_lookups_equal_the_linear_oracle(operations in operations4().prop_map(affordable)) {
        compare(&operations)?;
    }

    #[test]
    fn ipv6_lookups_equal_the_linear_oracle(operations in operations6()) {
        compare(&operations)?;
    }
}

/// Inserts and removes thousands of nearby prefixes, which creates nodes of every size. The reference is the
/// writer's own table, which other tests compare with a list.
fn crowd<A: Octets<N>, const N: usize>(shortest: u8, varied: u32) {
    let (mut table, mut oracle) = (SharedTable::<A>::new().unwrap(), RouteTable::<A>::new());
    let reader = table.reader::<N>();
    let mut random = Random::new(shortest.into());
    let address = |random: &mut Random| {
        let high = random.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let rest = u128::from(high) << 48 | u128::from(random.bits() >> 16);
        let varied_bits = (1 << varied) - 1;
        A::cut((0x2001_0db8 << 96) & !varied_bits | rest & varied_bits)
    };
    let mut present = BTreeSet::new();
    for round in 0..30_000u32 {
        let grows = round % 10_000 < 7000;
        if random.bits() % 10 < if grows { 8 } else { 1 } {
            let span = u64::from(A::WIDTH.min(64) - shortest) + 1;
            let length = shortest + (random.bits() % span) as u8;
            let prefix = (address(&mut random).masked(length), length);
            let old = oracle.insert(prefix.0, length, round);
            assert_eq!(table.insert(prefix.0, length, round), Ok(old));
            present.insert(prefix);
        } else if let Some(&prefix) = present.range((address(&mut random), 0)..).next() {
            present.remove(&prefix);
            let old = oracle.remove(prefix.0, prefix.1);
            assert!(old.is_some());
            assert_eq!(table.remove(prefix.0, prefix.1), old);
        }
        if round % 100 == 0 {
            quiesce(&mut table);
            let probes: Vec<A> = (0..200).map(|_| address(&mut random)).collect();
            let expected: Vec<_> = probes.iter().map(|probe| oracle.lookup(*probe)).collect();
            assert_eq!(answers(&reader, &probes), expected, "round {round}");
        }
    }
    let before = table.nodes.used();
    assert!(before > 50, "{before} lines");
    for (address, length) in present {
        table.remove(address, length);
    }
    quiesce(&mut table);
    assert_eq!(table.nodes.used(), 0);
}

#[test]
fn a_crowd_of_ipv4_prefixes_is_found() {
    crowd::<u32, 4>(20, 112);
}

#[test]
fn a_crowd_of_ipv6_prefixes_is_found() {
    crowd::<u128, 16>(24, 106);
}

/// Test case FW-01: host prefixes for all 256 values of the last octet, which make the largest possible
/// nodes.
#[test]
fn every_octet_may_have_a_separate_value() {
    let mut table = SharedTable::<u32>::new().unwrap();
    let reader = table.reader::<4>();
    let values: Vec<u32> = (0..256).collect();
    values.iter().for_each(|value| _ = table.insert(0x0a00_0000 | value, 32, *value));
    let addresses: Vec<u32> = values.iter().map(|value| 0x0a00_0000 | value).collect();
    assert_eq!(answers(&reader, &addresses), values.iter().copied().map(Some).collect::<Vec<_>>());
    table.insert(0x0a00_0000, 8, 1000).unwrap();
    addresses.iter().for_each(|address| _ = table.remove(*address, 32));
    assert!(answers(&reader, &addresses).iter().all(|value| *value == Some(1000)));
}

/// Retires nodes. They must not be reused before their readers have passed the epoch.
#[test]
fn nodes_are_used_again_only_when_readers_have_gone_on() {
    let mut table = SharedTable::<u32>::new().unwrap();
    let reader = table.reader::<4>();
    let toggle = |table: &mut SharedTable<u32>| {
        table.insert(0x0a00_0080, 25, 1).unwrap();
        table.remove(0x0a00_0080, 25);
    };
    toggle(&mut table);
    let one = table.nodes.memory();
    toggle(&mut table);
    assert!(table.nodes.memory() > one, "the first node is not used again");
    let first = table.close_epoch();
    toggle(&mut table);
    table.quiesced(first);
    assert_eq!(table.nodes.waiting(), 1, "what went after the epoch waits on");
    let before = table.nodes.memory();
    toggle(&mut table);
    assert_eq!(table.nodes.memory(), before);
    drop(reader);
    (0..10).for_each(|_| toggle(&mut table));
    assert_eq!(table.nodes.memory(), before, "without readers they are free at once");
}

#[test]
fn full_table_refuses_and_is_unchanged() {
    let mut table = SharedTable::<u128>::over(Slots::with_lines(64).unwrap());
    let reader = table.reader::<16>();
    let address = |number: u128| 0x2001_0db8 << 96 | number << 80 | 1;
    let fits = (0..).find(|number| table.insert(address(*number), 128, *number as u32).is_err()).unwrap();
    assert!((2..64).contains(&fits), "{fits} fit");
    let probes: Vec<u128> = (0..fits + 1).map(address).collect();
    let mut expected: Vec<_> = (0..fits as u32).map(Some).collect();
    expected.push(None);
    assert_eq!(answers(&reader, &probes), expected);
    assert_eq!(table.prefixes().len(), fits as usize);
    // In a full table, existing prefixes can still change, and removals make room.
    assert_eq!(table.insert(address(0), 128, 77), Ok(Some(0)));
    assert_eq!(table.remove(address(1), 128), Some(1));
    assert_eq!(table.insert(address(1), 128, 1), Err(FibFull));
    quiesce(&mut table);
    assert_eq!(table.insert(address(1), 128, 1), Ok(None));
}

/// Returns a value for a prefix. It encodes the prefix length, the number of the address if no other address
/// shares the prefix, and `is_new`.
fn encoded(length: u8, number: usize, is_new: bool) -> u32 {
    u32::from(length) << 16 | u32::from(is_new) << 15 | if length > 64 { number as u32 } else { 0 }
}

/// Progress of the writer and the readers, counted in changes of the writer.
#[derive(Default)]
struct Progress {
    /// Number of changes before the last end of an epoch.
    closed: AtomicU64,
    /// Value of `closed` that each reader has last seen between two batches.
    seen: [AtomicU64; 2],
    is_done: AtomicBool,
}

/// Looks up addresses until the writer has ended. Checks that each result is a value that some prefix of the
/// address had.
fn read(reader: &TableReader<16>, addresses: &[u128], progress: &Progress, seen: &AtomicU64) {
    while !progress.is_done.load(Ordering::Acquire) {
        // Reports a quiescent point: no lookup is running.
        seen.store(progress.closed.load(Ordering::Acquire), Ordering::Release);
        let mut batch = vec![None; addresses.len()];
        reader.lookup_batch(addresses, |address| address.to_be_bytes(), &mut batch, |value| value);
        for (number, found) in batch.into_iter().enumerate() {
            let found = found.expect("a prefix of each address is always there");
            let (length, mark) = (found >> 16, found & 0x7fff);
            assert!(length >= 20, "the longest prefix, not the fallback: {found:#x}");
            let own = if length > 64 { number as u32 } else { 0 };
            assert_eq!(mark, own, "address {number} has a value of another: {found:#x}");
        }
    }
    // The writer must not wait for a reader that has ended.
    seen.store(u64::MAX, Ordering::Release);
}

/// Changes prefixes at random, and frees nodes when all readers have passed the epoch.
fn write(table: &mut SharedTable<u128>, addresses: &[u128], progress: &Progress) {
    let lengths = [20, 28, 33, 40, 47, 56, 63, 64, 65, 97, 128];
    let mut random = Random::new(5);
    let mut waiting = None;
    for round in 0..60_000u64 {
        let number = (random.bits() % addresses.len() as u64) as usize;
        let length = lengths[(random.bits() % lengths.len() as u64) as usize];
        let is_new = random.bits().is_multiple_of(2);
        if random.bits().is_multiple_of(2) {
            table.insert(addresses[number], length, encoded(length, number, is_new)).unwrap();
        } else {
            table.remove(addresses[number], length);
        }
        if waiting.is_none() {
            waiting = Some((table.close_epoch(), round + 1));
            progress.closed.store(round + 1, Ordering::Release);
        }
        if let Some((epoch, round)) = waiting
            && progress.seen.iter().all(|seen| seen.load(Ordering::Acquire) >= round)
        {
            table.quiesced(epoch);
            waiting = None;
        }
    }
    progress.is_done.store(true, Ordering::Release);
}

/// One thread changes prefixes, and frees nodes when all readers have passed the epoch. For each address,
/// readers must see only values that its prefixes have had.
#[test]
fn readers_see_the_old_or_the_new() {
    // Addresses that share prefixes of several lengths.
    let addresses: Vec<u128> = (0..40u128)
        .map(|number| 0x2001_0db8 << 96 | (number % 5) << 88 | number << 64 | 0x8000 << 48 | number)
        .collect();
    let mut table = SharedTable::<u128>::new().unwrap();
    table.insert(0, 0, 7).unwrap();
    for (number, address) in addresses.iter().enumerate() {
        table.insert(*address, 24, encoded(24, number, false)).unwrap();
    }
    let progress = Progress::default();
    std::thread::scope(|scope| {
        for seen in &progress.seen {
            let reader = table.reader::<16>();
            let (addresses, progress) = (&addresses, &progress);
            scope.spawn(move || read(&reader, addresses, progress, seen));
        }
        write(&mut table, &addresses, &progress);
    });
}
