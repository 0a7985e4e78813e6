//! The tables that are measured.

use std::time::{Duration, Instant};

use millrace_classify::prefix_match::{Accesses, Count};
use millrace_classify::{
    Candidate, CompiledFilter, DagConfig, DagTable, FilterTable, LinearOracle, TupleSpace,
};

/// How long a table may take to be filled. What takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(10);

/// A filter with its priority.
pub(super) type Ranked = (CompiledFilter, i32);

/// A table that tells what a lookup reads. Its values are the numbers of the filters, from 1.
pub(super) trait Table: FilterTable<u32> + Send + Sync {
    /// How many places in memory a lookup reads.
    fn accesses(&self, candidate: &Candidate) -> u32;

    /// Adds a filter; `false` when there is no room for it.
    fn add(&mut self, filter: CompiledFilter, priority: i32, number: u32) -> bool {
        self.insert(filter, priority, number);
        true
    }
}

impl Table for TupleSpace<u32> {
    fn accesses(&self, candidate: &Candidate) -> u32 {
        let mut accesses = Accesses::default();
        self.lookup_counted(candidate, &mut accesses);
        accesses.0
    }
}

impl Table for DagTable<u32> {
    fn accesses(&self, candidate: &Candidate) -> u32 {
        let mut accesses = Accesses::default();
        self.lookup_counted(candidate, &mut accesses);
        accesses.0
    }

    fn add(&mut self, filter: CompiledFilter, priority: i32, number: u32) -> bool {
        self.try_insert(filter, priority, number).is_ok()
    }
}

impl Table for LinearOracle<u32> {
    /// The filters that are tried.
    fn accesses(&self, candidate: &Candidate) -> u32 {
        let mut accesses = Accesses::default();
        let mut tried = self.iter().inspect(|_| accesses.access(1));
        let _ = tried.find(|entry| entry.filter.matches(candidate));
        drop(tried);
        accesses.0
    }
}

/// A kind of table.
pub(super) struct Kind {
    pub name: &'static str,
    make: fn() -> Box<dyn Table>,
    /// Whether sets above 10,000 filters are worth the time.
    pub large: bool,
}

/// All kinds; the first is the default table, which the promises are about.
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "tuple space", make: || Box::new(TupleSpace::new()), large: true },
    Kind { name: "DAG", make: || Box::new(DagTable::new(DagConfig::default())), large: true },
    Kind { name: "linear", make: || Box::new(LinearOracle::new()), large: false },
];

/// Why a table was not filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unfit {
    /// It may not take so much memory; it took so many filters.
    Memory(usize),
    /// It takes too long; it took so many filters.
    Time(usize),
}

impl Kind {
    /// A table of these filters, and how long it took to fill.
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
                assert!(tables.iter().all(|(table, _)| table.accesses(&packet) > 0));
            }
            assert!(in_order(tables[0].0.entries()).iter().map(|entry| entry.value).eq(1..=1000));
        }
    }
}
