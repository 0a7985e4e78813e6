//! Filter tables: find the best of many filters that match a packet.
//!
//! Of several matching filters, the one with the highest priority wins. Among equal priorities, the most
//! specific filter wins ([`Specificity`](crate::Specificity)); among equally specific filters, the oldest.

#[cfg(test)]
mod against_oracle;
#[expect(
    clippy::indexing_slicing,
    reason = "filters by their place in the list that is analysed; no packet is read"
)]
mod analysis;
#[expect(clippy::indexing_slicing, reason = "lanes by a number below their count")]
mod batch;
mod bounded;
#[expect(clippy::indexing_slicing, reason = "shapes by places in lists made of them; no packet is read")]
mod cover;
#[expect(
    clippy::indexing_slicing,
    reason = "nodes by links of the same tree, parts by a constant or a number below their count"
)]
mod cutting_tree;
#[expect(clippy::indexing_slicing, reason = "nodes, rules and edges by links of the same graph")]
mod dag;
#[expect(clippy::indexing_slicing, reason = "records by the groups that they are linked in")]
mod groups;
#[expect(clippy::indexing_slicing, reason = "words of a key by constants below their count")]
mod key;
mod linear_oracle;
mod memory_bound;
mod rank;
#[expect(clippy::indexing_slicing, reason = "the two ends of a range by constants")]
mod shape;
#[expect(clippy::indexing_slicing, reason = "tables, buckets and ways by numbers below their counts")]
mod tuple_space;
mod varying;
#[expect(
    clippy::indexing_slicing,
    reason = "shapes by places in lists made of them, protocols by a number below their count"
)]
mod witness;

use std::fmt;

use crate::{Candidate, CompiledFilter, Field};

pub use analysis::{Ambiguous, Analysis, Shadowed, analyse, overlap, shadowed_by};
pub use bounded::{BoundedTable, Moved};
pub use cutting_tree::CuttingTree;
pub use dag::{DagConfig, DagTable, Links};
pub use linear_oracle::LinearOracle;
pub use memory_bound::{MemoryBound, OverMemory};
pub use rank::Rank;
pub use tuple_space::TupleSpace;
pub use varying::VaryingBits;

/// Id of a filter in a table. Each new filter gets a greater id, and ids are never reused, so of two filters
/// the one with the smaller id is older.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FilterId(pub u64);

/// Filter in a table, with its priority and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<T> {
    /// Id of the filter.
    pub id: FilterId,
    /// Conditions of the filter.
    pub filter: CompiledFilter,
    /// Priority of the filter; the higher priority wins.
    pub priority: i32,
    /// Value that belongs to the filter, such as a binding.
    pub value: T,
}

impl<T> Entry<T> {
    /// Returns the rank of the filter. Among matching filters, the one with the smallest rank wins.
    pub fn rank(&self) -> Rank {
        Rank::new(self.priority, self.filter.specificity(), self.id)
    }
}

/// Reason that a lookup chose a filter, or didn't.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The filter matches, and no better filter matches.
    Chosen,
    /// The filter matches, but the chosen filter has a higher priority.
    LowerPriority,
    /// The filter matches, but the chosen filter has the same priority and is more specific in this field.
    /// Both are equal in all more significant fields.
    LessSpecific(Field),
    /// The filter matches, but the chosen filter has equal priority and specificity, and is older.
    Younger,
    /// The filter doesn't match: this is the first field whose condition the packet fails.
    Mismatch(Field),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("chosen"),
            Self::LowerPriority => f.write_str("matches, but has a lower priority than the chosen one"),
            Self::LessSpecific(field) => {
                write!(f, "matches, but is less specific in {field} than the chosen one")
            }
            Self::Younger => f.write_str("matches, but is younger than the chosen one, which is as specific"),
            Self::Mismatch(field) => write!(f, "does not match: {field} differs"),
        }
    }
}

/// Explanation of a lookup's result, for one filter of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explanation<'a, T> {
    /// The filter.
    pub entry: &'a Entry<T>,
    /// Reason that the lookup chose the filter, or didn't.
    pub outcome: Outcome,
}

/// Table of filters, each with a value.
///
/// Methods with `&self`, such as [`lookup`](Self::lookup), change nothing. So many threads may search a table
/// while no thread changes it.
pub trait FilterTable<T> {
    /// Adds a filter with a priority and a value, and returns its id. A higher priority wins.
    fn insert(&mut self, filter: CompiledFilter, priority: i32, value: T) -> FilterId {
        let id = self.next_id();
        self.restore(Entry { id, filter, priority, value });
        id
    }

    /// Adds a filter with the id that it has in another table. Later filters get greater ids. Returns
    /// `false`, and changes nothing, if the table has a filter of this id.
    fn restore(&mut self, entry: Entry<T>) -> bool;

    /// Returns the id that the next filter gets: greater than all ids so far.
    fn next_id(&self) -> FilterId;

    /// Removes a filter, and returns its value; `None` if the table has no filter of this id.
    fn remove(&mut self, id: FilterId) -> Option<T>;

    /// Returns the best filter that matches the packet; `None` if no filter matches.
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)>;

    /// Looks up many packets: sets `found[i]` to the result of [`lookup`](Self::lookup) for `candidates[i]`,
    /// up to the length of the shorter slice. Tables that interleave lookups are faster here.
    fn lookup_batch<'a>(&'a self, candidates: &[Candidate], found: &mut [Option<(FilterId, &'a T)>]) {
        for (candidate, found) in candidates.iter().zip(found) {
            *found = self.lookup(candidate);
        }
    }

    /// Returns an explanation for every filter, the best filter first.
    fn explain(&self, candidate: &Candidate) -> Vec<Explanation<'_, T>> {
        explain_in_order(in_order(self.entries()), candidate)
    }

    /// Iterates over all filters, in no particular order; [`in_order`] sorts them.
    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_>;

    /// Returns the number of filters.
    fn len(&self) -> usize;

    /// Whether the table has no filters.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the table in bytes, without the memory behind pointers in the values.
    fn memory(&self) -> usize;

    /// Returns the bits of [`Candidate::varying`] on which any filter of the table has a condition. If two
    /// packets have equal keys and equal values of these bits, lookups return the same result for both.
    fn varying_mask(&self) -> u32;
}

/// Returns filters sorted by rank, the best first.
pub fn in_order<'a, T>(entries: impl IntoIterator<Item = &'a Entry<T>>) -> Vec<&'a Entry<T>> {
    let mut sorted: Vec<_> = entries.into_iter().collect();
    sorted.sort_by_cached_key(|entry| entry.rank());
    sorted
}

/// Explains the lookup of a packet for each filter. `entries` are all filters of a table, sorted by rank.
pub fn explain_in_order<'a, T>(
    entries: impl IntoIterator<Item = &'a Entry<T>>,
    candidate: &Candidate,
) -> Vec<Explanation<'a, T>> {
    let mut chosen: Option<&Entry<T>> = None;
    let mut explain = |entry: &'a Entry<T>| match entry.filter.mismatch(candidate) {
        Some(field) => Outcome::Mismatch(field),
        None => outcome_beside(*chosen.get_or_insert(entry), entry),
    };
    entries.into_iter().map(|entry| Explanation { entry, outcome: explain(entry) }).collect()
}

/// Returns the outcome for `entry`, a matching filter. `chosen` is the best matching filter.
fn outcome_beside<T>(chosen: &Entry<T>, entry: &Entry<T>) -> Outcome {
    if chosen.id == entry.id {
        return Outcome::Chosen;
    }
    if chosen.priority != entry.priority {
        return Outcome::LowerPriority;
    }
    match chosen.filter.specificity().decided_by(&entry.filter.specificity()) {
        Some(field) => Outcome::LessSpecific(field),
        None => Outcome::Younger,
    }
}
