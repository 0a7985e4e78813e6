//! Configuration of the flow table.

use std::time::Duration;

/// Largest maximum of records of a table.
pub const LARGEST: u32 = 1 << 24;

/// Configuration of a [`FlowTable`](super::FlowTable).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowTableConfig {
    /// Initial number of records: 1 to `maximum`. 1,024 by default.
    pub initial: u32,
    /// Maximum number of records: up to [`LARGEST`]. A million by default, which take 136 MiB when all are
    /// used.
    pub maximum: u32,
    /// Idle time of a record, after which it ends: up to 26 days, in steps of 17 ms. 30 s by default. If
    /// [`FlowTable::maintain`](super::FlowTable::maintain) keeps up, a record ends after at most five
    /// quarters of this time.
    pub idle: Duration,
    /// Time from the creation of a record to its end if no second packet arrives. 5 s by default.
    pub probation_idle: Duration,
    /// Whether the table populates memory for `maximum` records when it is made. If not, it populates memory
    /// as records need it. About one new record in 30,000 then waits a few tenths of a millisecond for the
    /// kernel to clear a huge page.
    pub populate: bool,
    /// Seed of the hash, drawn at random when the router starts. So no sender can choose flows whose keys
    /// collide.
    pub seed: u64,
}

impl Default for FlowTableConfig {
    fn default() -> Self {
        let (idle, probation_idle) = (Duration::from_secs(30), Duration::from_secs(5));
        Self { initial: 1024, maximum: 1 << 20, idle, probation_idle, populate: false, seed: 0 }
    }
}
