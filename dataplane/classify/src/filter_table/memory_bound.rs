//! Tables with a bound of memory.

use millrace_units::count;

use super::{Entry, FilterId, FilterTable};
use crate::CompiledFilter;

/// A table with a bound of memory, which refuses a filter rather than to pass it.
pub trait MemoryBound<T>: FilterTable<T> + Sized {
    /// What to call it in a message.
    const NAME: &'static str;

    /// Adds a filter as [`restore`](FilterTable::restore) does, within the bound. It is taken out of `entry` when it is
    /// added, and stays there when it is not: `false` when there is a filter of its id, or none in `entry`.
    ///
    /// # Errors
    /// [`OverMemory`] when the table would take more than its bound; then nothing is changed.
    fn try_restore(&mut self, entry: &mut Option<Entry<T>>) -> Result<bool, OverMemory>;

    /// Adds a filter as [`insert`](FilterTable::insert) does, within the bound.
    ///
    /// # Errors
    /// [`OverMemory`] when the table would take more than its bound; then nothing is changed.
    fn try_insert(
        &mut self,
        filter: CompiledFilter,
        priority: i32,
        value: T,
    ) -> Result<FilterId, OverMemory> {
        let id = self.next_id();
        self.try_restore(&mut Some(Entry { id, filter, priority, value })).map(|_| id)
    }

    /// The filters, oldest first.
    fn into_entries(self) -> Vec<Entry<T>>;
}

/// A filter would have made a table too large. The table is what it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "with one filter more the table would take more than {limit} bytes (it takes {bytes} with {}): the \
     filter was not added, those before stay in force",
    count(.filters, "filter")
)]
pub struct OverMemory {
    /// Bytes that the table takes without the filter.
    pub bytes: usize,
    /// Bytes that it may take.
    pub limit: usize,
    /// Filters in it.
    pub filters: usize,
}
