//! Tests of the DAG, compared with the linear oracle.

mod accesses;
mod bound;
mod linked;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::LinearOracle;
use crate::filter::Filter;
use crate::filter::tests::{any_candidate, any_filter, resolve};

/// Change of both the DAG and the linear oracle.
#[derive(Clone, Debug)]
enum Step {
    Insert(Box<Filter>, i32),
    Remove(Index),
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let insert =
        (any_filter(), 0i32..3).prop_map(|(filter, priority)| Step::Insert(Box::new(filter), priority));
    let remove = any::<Index>().prop_map(Step::Remove);
    prop::collection::vec(prop_oneof![5 => insert, 2 => remove], 1..most)
}

fn any_config() -> impl Strategy<Value = DagConfig> {
    (prop::sample::select(PrefixMatchKind::ALL.to_vec()), 1usize..6)
        .prop_map(|(addresses, leaf_filters)| DagConfig { addresses, leaf_filters, ..DagConfig::default() })
}

fn same_answers(
    dag: &DagTable<usize>,
    oracle: &LinearOracle<usize>,
    candidates: &[Candidate],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(dag.len(), oracle.len());
    prop_assert_eq!(dag.varying_mask(), oracle.varying_mask());
    for candidate in candidates {
        prop_assert_eq!(dag.lookup(candidate), oracle.lookup(candidate), "{:?}", candidate);
        prop_assert_eq!(dag.explain(candidate), oracle.explain(candidate));
    }
    Ok(())
}

proptest! {
    #[test]
    fn dag_matches_like_the_linear_table(
        config in any_config(),
        steps in steps(30),
        candidates in prop::collection::vec(any_candidate(), 20),
    ) {
        let (mut dag, mut oracle) = (DagTable::new(config), LinearOracle::new());
        let mut ids = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Insert(filter, priority) => {
                    let filter = filter.compile(resolve).unwrap();
                    let id = dag.insert(filter, *priority, number);
                    prop_assert_eq!(oracle.insert(filter, *priority, number), id);
                    ids.push(id);
                }
                Step::Remove(index) if !ids.is_empty() => {
                    let id = *index.get(&ids);
                    prop_assert_eq!(dag.remove(id), oracle.remove(id));
                }
                Step::Remove(_) => {}
            }
            same_answers(&dag, &oracle, &candidates)?;
        }
        for id in ids {
            dag.remove(id);
        }
        prop_assert_eq!(dag.nodes(), 0, "nothing refers to any node any more");
        prop_assert!(candidates.iter().all(|candidate| dag.lookup(candidate).is_none()));
    }
}
