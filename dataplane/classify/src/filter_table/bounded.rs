//! Filter table with a memory limit. It starts as a table of a fast kind, whose memory may grow with the
//! product of the numbers of filters that overlap. At the limit, it moves its filters to a table of another
//! kind.

use std::fmt;

use millrace_units::count;

use crate::Candidate;

use super::memory_bound::{MemoryBound, OverMemory};
use super::{DagTable, Entry, Explanation, FilterId, FilterTable, TupleSpace};

/// Filter table of kind `B` with a memory limit. If a filter would exceed the limit, all filters move
/// permanently to a table of kind `O`. Filters keep their ids, and with them their ages, so lookups have the
/// same results before and after.
#[derive(Clone, Debug)]
pub struct BoundedTable<T, B = DagTable<T>, O = TupleSpace<T>> {
    table: Table<B, O>,
    next: FilterId,
    moved: Option<Moved>,
    values: std::marker::PhantomData<T>,
}

#[derive(Clone, Debug)]
enum Table<B, O> {
    Bounded(Box<B>),
    Other(Box<O>),
}

/// Record of the move of all filters to another table. Prints as a sentence for users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Name of the kind of table that held the filters before.
    pub from: &'static str,
    /// Filter whose addition would have exceeded the limit.
    pub by: FilterId,
    /// Memory of the table, and its limit.
    pub reason: OverMemory,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverMemory { bytes, limit, filters } = self.reason;
        write!(
            f,
            "the {} with {} takes {bytes} bytes, and one more filter would exceed its limit of {limit} \
             bytes: all filters moved to another type of filter table, and match as before",
            self.from,
            count(filters, "filter")
        )
    }
}

impl<T, B: Default, O> Default for BoundedTable<T, B, O> {
    fn default() -> Self {
        Self::new(B::default())
    }
}

impl<T, B, O> BoundedTable<T, B, O> {
    /// Creates a table that starts as `bounded`, which must be empty.
    pub fn new(bounded: B) -> Self {
        Self {
            table: Table::Bounded(Box::new(bounded)),
            next: FilterId(0),
            moved: None,
            values: std::marker::PhantomData,
        }
    }

    /// Returns the table with the memory limit; `None` after the move.
    #[inline]
    pub fn bounded(&self) -> Option<&B> {
        match &self.table {
            Table::Bounded(bounded) => Some(bounded),
            Table::Other(_) => None,
        }
    }

    /// Returns the record of the move; `None` before a move.
    pub fn moved(&self) -> Option<&Moved> {
        self.moved.as_ref()
    }
}

impl<T, B: MemoryBound<T> + Default, O: FilterTable<T> + Default> BoundedTable<T, B, O> {
    /// Moves all filters to the other table, the oldest first.
    fn leave(&mut self, by: FilterId, reason: OverMemory) {
        let left = std::mem::replace(&mut self.table, Table::Other(Box::default()));
        if let (Table::Bounded(bounded), Table::Other(other)) = (left, &mut self.table) {
            for entry in bounded.into_entries() {
                other.restore(entry);
            }
        }
        self.moved = Some(Moved { from: B::NAME, by, reason });
    }
}

/// Evaluates an expression on the table that holds the filters.
macro_rules! ask {
    ($self:ident, $table:ident => $answer:expr) => {
        match &$self.table {
            Table::Bounded($table) => $answer,
            Table::Other($table) => $answer,
        }
    };
}

impl<T, B: MemoryBound<T> + Default, O: FilterTable<T> + Default> FilterTable<T> for BoundedTable<T, B, O> {
    fn restore(&mut self, entry: Entry<T>) -> bool {
        let id = entry.id;
        let mut entry = Some(entry);
        let mut restored = false;
        if let Table::Bounded(bounded) = &mut self.table {
            match bounded.try_restore(&mut entry) {
                Ok(done) => restored = done,
                Err(reason) => self.leave(id, reason),
            }
        }
        if let (Table::Other(other), Some(entry)) = (&mut self.table, entry) {
            restored = other.restore(entry);
        }
        if restored {
            self.next = self.next.max(FilterId(id.0 + 1));
        }
        restored
    }

    fn next_id(&self) -> FilterId {
        self.next
    }

    fn remove(&mut self, id: FilterId) -> Option<T> {
        match &mut self.table {
            Table::Bounded(bounded) => bounded.remove(id),
            Table::Other(other) => other.remove(id),
        }
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)> {
        ask!(self, table => table.lookup(candidate))
    }

    fn lookup_batch<'a>(&'a self, candidates: &[Candidate], found: &mut [Option<(FilterId, &'a T)>]) {
        ask!(self, table => table.lookup_batch(candidates, found));
    }

    fn explain(&self, candidate: &Candidate) -> Vec<Explanation<'_, T>> {
        ask!(self, table => table.explain(candidate))
    }

    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_> {
        ask!(self, table => table.entries())
    }

    fn len(&self) -> usize {
        ask!(self, table => table.len())
    }

    fn memory(&self) -> usize {
        ask!(self, table => table.memory())
    }

    fn varying_mask(&self) -> u32 {
        ask!(self, table => table.varying_mask())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::filter::tests::{any_candidate, any_filter, compiled, resolve};
    use crate::{CuttingTree, DagConfig, LinearOracle};

    fn small<T>(max_bytes: usize) -> DagTable<T> {
        DagTable::new(DagConfig { max_bytes, ..DagConfig::default() })
    }

    /// Returns a filter with a source prefix and destination ports, or one with a destination prefix and
    /// source ports. A filter of one kind may overlap filters of the other kind.
    fn ambiguous(number: u32) -> String {
        let (net, length) = (number / 2 % 256, 16 + number % 9);
        let (host, ports) = (number % 251, number * 37 % 60_000);
        if number.is_multiple_of(2) {
            format!("src 10.{net}.0.0/{length} dport {ports}-{}", ports + 5000)
        } else {
            format!("dst 11.{net}.{host}.0/24 sport {ports}-{}", ports + 5000)
        }
    }

    #[test]
    fn ambiguous_filters_make_the_table_move_and_match_as_before() {
        let limit = 4 << 20;
        let mut table: BoundedTable<u32> = BoundedTable::new(small(limit));
        let mut oracle = LinearOracle::new();
        for number in 0..3000 {
            let filter = compiled(&ambiguous(number));
            assert_eq!(table.insert(filter, 0, number), oracle.insert(filter, 0, number));
            if table.moved().is_none() {
                assert!(table.memory() <= limit, "{}", table.memory());
            }
        }
        let moved = *table.moved().unwrap();
        assert_eq!(moved.reason.limit, limit);
        assert_eq!(moved.reason.filters as u64, moved.by.0);
        assert!(moved.reason.bytes <= limit);
        println!("{moved}");
        assert!(moved.to_string().contains("4194304 bytes"), "{moved}");
        let mut table_ids: Vec<_> = table.entries().map(|entry| entry.id).collect();
        table_ids.sort_unstable();
        assert_eq!(table_ids, (0..3000).map(FilterId).collect::<Vec<_>>());
    }

    #[test]
    fn the_id_of_a_removed_filter_is_not_given_again_after_the_move() {
        let mut table: BoundedTable<u32> = BoundedTable::new(small(4000));
        let ids = [(); 2].map(|()| table.insert(compiled("*"), 0, 0));
        assert_eq!(table.remove(ids[1]), Some(0));
        let mut number = 0;
        while table.moved().is_none() {
            number += 1;
            table.insert(compiled(&format!("src 10.0.0.{number}")), 0, number);
        }
        assert_eq!(table.moved().unwrap().by, FilterId(1 + u64::from(number)));
        assert_eq!(table.next_id(), FilterId(2 + u64::from(number)));
        assert!(!table.restore(Entry { id: ids[0], filter: compiled("*"), priority: 0, value: 9 }));
        assert!(table.restore(Entry { id: ids[1], filter: compiled("*"), priority: 0, value: 9 }));
    }

    /// Compares a table with the linear oracle through changes that reach the memory limit.
    fn finds_what_the_linear_table_finds<B: MemoryBound<usize> + Default>(
        bounded: B,
        steps: &[(crate::Filter, i32, Option<Index>)],
        candidates: &[Candidate],
    ) -> Result<(), TestCaseError> {
        let mut table: BoundedTable<usize, B, LinearOracle<usize>> = BoundedTable::new(bounded);
        let mut oracle = LinearOracle::new();
        for (number, (filter, priority, removed)) in steps.iter().enumerate() {
            let filter = filter.compile(resolve).unwrap();
            prop_assert_eq!(
                table.insert(filter, *priority, number),
                oracle.insert(filter, *priority, number)
            );
            if let Some(removed) = removed {
                let id = FilterId(removed.index(number + 1) as u64);
                prop_assert_eq!(table.remove(id), oracle.remove(id));
            }
            for candidate in candidates {
                prop_assert_eq!(table.lookup(candidate), oracle.lookup(candidate));
                prop_assert_eq!(table.explain(candidate), oracle.explain(candidate));
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn moving_table_matches_like_the_linear_table(
            max_bytes in 1000usize..20_000,
            steps in prop::collection::vec((any_filter(), 0i32..3, any::<Option<Index>>()), 1..40),
            candidates in prop::collection::vec(any_candidate(), 10),
        ) {
            finds_what_the_linear_table_finds(small(max_bytes), &steps, &candidates)?;
            finds_what_the_linear_table_finds(CuttingTree::new(max_bytes), &steps, &candidates)?;
        }
    }

    #[test]
    fn cutting_tree_above_its_bound_reports_it_and_matches_as_before() {
        let mut table: BoundedTable<u32, CuttingTree<u32>> = BoundedTable::new(CuttingTree::new(1 << 20));
        let mut oracle = LinearOracle::new();
        for number in 0..20_000 {
            let filter = compiled(&ambiguous(number));
            assert_eq!(table.insert(filter, 0, number), oracle.insert(filter, 0, number));
            if table.moved().is_some() {
                break;
            }
            assert!(table.memory() <= 1 << 20);
        }
        let moved = table.moved().unwrap().to_string();
        assert!(moved.starts_with("the cutting tree with ") && moved.contains("1048576 bytes"), "{moved}");
        assert_eq!(table.len(), oracle.len());
    }
}
