//! Gate links: from the filters of one gate into the DAG of the next gate (*Router Plugins*, section 5.1.2).
//!
//! Gates often have the same or similar filters. A filter's region is the set of packets that match the
//! filter. If the next gate's DAG leads all packets of the region along the same nodes at first, a lookup can
//! skip these nodes. So each filter links to the first node at which its packets take different edges.
//!
//! If a filter matches a single flow, its link leads to the end of the path; if it matches all packets, its
//! link leads to the root. After a lookup without a match, the lookup at the next gate starts at the root.

use crate::prefix_match::{Count, NotCounted};
use crate::{Candidate, CompiledFilter, FilterId};

use super::DagTable;
use super::edges::Target;
use super::rule::{Rule, Seen};

/// Links from the filters of one gate to targets in the next gate's DAG, at which lookups start.
///
/// Links are valid for one state of the DAG. After each change of the DAG, the caller must rebuild them
/// before use.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// Start target of each filter, by its number.
    starts: Vec<Target>,
    filters: usize,
    ahead: usize,
}

impl Links {
    /// Creates links into the DAG of `after`. `filters` are the filters of the gate before, each with a
    /// distinct number. The memory grows with the largest number. Each filter takes a short walk through the
    /// DAG.
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

    /// Returns the number of links that don't lead to the root, and so shorten lookups.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// Returns the memory of the links in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.starts.capacity() * size_of::<Target>()
    }
}

impl<T> DagTable<T> {
    /// Does a [`lookup`](crate::FilterTable::lookup) that starts at a link. `before` is the number of the
    /// filter that the packet matched at the gate before, if any. The links must belong to the table's
    /// current state.
    #[inline]
    pub fn lookup_linked(
        &self,
        links: &Links,
        before: Option<usize>,
        candidate: &Candidate,
    ) -> Option<(FilterId, &T)> {
        self.lookup_linked_counted(links, before, candidate, &mut NotCounted)
    }

    /// Does a [`lookup_linked`](Self::lookup_linked), and counts memory accesses like
    /// [`lookup_counted`](Self::lookup_counted). Reading a link is one access.
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
