//! Errors of the flow table.

use millrace_memory::MemoryError;

use super::config::LARGEST;

/// Errors of [`FlowTable::new`](super::FlowTable::new).
#[derive(Debug, thiserror::Error)]
pub enum FlowTableError {
    /// The numbers of records are out of range.
    #[error(
        "flow table of {initial} to {maximum} records: both numbers must be 1 to {LARGEST}, and the first at \
         most the second"
    )]
    Size {
        /// Initial number of records.
        initial: u32,
        /// Maximum number of records.
        maximum: u32,
    },
    /// The kernel maps no memory for the table.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Reason why a flow gets no record. The worker can forward its packets without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// The table has its maximum of records, and all records that the search visited are reserved or
    /// stateful. A search visits 256 slots; the next search continues after them.
    #[error("the flow table is full, and all records that a search visited are reserved or stateful")]
    Protected,
    /// Too many ended records wait for [`FlowTable::pop_removed`](super::FlowTable::pop_removed).
    #[error("too many ended flow records wait to be read")]
    Unread,
    /// 64 reserved or stateful records have hashes of the same group of buckets, and the overflow is full.
    #[error("no room for the flow record: too many reserved or stateful records have a similar hash")]
    Collisions,
}
