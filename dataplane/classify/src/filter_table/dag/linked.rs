//! Pointers from one gate's leaves into the next gate's DAG (*Router Plugins*, section 5.1.2).
//!
//! Gates often have the same filters, or similar ones. A packet that a filter of one gate has matched is known to lie in
//! that filter's region; where the next gate's DAG leads all packets of the region the same way, that way need not be
//! walked again. So each filter points to the place in the next gate's DAG up to which its packets go together: for a
//! flow filter that is the way's end, for one of all packets the root. Where nothing matched, the next gate's walk
//! begins at the root.

use crate::prefix_match::{Count, NotCounted};
use crate::{Candidate, CompiledFilter, FilterId};

use super::DagTable;
use super::edges::Target;
use super::rule::{Rule, Seen};

/// Where in a DAG to begin, for each filter of another table.
///
/// Pointers are of one state of the DAG: with each change of it they have to be made anew, and are not to be used before.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// By the number of the filter.
    starts: Vec<Target>,
    filters: usize,
    ahead: usize,
}

impl Links {
    /// Pointers into `after` for some filters, each with a number of its own, from which the memory grows. It takes a short
    /// walk for each.
    pub fn new<'a, T>(
        after: &DagTable<T>,
        filters: impl Iterator<Item = (usize, &'a CompiledFilter)>,
    ) -> Self {
        let (mut links, root) = (Self::default(), after.graph.root);
        for (number, filter) in filters {
            let start = after.graph.reach(&Rule::new(FilterId(0), filter));
            if links.starts.len() <= number {
                links.starts.resize(number + 1, root);
            }
            links.starts[number] = start;
            links.filters += 1;
            links.ahead += usize::from(start != root);
        }
        links
    }

    /// How many filters point into the DAG.
    pub fn filters(&self) -> usize {
        self.filters
    }

    /// How many of them point further than to the root, and so spare a part of the walk.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// Bytes that they take.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.starts.capacity() * size_of::<Target>()
    }
}

impl<T> DagTable<T> {
    /// [`lookup`](crate::FilterTable::lookup) for a packet that the filter of the number `before` has matched. The links
    /// must be of the table as it is.
    #[inline]
    pub fn lookup_linked(
        &self,
        links: &Links,
        before: Option<usize>,
        candidate: &Candidate,
    ) -> Option<(FilterId, &T)> {
        self.lookup_linked_counted(links, before, candidate, &mut NotCounted)
    }

    /// The same, telling of each access to memory, as [`lookup_counted`](Self::lookup_counted) does; one to a pointer is
    /// one.
    #[inline]
    pub fn lookup_linked_counted(
        &self,
        links: &Links,
        before: Option<usize>,
        candidate: &Candidate,
        count: &mut impl Count,
    ) -> Option<(FilterId, &T)> {
        let start = before.and_then(|number| links.starts.get(number));
        if let Some(start) = start {
            count.read(start);
        }
        let from = start.copied().unwrap_or(self.graph.root);
        let slot = self.graph.find(from, &Seen::new(candidate), count)?;
        count.read(&self.entries[slot as usize]);
        self.found(slot)
    }
}
