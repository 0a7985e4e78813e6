//! Limits of the instances of file plugins, the same for all instances of a router.

use std::time::Duration;

/// Slice length and fault limits of instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Length of a slice, the unit of call budgets.
    pub slice: Duration,
    /// Number of faults that lead to quarantine, each within [`fault_window`](Self::fault_window) of the one
    /// before; 1 or more.
    pub faults: u32,
    /// Time without a fault after which earlier faults no longer count.
    pub fault_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { slice: Duration::from_micros(50), faults: 8, fault_window: Duration::from_secs(60) }
    }
}
