//! Work of principals at a worker, as control reads it without asking the worker.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_units::{Cycles, PrincipalId};

/// Number of principals in a block of memory, and number of blocks.
const BLOCK: usize = 1024;
const BLOCKS: usize = 128;

/// Work of a principal.
#[derive(Debug, Default)]
struct Load {
    used: AtomicU64,
    waiting: AtomicU32,
}

/// Work of the principals at a worker. The worker alone writes it.
#[derive(Debug)]
pub struct PrincipalLoads {
    blocks: Box<[OnceLock<Box<[Load]>>]>,
}

impl Default for PrincipalLoads {
    fn default() -> Self {
        Self { blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect() }
    }
}

impl PrincipalLoads {
    /// Makes room for a principal. The work of principals with greater ids than [`BLOCKS`] blocks have is not
    /// reported.
    pub(crate) fn reserve(&self, id: PrincipalId) {
        if let Some(block) = self.blocks.get(id.0 as usize / BLOCK) {
            block.get_or_init(|| (0..BLOCK).map(|_| Load::default()).collect());
        }
    }

    /// Returns the cycles that a principal has used at the worker, and the number of its packets that wait.
    pub fn of(&self, id: PrincipalId) -> (Cycles, u32) {
        let load =
            |load: &Load| (Cycles(load.used.load(Ordering::Relaxed)), load.waiting.load(Ordering::Relaxed));
        self.load(id).map(load).unwrap_or_default()
    }

    /// Adds used cycles.
    #[inline]
    pub(crate) fn add_used(&self, id: PrincipalId, Cycles(used): Cycles) {
        if let Some(load) = self.load(id) {
            load.used.store(load.used.load(Ordering::Relaxed) + used, Ordering::Relaxed);
        }
    }

    /// Sets the number of waiting packets.
    #[inline]
    pub(crate) fn set_waiting(&self, id: PrincipalId, waiting: u32) {
        if let Some(load) = self.load(id) {
            load.waiting.store(waiting, Ordering::Relaxed);
        }
    }

    #[inline]
    fn load(&self, id: PrincipalId) -> Option<&Load> {
        self.blocks.get(id.0 as usize / BLOCK)?.get()?.get(id.0 as usize % BLOCK)
    }
}
