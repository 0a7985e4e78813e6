//! The table beside the oracle.

use proptest::prelude::*;

use super::*;
use crate::LinearOracle;
use crate::filter::tests::{any_candidate, any_filter, compiled, resolve};

/// Adding a filter, or removing one of those there are.
#[derive(Clone, Debug)]
enum Change {
    Insert(Box<crate::Filter>, i32),
    Remove(prop::sample::Index),
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (any_filter(), 0i32..3).prop_map(|(filter, priority)| Change::Insert(Box::new(filter), priority)),
        2 => any::<prop::sample::Index>().prop_map(Change::Remove),
    ]
}

proptest! {
    #[test]
    fn under_any_changes_it_finds_what_the_oracle_finds(
        changes in prop::collection::vec(any_change(), 0..200),
        candidates in prop::collection::vec(any_candidate(), 1..40),
    ) {
        let (mut table, mut oracle) = (TupleSpace::new(), LinearOracle::new());
        let mut ids = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            match change {
                Change::Insert(filter, priority) => {
                    let filter = filter.compile(resolve).unwrap();
                    let id = table.insert(filter, *priority, number);
                    prop_assert_eq!(id, oracle.insert(filter, *priority, number));
                    ids.push(id);
                }
                Change::Remove(_) if ids.is_empty() => {}
                Change::Remove(index) => {
                    let id = ids.swap_remove(index.index(ids.len()));
                    prop_assert_eq!(table.remove(id), oracle.remove(id));
                    prop_assert_eq!(table.remove(id), None);
                }
            }
            let candidate = &candidates[number % candidates.len()];
            prop_assert_eq!(table.lookup(candidate), oracle.lookup(candidate));
        }
        let expected: Vec<_> = candidates.iter().map(|candidate| oracle.lookup(candidate)).collect();
        let mut found = vec![None; candidates.len()];
        table.lookup_batch(&candidates, &mut found);
        prop_assert_eq!(found, expected);
        prop_assert_eq!(table.varying_mask(), oracle.varying_mask());
        prop_assert_eq!(table.len(), oracle.len());
        prop_assert_eq!(table.explain(&candidates[0]), oracle.explain(&candidates[0]));
    }
}

#[test]
fn a_filter_keeps_its_id_when_it_comes_from_another_table() {
    let mut old = LinearOracle::new();
    let ids = ["proto tcp", "src 10.0.0.0/8", "*"].map(|text| old.insert(compiled(text), 0, text));
    old.remove(ids[0]);
    let mut table = TupleSpace::new();
    for entry in old.entries() {
        assert!(table.restore(*entry) && !table.restore(*entry));
    }
    assert_eq!(table.next_id(), old.next_id());
    assert_eq!(table.remove(ids[1]), Some("src 10.0.0.0/8"));
    assert_eq!(table.remove(ids[2]), Some("*"));
    assert!(table.is_empty());
}
