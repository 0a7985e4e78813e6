//! Tests of tuple space search, compared with the linear oracle.

use proptest::prelude::*;

use super::*;
use crate::LinearOracle;
use crate::filter::tests::{any_candidate, compiled};
use crate::filter_table::against_oracle::{any_change, change_and_compare};

proptest! {
    #[test]
    fn table_matches_like_the_oracle_under_any_changes(
        changes in prop::collection::vec(any_change(), 0..200),
        candidates in prop::collection::vec(any_candidate(), 1..40),
    ) {
        change_and_compare(&mut TupleSpace::new(), &changes, &candidates)?;
    }
}

#[test]
fn filter_keeps_its_id_when_moved_from_another_table() {
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
