//! Filter tables with a memory limit.

use millrace_units::count;

use super::{Entry, FilterId, FilterTable};
use crate::CompiledFilter;

/// Filter table with a memory limit. It can refuse a filter that would exceed the limit.
pub trait MemoryBound<T>: FilterTable<T> + Sized {
    /// Name of the kind of table in messages.
    const NAME: &'static str;

    /// Adds the filter in `entry` like [`restore`](FilterTable::restore), within the memory limit, and leaves
    /// `entry` empty. Returns `false`, and adds nothing, if the table already has a filter of this id, or if
    /// `entry` is empty.
    ///
    /// # Errors
    /// [`OverMemory`] if the table would exceed its limit. The table and `entry` are then unchanged.
    fn try_restore(&mut self, entry: &mut Option<Entry<T>>) -> Result<bool, OverMemory>;

    /// Adds a filter like [`insert`](FilterTable::insert), within the memory limit.
    ///
    /// # Errors
    /// [`OverMemory`] if the table would exceed its limit. The table is then unchanged.
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

/// Error: a filter would exceed the table's memory limit. The table is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "filter not added: the filter table would exceed its limit of {limit} bytes (now {bytes} bytes with {}); \
     the existing filters stay in force",
    count(.filters, "filter")
)]
pub struct OverMemory {
    /// Memory of the table without the filter, in bytes.
    pub bytes: usize,
    /// Memory limit in bytes.
    pub limit: usize,
    /// Number of filters in the table.
    pub filters: usize,
}
