//! Tests of the cutting tree, compared with the linear oracle.

use millrace_memory::{Operation, Vectors, with_each};
use millrace_packet::FlowKey;
use millrace_units::PortId;
use proptest::prelude::*;

use super::*;
use crate::filter::tests::{any_candidate, compiled};
use crate::filter_table::against_oracle::{any_change, change_and_compare};
use crate::filter_table::batch::LANES;
use crate::prefix_match::Accesses;
use crate::{LinearOracle, TupleSpace};

/// Search of packets, to be run with each kind of vector instructions.
struct Search<'a, const W: usize> {
    tree: &'a Tree<W>,
    keys: &'a [Key<W>],
}

impl<const W: usize> Operation for Search<'_, W> {
    type Output = Vec<Found>;

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) -> Vec<Found> {
        let mut found = vec![Found::NONE; self.keys.len()];
        BatchSearch { tree: self.tree, keys: self.keys, found: &mut found }.run(vectors);
        found
    }
}

/// Whether the search finds the same filters with each kind of vector instructions. `candidates` are packets
/// of one family.
fn all_find_the_same<const W: usize>(tree: &Tree<W>, family: Family, candidates: &[Candidate]) -> bool {
    let own = candidates.iter().filter(|candidate| candidate.key.family() == family);
    let keys: Vec<_> = own.map(Key::of).collect();
    keys.chunks(LANES).all(|keys| {
        let found = with_each(|| Search { tree, keys });
        found.iter().all(|found| *found == one_by_one(tree, keys))
    })
}

fn one_by_one<const W: usize>(tree: &Tree<W>, keys: &[Key<W>]) -> Vec<Found> {
    keys.iter().map(|key| tree.find(Portable, key, &mut NotCounted)).collect()
}

proptest! {
    #[test]
    fn table_matches_like_the_oracle_under_any_changes(
        changes in prop::collection::vec(any_change(), 0..300),
        candidates in prop::collection::vec(any_candidate(), 1..70),
    ) {
        let mut table = CuttingTree::default();
        let ids = change_and_compare(&mut table, &changes, &candidates)?;
        prop_assert!(all_find_the_same(&table.v4, Family::V4, &candidates));
        prop_assert!(all_find_the_same(&table.v6, Family::V6, &candidates));
        for id in ids {
            table.remove(id);
        }
        prop_assert_eq!((table.nodes(), table.len()), (0, 0));
    }
}

/// Random filter in a small part of the space, where many filters overlap and have equal specificity.
fn any_crowded_filter() -> impl Strategy<Value = String> {
    let lengths = prop::sample::select(vec![26_u32, 28, 30, 32]);
    let widths = prop::sample::select(vec![0_u32, 7, 7, 31]);
    (0_u32..64, lengths, 0_u32..96, widths, any::<bool>()).prop_map(|(host, length, port, width, source)| {
        let net = std::net::Ipv4Addr::from_bits((10 << 24 | host) & (u32::MAX << (32 - length)));
        let (address, ports) = if source { ("src", "dport") } else { ("dst", "sport") };
        format!("{address} {net}/{length} {ports} {port}-{}", port + width)
    })
}

proptest! {
    #[test]
    fn table_matches_like_the_oracle_among_crowded_filters(
        changes in prop::collection::vec((any_crowded_filter(), 0_i32..2, any::<Option<prop::sample::Index>>()), 50..400),
        packets in prop::collection::vec((0_u32..64, 0_u32..64, 0_u16..130, 0_u16..130), 64),
    ) {
        let (mut table, mut oracle) = (CuttingTree::default(), LinearOracle::new());
        for (number, (text, priority, removed)) in changes.iter().enumerate() {
            let filter = compiled(text);
            prop_assert_eq!(table.insert(filter, *priority, number), oracle.insert(filter, *priority, number));
            if let Some(removed) = removed {
                let id = FilterId(removed.index(number + 1) as u64);
                prop_assert_eq!(table.remove(id), oracle.remove(id));
            }
        }
        let address = |host: u32| std::net::Ipv4Addr::from_bits(10 << 24 | host);
        let packet = |(source, destination, from, to): &(u32, u32, u16, u16)| {
            let addresses = (address(*source), address(*destination));
            Candidate::plain(FlowKey::v4(addresses.0, addresses.1, 17, (*from, *to), PortId(1)))
        };
        let packets: Vec<_> = packets.iter().map(packet).collect();
        let mut found = vec![None; packets.len()];
        table.lookup_batch(&packets, &mut found);
        for (packet, found) in packets.iter().zip(found) {
            prop_assert_eq!(found, oracle.lookup(packet));
            prop_assert_eq!(table.lookup(packet), oracle.lookup(packet));
        }
    }
}

#[test]
fn filter_keeps_its_id_when_moved_from_another_table() {
    let mut old = LinearOracle::new();
    let ids = ["proto tcp", "src 10.0.0.0/8", "*"].map(|text| old.insert(compiled(text), 0, text));
    old.remove(ids[0]);
    let mut table = CuttingTree::default();
    for entry in old.entries() {
        assert!(table.restore(*entry) && !table.restore(*entry));
    }
    assert_eq!(table.next_id(), old.next_id());
    assert_eq!(table.remove(ids[1]), Some("src 10.0.0.0/8"));
    assert_eq!(table.remove(ids[2]), Some("*"));
    assert!(table.is_empty());
}

/// Fills both tables with filters that differ only in port ranges. Tuple space search has to try such filters
/// one after the other.
#[test]
fn filters_that_differ_in_ranges_of_ports_alone_are_parted() {
    let (mut table, mut other) = (CuttingTree::default(), TupleSpace::new());
    for number in 0..2000_u32 {
        let (first, last) = (1 + 30 * number, 35 + 30 * number);
        let filter = compiled(&format!("dst 10.0.0.0/24 proto tcp dport {first}-{last}"));
        table.insert(filter, 0, number);
        other.insert(filter, 0, number);
    }
    let (mut accesses, mut others) = (Accesses::default(), Accesses::default());
    for number in (0..2000).step_by(7) {
        let addresses = [[10, 9, 9, 9].into(), [10, 0, 0, 7].into()];
        let ports = (7, 31 + 30 * number as u16);
        let packet = FlowKey::v4(addresses[0], addresses[1], 6, ports, PortId(1));
        let packet = Candidate::plain(packet);
        let found = table.lookup_counted(&packet, &mut accesses).map(|(_, value)| *value);
        assert_eq!(found, other.lookup_counted(&packet, &mut others).map(|(_, value)| *value));
        assert!(found.is_some());
    }
    println!("accesses: {} in a cutting tree, {} in tuple space", accesses.0, others.0);
    assert!(5 * accesses.0 < others.0, "{} and {}", accesses.0, others.0);
}

/// Fills tables of different sizes with filters that overlap in many ways, and compares the memory per
/// filter.
#[test]
fn memory_stays_in_proportion_to_the_filters() {
    let fill = |filters: u32| {
        let mut table = CuttingTree::default();
        for number in 0..filters {
            let (length, from) = (12 + number % 13, number * 4099 % 40_000);
            let bits = (10 << 24 | (number * 7919 % 251) << 16) & (u32::MAX << (32 - length));
            let net = format!("{}/{length}", std::net::Ipv4Addr::from_bits(bits));
            let text = match number % 3 {
                0 => format!("src {net} dport {from}-{}", from + 20_000),
                1 => format!("dst {net} sport {from}-{}", from + 20_000),
                _ => format!("sport {from}-{} dport {from}-{}", from + 9000, from + 20_000),
            };
            table.insert(compiled(&text), 0, number);
        }
        table.memory() / filters as usize
    };
    let [few, many] = [500, 8000].map(fill);
    println!("{few} bytes a filter of 500, {many} of 8,000");
    assert!(many < 3 * few && many < 4096);
}
