//! Tables of filters: which of many a packet belongs to.
//!
//! Of several filters that match, the one of highest priority wins; among equals the most specific
//! ([`Specificity`](crate::Specificity)); among those the oldest.

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

pub use analysis::{Ambiguous, Analysis, Shadowed, analyse, shadowed_by};
pub use bounded::{BoundedTable, Moved};
pub use cutting_tree::CuttingTree;
pub use dag::{DagConfig, DagTable, Links};
pub use linear_oracle::LinearOracle;
pub use memory_bound::{MemoryBound, OverMemory};
pub use rank::Rank;
pub use tuple_space::TupleSpace;
pub use varying::VaryingBits;

/// A filter in a table. Ids grow with age and are never used again, so that the smaller is the older.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FilterId(pub u64);

/// A filter in a table with what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<T> {
    /// Its id.
    pub id: FilterId,
    /// The filter.
    pub filter: CompiledFilter,
    /// Higher wins.
    pub priority: i32,
    /// What the table was given with the filter.
    pub value: T,
}

impl<T> Entry<T> {
    /// Where the filter stands: of those that match, the one with the smallest rank wins.
    pub fn rank(&self) -> Rank {
        Rank::new(self.priority, self.filter.specificity(), self.id)
    }
}

/// Why a filter was chosen for a packet or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It matches, and nothing that matches comes before it.
    Chosen,
    /// It matches, and the chosen one has a higher priority.
    LowerPriority,
    /// It matches, and the chosen one is more specific in this field, being equal in those before.
    LessSpecific(Field),
    /// It matches, and the chosen one, equally specific, is older.
    Younger,
    /// It doesn't match: this is the first field whose condition does not hold.
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

/// What became of one filter in a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explanation<'a, T> {
    /// The filter.
    pub entry: &'a Entry<T>,
    /// Why it was chosen or not.
    pub outcome: Outcome,
}

/// A table of filters, each with a value.
///
/// A table is changed by its owner alone; [`lookup`](Self::lookup) and the others that take `&self` change nothing in
/// it, so that a table that isn't being changed may be searched by many threads.
pub trait FilterTable<T> {
    /// Adds a filter; the higher priority wins.
    fn insert(&mut self, filter: CompiledFilter, priority: i32, value: T) -> FilterId {
        let id = self.next_id();
        self.restore(Entry { id, filter, priority, value });
        id
    }

    /// Adds a filter that had its id in another table. Ids given later are greater. `false`, and nothing is changed,
    /// when there is a filter of that id.
    fn restore(&mut self, entry: Entry<T>) -> bool;

    /// The id that the next filter gets: greater than all that the table has seen.
    fn next_id(&self) -> FilterId;

    /// Removes a filter and gives its value back; `None` when there is none of that id.
    fn remove(&mut self, id: FilterId) -> Option<T>;

    /// The best of the filters that match the packet.
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)>;

    /// Looks up many packets: `found[i]` becomes what [`lookup`](Self::lookup) finds for `candidates[i]`, up to the
    /// length of the shorter. Tables that can keep several lookups under way at once are faster here.
    fn lookup_batch<'a>(&'a self, candidates: &[Candidate], found: &mut [Option<(FilterId, &'a T)>]) {
        for (candidate, found) in candidates.iter().zip(found) {
            *found = self.lookup(candidate);
        }
    }

    /// Every filter, best first, with the reason why it was chosen or not.
    fn explain(&self, candidate: &Candidate) -> Vec<Explanation<'_, T>> {
        explain_in_order(in_order(self.entries()), candidate)
    }

    /// Every filter, in no particular order; [`in_order`] sorts them.
    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_>;

    /// How many filters there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the table takes, those behind the values not counted.
    fn memory(&self) -> usize;

    /// The bits of [`Candidate::varying`] that any of the filters looks at: two packets of equal keys that agree in them
    /// have the same lookup.
    fn varying_mask(&self) -> u32;
}

/// Filters sorted into the order in which they win.
pub fn in_order<'a, T>(entries: impl IntoIterator<Item = &'a Entry<T>>) -> Vec<&'a Entry<T>> {
    let mut sorted: Vec<_> = entries.into_iter().collect();
    sorted.sort_by_cached_key(|entry| entry.rank());
    sorted
}

/// What becomes of each filter for a packet; `entries` are all of a table in the order in which they win.
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

/// The outcome of `entry`, which matches, when `chosen` is the first that does.
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
