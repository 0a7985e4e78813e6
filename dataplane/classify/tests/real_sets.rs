//! Tests of the fast filter tables, compared with the linear oracle on realistic sets of filters: those of
//! ClassBench if available, and generated ones.

use millrace_classify::{
    Candidate, CompiledFilter, CuttingTree, FilterId, FilterTable, LinearOracle, TupleSpace, analyse,
    in_order,
};
use millrace_packet::Family;
use millrace_testkit::classbench::{FilterSet, Popularity, Style, generate, read, trace};

/// Number of packets to look up, most of which match a filter.
const PACKETS: usize = 1500;

fn sets() -> Vec<FilterSet> {
    let mut sets = Vec::new();
    for (family, size) in
        ["acl1", "fw1", "ipc1"].into_iter().flat_map(|family| [(family, "1k"), (family, "10k")])
    {
        match read(family, size) {
            Some(set) => sets.push(set),
            None => println!("generated sets only: no file {family}_{size} of ClassBench"),
        }
    }
    for (style, family) in Style::ALL.into_iter().flat_map(|style| [(style, Family::V4), (style, Family::V6)])
    {
        sets.push(generate(style, family, 3000, 11));
    }
    sets
}

fn filters(set: &FilterSet) -> Vec<CompiledFilter> {
    set.filters.iter().map(|filter| filter.compile(|_| None).unwrap()).collect()
}

/// Fills a table: with decreasing priorities if `falling` is set; otherwise with equal priorities, so
/// specificity and age decide.
fn fill<F: FilterTable<usize>>(mut table: F, set: &FilterSet, falling: bool) -> F {
    fill_all(&mut table, set, falling);
    table
}

fn fill_all(table: &mut dyn FilterTable<usize>, set: &FilterSet, falling: bool) {
    for (place, filter) in filters(set).into_iter().enumerate() {
        table.insert(filter, if falling { set.priority(place) } else { 0 }, place);
    }
}

/// Returns an empty table of each kind that suits large sets.
fn tables() -> [(&'static str, Box<dyn FilterTable<usize>>); 2] {
    [("tuple space", Box::new(TupleSpace::new())), ("cutting tree", Box::new(CuttingTree::default()))]
}

fn assert_same(
    table: &dyn FilterTable<usize>,
    oracle: &LinearOracle<usize>,
    packets: &[Candidate],
    what: &str,
) {
    let expected: Vec<_> = packets.iter().map(|packet| oracle.lookup(packet)).collect();
    let mut found = vec![None; packets.len()];
    table.lookup_batch(packets, &mut found);
    assert!(found == expected, "{what}: batches");
    for (packet, expected) in packets.iter().zip(expected) {
        assert_eq!(table.lookup(packet), expected, "{what}: {packet:?}");
    }
}

#[test]
fn real_and_generated_sets_are_searched_as_the_oracle_does() {
    for set in sets() {
        for falling in [true, false] {
            let oracle = fill(LinearOracle::new(), &set, falling);
            for (name, mut table) in tables() {
                fill_all(&mut *table, &set, falling);
                let what = format!("{}, {name}, falling priorities: {falling}", set.name);
                assert_same(&*table, &oracle, &trace(&set, Popularity::Uniform, PACKETS, 3), &what);
                assert_same(&*table, &oracle, &trace(&set, Popularity::Zipf, PACKETS, 4), &what);
            }
        }
    }
}

#[test]
fn a_set_that_comes_and_goes_is_searched_as_the_oracle_does() {
    for set in sets() {
        for (name, mut table) in tables() {
            comes_and_goes(&set, name, &mut *table);
        }
    }
}

fn comes_and_goes(set: &FilterSet, name: &str, table: &mut dyn FilterTable<usize>) {
    let mut oracle = fill(LinearOracle::new(), set, true);
    fill_all(table, set, true);
    let packets = trace(set, Popularity::Uniform, PACKETS / 3, 5);
    let ids: Vec<FilterId> = in_order(oracle.entries()).iter().map(|entry| entry.id).collect();
    // Remove most filters in an irregular order, then add half of them again.
    let gone: Vec<_> = (0..ids.len() * 9 / 10).map(|turn| ids[turn * 7919 % ids.len()]).collect();
    let mut values = Vec::new();
    for id in &gone {
        let value = table.remove(*id);
        assert_eq!(value, oracle.remove(*id));
        values.extend(value);
    }
    assert_same(table, &oracle, &packets, &format!("{}, {name}, mostly gone", set.name));
    let compiled = filters(set);
    for place in values.iter().step_by(2) {
        let priority = set.priority(*place);
        assert_eq!(
            table.insert(compiled[*place], priority, *place),
            oracle.insert(compiled[*place], priority, *place)
        );
    }
    assert_same(table, &oracle, &packets, &format!("{}, {name}, come again", set.name));
    assert_eq!(table.len(), oracle.len());
}

#[test]
fn filters_reported_as_shadowed_never_win_in_a_trace() {
    for set in sets().into_iter().filter(|set| set.filters.len() < 4000) {
        let table = fill(TupleSpace::new(), &set, true);
        let found = analyse(table.entries(), 10, |entry| entry.id);
        // All filters have different priorities, so no two filters are ambiguous.
        assert_eq!(found.ambiguous_pairs, 0);
        for packet in trace(&set, Popularity::Uniform, 20_000, 6) {
            let winner = table.lookup(&packet).map(|(id, _)| id);
            assert!(found.shadowed.iter().all(|shadowed| Some(shadowed.filter) != winner));
        }
    }
}
