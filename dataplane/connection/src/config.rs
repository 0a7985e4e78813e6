//! Limits of a connection table.

use crate::timeouts::Timeouts;

/// Limits of a connection table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionConfig {
    /// Maximum number of connections, 1 to [`LARGEST`](Self::LARGEST).
    pub maximum: u32,
    /// Maximum number of connections that an address may have opened; 0 counts as 1.
    pub per_source: u32,
    /// Idle times after which connections end.
    pub timeouts: Timeouts,
    /// Whether a segment of TCP other than SYN opens a connection, as after a restart of the router.
    pub adopts: bool,
    /// Seed of the hash; senders may not know it.
    pub seed: u64,
}

impl ConnectionConfig {
    /// Largest table.
    pub const LARGEST: u32 = 1 << 26;
}

/// Error returned if a table can't be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionTableError {
    /// The size is outside its range.
    #[error("{given} connections: a table holds 1 to {}", ConnectionConfig::LARGEST)]
    Size {
        /// Configured maximum.
        given: u32,
    },
    /// The kernel has no memory for the table.
    #[error(transparent)]
    Memory(#[from] millrace_memory::MemoryError),
}
