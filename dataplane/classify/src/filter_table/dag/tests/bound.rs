//! Tests of the memory limit: a refused filter leaves the table unchanged.

use super::*;
use crate::CompiledFilter;
use crate::filter::tests::compiled;

proptest! {
    /// Adds filters, some of them under a limit that is too small. Refused filters must not be in the table.
    #[test]
    fn refused_filter_leaves_the_table_unchanged(
        config in any_config(),
        slack in 0usize..3000,
        steps in steps(30),
        candidates in prop::collection::vec(any_candidate(), 20),
    ) {
        let (mut dag, mut oracle) = (DagTable::new(config), LinearOracle::new());
        let mut refused = 0;
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Insert(filter, priority) => {
                    let filter = filter.compile(resolve).unwrap();
                    dag.max_bytes = dag.memory() + if number % 2 == 0 { slack } else { 1 << 20 };
                    let entry = Entry { id: dag.next_id(), filter, priority: *priority, value: number };
                    match dag.try_restore(&mut Some(entry)) {
                        Ok(added) => {
                            prop_assert!(added && dag.memory() <= dag.max_bytes);
                            oracle.restore(entry);
                        }
                        Err(OverMemory { limit, filters, .. }) => {
                            prop_assert_eq!((limit, filters), (dag.max_bytes, oracle.len()));
                            refused += 1;
                        }
                    }
                }
                Step::Remove(index) => {
                    let id = FilterId(index.index(number + 1) as u64);
                    prop_assert_eq!(dag.remove(id), oracle.remove(id));
                }
            }
            same_answers(&dag, &oracle, &candidates)?;
        }
        prop_assert!(refused <= steps.len());
        for id in oracle.entries().map(|entry| entry.id) {
            dag.remove(id);
        }
        prop_assert_eq!(dag.nodes(), 0, "nothing refers to any node any more");
    }
}

/// Filter that overlaps most other filters of this kind, without covering them.
fn crossing(number: u16) -> CompiledFilter {
    let ports = format!("{}-{}", number, 30_000 + number);
    let net = format!("{}.0.0.0/{}", if number.is_multiple_of(2) { 10 } else { 11 }, 8 + number % 8);
    compiled(&match number % 3 {
        0 => format!("src {net} dport {ports}"),
        1 => format!("dst {net} sport {ports}"),
        _ => format!("sport {ports} dport {ports}"),
    })
}

#[test]
fn table_at_its_bound_reports_it_and_continues() {
    let max_bytes = 1 << 20;
    let mut table = DagTable::new(DagConfig { max_bytes, ..DagConfig::default() });
    let mut ids = Vec::new();
    let error = loop {
        let number = ids.len() as u16;
        match table.try_insert(crossing(number), 0, number) {
            Ok(id) => ids.push(id),
            Err(error) => break error,
        }
    };
    println!("{error}");
    assert_eq!((error.limit, error.filters), (max_bytes, ids.len()));
    assert!(error.bytes <= max_bytes, "{error}");
    assert!(error.to_string().contains("the existing filters stay in force"), "{error}");
    let added = ids.len();
    assert_eq!(table.len(), added);
    for id in ids.split_off(added / 2) {
        table.remove(id);
    }
    table.try_insert(crossing(added as u16), 0, 0).unwrap();
    assert_eq!(table.len(), added / 2 + 1);
}
