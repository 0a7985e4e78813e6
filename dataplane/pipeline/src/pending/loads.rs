//! Work of principals at a worker, as control reads it without asking the worker.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_units::{Cycles, PrincipalId};

/// Number of principals whose work a worker reports. Control divides the shares of others equally.
const REPORTED: usize = 1024;

/// Work of a principal.
#[derive(Debug, Default)]
struct Load {
    used: AtomicU64,
    waiting: AtomicU32,
}

/// Work of the principals at a worker. The worker alone writes it.
#[derive(Debug)]
pub struct PrincipalLoads(Box<[Load]>);

impl Default for PrincipalLoads {
    fn default() -> Self {
        Self((0..REPORTED).map(|_| Load::default()).collect())
    }
}

impl PrincipalLoads {
    /// Returns the cycles that a principal has used at the worker, and the number of its packets that wait;
    /// `None` for principals that are not reported.
    pub fn of(&self, id: PrincipalId) -> Option<(Cycles, u32)> {
        let load = self.0.get(id.0 as usize)?;
        Some((Cycles(load.used.load(Ordering::Relaxed)), load.waiting.load(Ordering::Relaxed)))
    }

    /// Adds used cycles.
    #[inline]
    pub(crate) fn add_used(&self, id: PrincipalId, Cycles(used): Cycles) {
        if let Some(load) = self.0.get(id.0 as usize) {
            load.used.store(load.used.load(Ordering::Relaxed) + used, Ordering::Relaxed);
        }
    }

    /// Sets the number of waiting packets.
    #[inline]
    pub(crate) fn set_waiting(&self, id: PrincipalId, waiting: u32) {
        if let Some(load) = self.0.get(id.0 as usize) {
            load.waiting.store(waiting, Ordering::Relaxed);
        }
    }
}
