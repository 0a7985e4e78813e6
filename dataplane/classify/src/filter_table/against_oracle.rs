//! Test of any filter table: after every change it must find the same filters as the linear oracle.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::filter::tests::{any_filter, resolve};
use crate::{Candidate, Filter, FilterId, FilterTable, LinearOracle};

/// Addition of a filter, or removal of a filter in the table.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Insert(Box<Filter>, i32),
    Remove(Index),
}

pub(super) fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (any_filter(), 0i32..3).prop_map(|(filter, priority)| Change::Insert(Box::new(filter), priority)),
        2 => any::<Index>().prop_map(Change::Remove),
    ]
}

/// Applies changes to an empty table and to the linear oracle, and compares the results of both. Returns the
/// filters that are in the table at the end.
pub(super) fn change_and_compare(
    table: &mut impl FilterTable<usize>,
    changes: &[Change],
    candidates: &[Candidate],
) -> Result<Vec<FilterId>, TestCaseError> {
    let (mut oracle, mut ids) = (LinearOracle::new(), Vec::new());
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
    table.lookup_batch(candidates, &mut found);
    prop_assert_eq!(found, expected);
    prop_assert_eq!(table.varying_mask(), oracle.varying_mask());
    prop_assert_eq!(table.len(), oracle.len());
    prop_assert_eq!(table.explain(&candidates[0]), oracle.explain(&candidates[0]));
    Ok(ids)
}
