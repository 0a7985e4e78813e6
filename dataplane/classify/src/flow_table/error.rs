//! Errors of the flow table.

use millrace_memory::MemoryError;

use super::config::LARGEST;

/// Errors of [`FlowTable::new`](super::FlowTable::new).
#[derive(Debug, thiserror::Error)]
pub enum FlowTableError {
    /// Number of records out of range.
    #[error(
        "flow table of {initial} to {maximum} records: both numbers must be 1 to {LARGEST}, and the first at \
         most the second"
    )]
    Size {
        /// Configured initial number of records.
        initial: u32,
        /// Configured maximum number of records.
        maximum: u32,
    },
    /// Memory that the kernel refused to map.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Reason that a flow gets no record. The worker can forward its packets without a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// The table has its maximum number of records, and none is on probation. All records that the search
    /// visited are reserved or stateful. A search visits 256 slots; the next search continues where this one
    /// ended.
    #[error("the flow table is full, and all records that a search visited are reserved or stateful")]
    Protected,
    /// No slot is free: too many ended records wait until
    /// [`FlowTable::pop_removed`](super::FlowTable::pop_removed) returns them.
    #[error("too many ended flow records wait to be read")]
    Unread,
    /// The flow's group of buckets and the overflow are full, and all records in both are reserved or
    /// stateful.
    #[error("no room for the flow record: too many reserved or stateful records have a similar hash")]
    Collisions,
}
