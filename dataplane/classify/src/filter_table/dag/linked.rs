//! Links from one gate's filters into the next gate's DAG (*Router Plugins*, section 5.1.2).
//!
//! Gates often have the same filters, or similar ones. A packet that matched a filter lies in that filter's
//! region. If the next gate's DAG leads all packets of the region along one path, its lookup can skip that
//! path. So each filter links to the node of the next gate's DAG up to which its packets share a path. The
//! link of a flow filter leads to the end of the path, the link of a filter for all packets to the root.
//! After a lookup without a match, the next gate's lookup starts at the root.

use crate::prefix_match::{Count, NotCounted};
use crate::{Candidate, CompiledFilter, FilterId};

use super::DagTable;
use super::edges::Target;
use super::rule::{Rule, Seen};

/// Start targets in a DAG for the filters of another table.
///
/// Links belong to one state of the DAG. After each change of the DAG they must be rebuilt before their next
/// use.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// Start targets by filter number.
    starts: Vec<Target>,
    filters: usize,
    ahead: usize,
}

impl Links {
    /// Makes links into `after` for filters with distinct numbers. Memory grows with the largest number; each
    /// filter takes one short walk.
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

    /// Returns the number of filters with a link.
    pub fn filters(&self) -> usize {
        self.filters
    }

    /// Returns the number of links that lead beyond the root, and so shorten a lookup.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// Returns the memory of the links in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.starts.capacity() * size_of::<Target>()
    }
}

impl<T> DagTable<T> {
    /// Does a [`lookup`](crate::FilterTable::lookup) for a packet that matched the filter of number `before`.
    /// The links must belong to the table's present state.
    #[inline]
    pub fn lookup_linked(
        &self,
        links: &Links,
        before: Option<usize>,
        candidate: &Candidate,
    ) -> Option<(FilterId, &T)> {
        self.lookup_linked_counted(links, before, candidate, &mut NotCounted)
    }

    /// Does a [`lookup_linked`](Self::lookup_linked) that counts memory accesses as
    /// [`lookup_counted`](Self::lookup_counted) does. The read of a link is one access.
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
