//! Filter tables of the benchmark.

use std::time::{Duration, Instant};

use millrace_classify::prefix_match::Count;
use millrace_classify::{
    Candidate, CompiledFilter, CuttingTree, DagConfig, DagTable, FilterTable, LinearOracle, MemoryBound,
    TupleSpace,
};

use thiserror::Error;

use super::caches::Caches;

/// Time limit to fill a table. A table that exceeds it is left out.
const PATIENCE: Duration = Duration::from_secs(20);

/// Compiled filter with its priority.
pub(super) type Ranked = (CompiledFilter, i32);

/// Filter table that can report the memory reads of a lookup. The table's values are the numbers of the
/// filters, from 1.
pub(super) trait Table: FilterTable<u32> + Send + Sync {
    /// Looks up a packet and reports the reads to the caches.
    fn look(&self, candidate: &Candidate, caches: &mut Caches);

    /// Adds a filter; returns `false` if the table is full.
    fn add(&mut self, filter: CompiledFilter, priority: i32, number: u32) -> bool {
        self.insert(filter, priority, number);
        true
    }
}

impl Table for TupleSpace<u32> {
    fn look(&self, candidate: &Candidate, caches: &mut Caches) {
        self.lookup_counted(candidate, caches);
    }
}

impl Table for CuttingTree<u32> {
    fn look(&self, candidate: &Candidate, caches: &mut Caches) {
        self.lookup_counted(candidate, caches);
    }

    fn add(&mut self, filter: CompiledFilter, priority: i32, number: u32) -> bool {
        self.try_insert(filter, priority, number).is_ok()
    }
}

impl Table for DagTable<u32> {
    fn look(&self, candidate: &Candidate, caches: &mut Caches) {
        self.lookup_counted(candidate, caches);
    }

    fn add(&mut self, filter: CompiledFilter, priority: i32, number: u32) -> bool {
        self.try_insert(filter, priority, number).is_ok()
    }
}

impl Table for LinearOracle<u32> {
    /// Reports the entries that the lookup tries.
    fn look(&self, candidate: &Candidate, caches: &mut Caches) {
        let mut tried = self.iter().inspect(|entry| caches.read(*entry));
        let _ = tried.find(|entry| entry.filter.matches(candidate));
    }
}

/// Kind of filter table, with its constructor.
pub(super) struct Kind {
    pub name: &'static str,
    make: fn() -> Box<dyn Table>,
}

/// All kinds of filter table. The first is the router's default; only its figures have promised limits.
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "tuple space", make: || Box::new(TupleSpace::new()) },
    Kind { name: "cutting tree", make: || Box::new(CuttingTree::default()) },
    Kind { name: "DAG", make: || Box::new(DagTable::new(DagConfig::default())) },
    Kind { name: "linear", make: || Box::new(LinearOracle::new()) },
];

/// Reason why a table could not take all filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum Unfit {
    /// The table reached its memory limit. The value is the number of filters in the table.
    #[error("the table's memory is full with {0} filters")]
    Memory(usize),
    /// The table reached the time limit. The value is the number of filters in the table.
    #[error("the table takes only {0} filters within the time limit")]
    Time(usize),
}

impl Kind {
    /// Fills a new table with filters. Returns the table, and the time to fill it.
    pub fn fill(&self, filters: &[Ranked]) -> Result<(Box<dyn Table>, Duration), Unfit> {
        let mut table = (self.make)();
        let start = Instant::now();
        for (number, (filter, priority)) in (1..).zip(filters) {
            if !table.add(*filter, *priority, number) {
                return Err(Unfit::Memory(table.len()));
            }
            if number % 64 == 0 && start.elapsed() > PATIENCE {
                return Err(Unfit::Time(table.len()));
            }
        }
        Ok((table, start.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use millrace_packet::Family;
    use millrace_testkit::classbench::{Popularity, Style, generate, trace};

    use millrace_classify::in_order;

    use super::*;

    #[test]
    fn all_kinds_find_the_same() {
        for (style, family) in [(Style::Acl, Family::V4), (Style::Fw, Family::V6), (Style::Ipc, Family::V4)] {
            let set = generate(style, family, 1000, 3);
            let filters: Vec<Ranked> = set
                .filters
                .iter()
                .enumerate()
                .map(|(place, filter)| (filter.compile(|_| None).unwrap(), set.priority(place)))
                .collect();
            let tables: Vec<_> = KINDS.iter().filter_map(|kind| kind.fill(&filters).ok()).collect();
            assert!(tables.len() >= 2);
            for packet in trace(&set, Popularity::Uniform, 2000, 4) {
                let found = |table: &dyn Table| table.lookup(&packet).map(|(_, number)| *number);
                let expected = found(&*tables[0].0);
                assert!(expected.is_some() && tables.iter().all(|(table, _)| found(&**table) == expected));
                for (table, _) in &tables {
                    let mut caches = Caches::new();
                    table.look(&packet, &mut caches);
                    let counts = caches.take_counts();
                    assert!(counts.accesses > 0 && counts.first_misses >= counts.last_misses, "{counts:?}");
                    assert!(counts.last_misses > 0);
                }
            }
            assert!(in_order(tables[0].0.entries()).iter().map(|entry| entry.value).eq(1..=1000));
        }
    }
}
