//! Filter tables with a memory bound.

use millrace_units::count;

use super::{Entry, FilterId, FilterTable};
use crate::CompiledFilter;

/// Filter table with a memory bound. It refuses a filter that would exceed the bound.
pub trait MemoryBound<T>: FilterTable<T> + Sized {
    /// Name of the table in messages.
    const NAME: &'static str;

    /// Adds a filter as [`restore`](FilterTable::restore) does, within the bound. Takes the filter out of
    /// `entry` if it adds it, else leaves it there. Returns false if the table has a filter of that id, or
    /// `entry` is empty.
    ///
    /// # Errors
    /// [`OverMemory`] when the table would exceed its bound. The table is then unchanged.
    fn try_restore(&mut self, entry: &mut Option<Entry<T>>) -> Result<bool, OverMemory>;

    /// Adds a filter as [`insert`](FilterTable::insert) does, within the bound.
    ///
    /// # Errors
    /// [`OverMemory`] when the table would exceed its bound. The table is then unchanged.
    fn try_insert(
        &mut self,
        filter: CompiledFilter,
        priority: i32,
        value: T,
    ) -> Result<FilterId, OverMemory> {
        let id = self.next_id();
        self.try_restore(&mut Some(Entry { id, filter, priority, value })).map(|_| id)
    }

    /// Returns the filters, the oldest first.
    fn into_entries(self) -> Vec<Entry<T>>;
}

/// Error: a filter would exceed the table's memory bound. The table is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "filter not added: the filter table would exceed its limit of {limit} bytes (now {bytes} bytes with {}); \
     the existing filters stay in force",
    count(.filters, "filter")
)]
pub struct OverMemory {
    /// Memory of the table without the filter, in bytes.
    pub bytes: usize,
    /// Memory bound, in bytes.
    pub limit: usize,
    /// Number of filters in the table.
    pub filters: usize,
}
