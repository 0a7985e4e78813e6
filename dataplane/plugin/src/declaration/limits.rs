//! Limits of the instances of file plugins, the same for all instances of a router.

use std::time::Duration;

/// Length of a slice, and number of faults until quarantine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Length of a slice. Call limits are rounded up to whole slices.
    pub slice: Duration,
    /// Number of faults that lead to quarantine; 1 or more. Faults add up as long as less time than
    /// [`fault_window`](Self::fault_window) passes between one fault and the next.
    pub faults: u32,
    /// Time without a fault after which earlier faults no longer count.
    pub fault_window: Duration,
    /// Cycles per second, for the cycles that plugins declare.
    pub frequency: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            slice: Duration::from_micros(50),
            faults: 8,
            fault_window: Duration::from_secs(60),
            frequency: 1_000_000_000,
        }
    }
}
