//! Configuration of the flow table.

use std::time::Duration;

/// Maximum of [`FlowTableConfig::maximum`]: number of records of the largest table.
pub const LARGEST: u32 = 1 << 24;

/// Configuration of a [`FlowTable`](super::FlowTable).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowTableConfig {
    /// Initial number of records: 1 to `maximum`. 1,024 by default.
    pub initial: u32,
    /// Maximum number of records, up to [`LARGEST`]. A million (2^20) by default; they take 136 MiB when all
    /// are used.
    pub maximum: u32,
    /// Time without a packet after which a record ends: up to 26 days, in steps of 17 ms; 30 s by default. A
    /// record ends at the latest after five quarters of this time, if
    /// [`FlowTable::maintain`](super::FlowTable::maintain) is called often enough.
    pub idle: Duration,
    /// Time after which a new record ends if no second packet has arrived; 5 s by default.
    pub probation_idle: Duration,
    /// Whether the table populates the memory of all `maximum` records at its creation. If not, it populates
    /// memory on demand: about one new record in 30,000 then waits a few tenths of a millisecond for the
    /// kernel to clear a huge page.
    pub populate: bool,
    /// Seed of the flow hash, drawn at random when the router starts. A sender that doesn't know the seed
    /// can't choose flows whose hashes collide.
    pub seed: u64,
}

impl Default for FlowTableConfig {
    fn default() -> Self {
        let (idle, probation_idle) = (Duration::from_secs(30), Duration::from_secs(5));
        Self { initial: 1024, maximum: 1 << 20, idle, probation_idle, populate: false, seed: 0 }
    }
}
