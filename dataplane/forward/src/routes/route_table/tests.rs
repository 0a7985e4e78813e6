//! Tests of the route table against a list of prefixes with linear search.

use super::linear_oracle::{LinearOracle, operations4, operations6};
use super::*;
use millrace_testkit::Random;
use proptest::prelude::*;

/// Applies the operations to both tables and compares every result.
fn compare<A: PrefixBits>(operations: &[(bool, A, u8, u32)]) -> Result<(), TestCaseError> {
    let (mut table, mut oracle) = (RouteTable::new(), LinearOracle::default());
    for &(insert, address, length, value) in operations {
        if insert {
            prop_assert_eq!(table.insert(address, length, value), oracle.insert(address, length, value));
            prop_assert_eq!(table.get(address, length), Some(value));
        } else {
            prop_assert_eq!(table.remove(address, length), oracle.remove(address, length));
            prop_assert_eq!(table.get(address, length), None);
        }
        for (_, probe, ..) in operations {
            let expected = oracle.lookup_prefix(*probe);
            prop_assert_eq!(table.lookup_prefix(*probe), expected);
            prop_assert_eq!(table.lookup(*probe), expected.map(|(_, _, value)| value));
        }
    }
    oracle.0.sort_unstable();
    prop_assert_eq!(table.iter().collect::<Vec<_>>(), oracle.0.clone());
    prop_assert_eq!(table.len(), oracle.0.len());
    for (address, length, value) in oracle.0 {
        prop_assert_eq!(table.remove(address, length), Some(value));
    }
    prop_assert!(table.is_empty());
    prop_assert_eq!(table.free.len(), table.nodes.len() - 1, "all nodes but the root are free again");
    Ok(())
}

proptest! {
    #[test]
    fn ipv4_lookups_equal_the_linear_oracle(operations in operations4()) {
        compare(&operations)?;
    }

    #[test]
    fn ipv6_lookups_equal_the_linear_oracle(operations in operations6()) {
        compare(&operations)?;
    }
}

/// Test case FW-01.
#[test]
fn random_lookups_equal_the_oracle() {
    let (mut table, mut oracle) = (RouteTable::new(), LinearOracle::default());
    let mut random = Random::new(1);
    for value in 0..200 {
        let (address, length) = (random.bits() as u32, (random.bits() % 20) as u8);
        table.insert(address, length, value);
        oracle.insert(address, length, value);
    }
    for _ in 0..20_000 {
        let address = random.bits() as u32;
        assert_eq!(table.lookup_prefix(address), oracle.lookup_prefix(address));
    }
}

/// Compares `longest`, which searches in two steps, with a search of one position after the other.
#[test]
fn the_longest_place_is_the_first_found_by_halving() {
    let mut random = Random::new(3);
    for members in 0..200 {
        let mut node = Node::default();
        for _ in 0..members % 20 {
            node.set(1 + random.bits() as usize % 511, 0);
        }
        for octet in 0..=255 {
            let halvings = (0..9).map(|halvings| (256 | usize::from(octet)) >> halvings);
            let expected = halvings.into_iter().find(|place| node.prefixes.contains(*place));
            assert_eq!(node.longest(octet), expected, "octet {octet}");
        }
    }
}

#[test]
fn bits_behind_the_prefix_do_not_count() {
    let mut table = RouteTable::<u32>::new();
    assert_eq!(table.insert(0x0a01_0203, 8, 1), None);
    assert_eq!(table.insert(0x0aff_ffff, 8, 2), Some(1));
    assert_eq!(table.iter().collect::<Vec<_>>(), [(0x0a00_0000, 8, 2)]);
    assert_eq!(table.lookup(0x0b00_0000), None);
}

#[test]
fn a_length_beyond_the_address_is_not_found() {
    let mut table = RouteTable::<u32>::new();
    assert_eq!((table.get(0, 33), table.remove(0, 33)), (None, None));
}

/// An empty table may take 4 KiB, and a table of 100,000 IPv4 routes 20 MiB.
#[test]
fn memory_stays_small() {
    let empty = RouteTable::<u128>::new();
    assert!(empty.memory() < 4096, "{}", empty.memory());
    let (mut table, mut random) = (RouteTable::<u32>::new(), Random::new(7));
    while table.len() < 100_000 {
        table.insert(random.bits() as u32, 17 + (random.bits() % 8) as u8, 1);
    }
    assert!(table.memory() < 20 << 20, "{} bytes", table.memory());
}
