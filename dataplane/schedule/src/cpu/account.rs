//! Processor time that the scheduler counts for a principal.

use std::time::Duration;

use millrace_units::Cycles;

/// Processor time of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuAccount {
    /// Cycles charged.
    pub used: Cycles,
    /// Time during which the principal had work.
    pub backlogged: Duration,
    /// Number of times that the principal began to have work.
    pub periods: u64,
    /// Times that the limit stopped the principal.
    pub throttled: u64,
}
