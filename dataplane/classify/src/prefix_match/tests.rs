//! Tests of all kinds of longest prefix match, compared with a linear list.

use millrace_testkit::Random;
use proptest::prelude::*;

use super::*;

/// Reference model: a list that is searched from end to end.
#[derive(Default)]
struct Linear<A>(Vec<(Prefix<A>, u32)>);

impl<A: AddressBits> Linear<A> {
    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let place = self.0.iter().position(|(own, _)| *own == prefix)?;
        Some(self.0.swap_remove(place).1)
    }

    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let old = self.remove(prefix);
        self.0.push((prefix, value));
        old
    }

    fn longest(&self, suits: impl Fn(Prefix<A>) -> bool) -> Option<u32> {
        let suiting = self.0.iter().filter(|(own, _)| suits(*own));
        suiting.max_by_key(|(own, _)| own.length()).map(|(_, value)| *value)
    }

    fn within(&self, prefix: Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        let mut all: Vec<_> = self.0.iter().copied().filter(|(own, _)| prefix.covers(*own)).collect();
        all.sort_unstable();
        all
    }
}

fn within<A: AddressBits>(way: &impl PrefixMatch<A>, prefix: Prefix<A>) -> Vec<(Prefix<A>, u32)> {
    let mut all = Vec::new();
    way.within(prefix, &mut |prefix, value| all.push((prefix, value)));
    all.sort_unstable();
    all
}

/// Addition (`true`) or removal of a prefix, with its value.
type Change<A> = (bool, Prefix<A>, u32);

fn compare<A: AddressBits>(kind: PrefixMatchKind, changes: &[Change<A>]) -> Result<(), TestCaseError> {
    let (mut way, mut linear) = (AnyMatch::new(kind), Linear::default());
    for (insert, prefix, value) in changes {
        if *insert {
            prop_assert_eq!(way.insert(*prefix, *value), linear.insert(*prefix, *value));
        } else {
            prop_assert_eq!(way.remove(*prefix), linear.remove(*prefix));
        }
        prop_assert_eq!(way.len(), linear.0.len());
        prop_assert_eq!(way.is_empty(), linear.0.is_empty());
        for (_, probe, _) in changes {
            let expected = linear.longest(|own| own.holds(probe.bits()));
            prop_assert_eq!(way.lookup(probe.bits(), &mut NotCounted), expected, "{:?}", probe);
            prop_assert_eq!(way.get(*probe), linear.longest(|own| own == *probe));
            prop_assert_eq!(way.above(*probe), linear.longest(|own| own != *probe && own.covers(*probe)));
            prop_assert_eq!(within(&way, *probe), linear.within(*probe));
        }
    }
    for (prefix, value) in within(&way, Prefix::default()) {
        prop_assert_eq!(way.remove(prefix), Some(value));
    }
    prop_assert!(way.is_empty());
    Ok(())
}

/// Random changes with few different octets, so prefixes nest and repeat. Lengths include 0 and 32.
fn changes4() -> impl Strategy<Value = Vec<Change<u32>>> {
    let octet = prop::sample::select(vec![0u8, 1, 127, 128, 129, 255]);
    let address = prop::array::uniform4(octet).prop_map(u32::from_be_bytes);
    let length = prop_oneof![Just(0), Just(8), Just(24), Just(32), 0u8..=32];
    let prefix = (address, length).prop_map(|(address, length)| Prefix::new(address, length));
    prop::collection::vec((prop::bool::weighted(0.7), prefix, 0u32..50), 1..40)
}

fn changes6() -> impl Strategy<Value = Vec<Change<u128>>> {
    let octet = prop::sample::select(vec![0u8, 1, 128, 255]);
    let address = prop::array::uniform16(octet).prop_map(u128::from_be_bytes);
    let near = (address, 0u32..128).prop_map(|(address, shift)| address >> shift);
    let length = prop_oneof![Just(0), Just(48), Just(64), Just(127), Just(128), 0u8..=128];
    let prefix = (near, length).prop_map(|(address, length)| Prefix::new(address, length));
    prop::collection::vec((prop::bool::weighted(0.7), prefix, 0u32..50), 1..30)
}

proptest! {
    #[test]
    fn patricia_matches_like_a_list(four in changes4(), six in changes6()) {
        compare(PrefixMatchKind::Patricia, &four)?;
        compare(PrefixMatchKind::Patricia, &six)?;
    }

    #[test]
    fn binary_search_on_lengths_matches_like_a_list(four in changes4(), six in changes6()) {
        compare(PrefixMatchKind::BinarySearchOnLengths, &four)?;
        compare(PrefixMatchKind::BinarySearchOnLengths, &six)?;
    }

    #[test]
    fn tree_bitmap_matches_like_a_list(four in changes4(), six in changes6()) {
        compare(PrefixMatchKind::TreeBitmap, &four)?;
        compare(PrefixMatchKind::TreeBitmap, &six)?;
    }

    #[test]
    fn random_prefixes_are_found(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let changes: Vec<_> = (0..24)
            .map(|value| (true, Prefix::new(random.bits() as u32 & 0xf0f0_ffff, random.below(33) as u8), value))
            .collect();
        for kind in PrefixMatchKind::ALL {
            compare(kind, &changes)?;
        }
    }
}

/// A marker leads the search to longer lengths, where it fails. The search must still find 10.0.0.0/8.
#[test]
fn a_search_misled_by_a_marker_still_finds_the_shorter_prefix() {
    let mut way = BinarySearchOnLengths::<u32>::default();
    for (value, (bits, length)) in
        [(0x0a00_0000, 8), (0x0a01_0000, 16), (0x0a01_0100, 24), (0x0a02_0101, 32)].into_iter().enumerate()
    {
        way.insert(Prefix::new(bits, length), value as u32);
    }
    assert_eq!(way.lookup(0x0a02_0102, &mut NotCounted), Some(0));
    assert_eq!(way.lookup(0x0a01_0201, &mut NotCounted), Some(1));
    assert_eq!(way.lookup(0x0b01_0201, &mut NotCounted), None);
}

/// The bounds of 5 and 7 probes per address are those of *Router Plugins*, which states 2 * log2(32) and 2 *
/// log2(128) for both addresses together.
#[test]
fn probes_are_at_most_the_logarithm_of_the_lengths() {
    let mut four = BinarySearchOnLengths::<u32>::default();
    (2..=32).for_each(|length| _ = four.insert(Prefix::new(u32::MAX, length), 0));
    let mut six = BinarySearchOnLengths::<u128>::default();
    (2..=128).for_each(|length| _ = six.insert(Prefix::new(u128::MAX, length), 0));
    for differs in 0..32 {
        let mut accesses = Accesses::default();
        four.lookup(!(1 << differs), &mut accesses);
        assert!(accesses.0 <= 1 + 5, "{accesses:?}");
    }
    for differs in 0..128 {
        let mut accesses = Accesses::default();
        six.lookup(!(1 << differs), &mut accesses);
        assert!(accesses.0 <= 1 + 7, "{accesses:?}");
    }
}

/// Fills and empties a set several times. Removed prefixes must leave nothing behind.
#[test]
fn emptied_set_matches_nothing_and_returns_its_values() {
    for kind in PrefixMatchKind::ALL {
        let mut way = AnyMatch::<u128>::new(kind);
        for _ in 0..3 {
            (0..=128).for_each(|length| _ = way.insert(Prefix::new(u128::MAX, length), length.into()));
            let full = way.heap();
            for length in (0..=128).rev() {
                assert_eq!(way.lookup(u128::MAX, &mut NotCounted), Some(length.into()));
                assert_eq!(way.remove(Prefix::new(u128::MAX, length)), Some(length.into()));
            }
            assert_eq!(way.lookup(u128::MAX, &mut NotCounted), None);
            assert!(way.heap() <= full, "{kind:?}");
        }
    }
}
