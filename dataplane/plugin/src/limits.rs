//! What instances are granted that are plugins' code, all of a router's alike.

use std::time::Duration;

/// How long calls run in one go, and how many faults are borne.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// What a slice is reckoned as: a budget is so many of them.
    pub slice: Duration,
    /// So many faults within [`fault_window`](Self::fault_window) bring quarantine; 1 or more.
    pub faults: u32,
    /// How long faults count.
    pub fault_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { slice: Duration::from_micros(50), faults: 8, fault_window: Duration::from_secs(60) }
    }
}
