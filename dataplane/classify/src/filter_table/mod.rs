//! Tables of filters: which of many a packet belongs to.
//!
//! Of several filters that match, the one of highest priority wins; among equals the most specific
//! ([`Specificity`](crate::Specificity)); among those the oldest.

mod linear_oracle;

use std::fmt;

use crate::{Candidate, CompiledFilter, Field};

pub use linear_oracle::LinearOracle;

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
pub trait FilterTable<T> {
    /// Adds a filter; the higher priority wins.
    fn insert(&mut self, filter: CompiledFilter, priority: i32, value: T) -> FilterId;

    /// Removes a filter and gives its value back; `None` when there is none of that id.
    fn remove(&mut self, id: FilterId) -> Option<T>;

    /// The best of the filters that match the packet.
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)>;

    /// Every filter, best first, with the reason why it was chosen or not.
    fn explain(&self, candidate: &Candidate) -> Vec<Explanation<'_, T>>;

    /// How many filters there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bits of [`Candidate::varying`] that any of the filters looks at: two packets of equal keys that agree in them
    /// have the same lookup.
    fn varying_mask(&self) -> u32;
}
