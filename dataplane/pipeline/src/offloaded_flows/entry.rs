//! The worker's copy of the flow cache entries.

use millrace_classify::FlowIndex;
use millrace_packet::{FlowKey, OffloadTotals};
use millrace_units::Instant;

use super::plan::Plan;
use super::rate::Rate;
use super::upcalls::Upcalls;

/// Entry of an offloaded flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub key: FlowKey,
    pub flow: FlowIndex,
    pub plan: Plan,
    /// Latest generation in which the plan is valid.
    pub generation: u64,
    pub phase: EntryPhase,
    /// Packets of the entry that have been accounted so far.
    pub accounted: OffloadTotals,
    /// Whether a placement offloads the flow.
    pub placed: bool,
    pub upcalls: Upcalls,
    pub rate: Rate,
    pub last_used: Instant,
}

impl Entry {
    /// Returns whether the entry has begun, so that the XDP program may use it.
    pub fn is_begun(&self) -> bool {
        match self.phase {
            EntryPhase::Begun => true,
            EntryPhase::Settling { .. } => false,
        }
    }
}

/// Phase of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryPhase {
    /// The entry is new, and is not used yet. An XDP program may still treat a packet of the flow that it
    /// looked up before the insertion.
    Settling {
        /// End of the wait.
        until: Instant,
    },
    /// The XDP program may use the entry once the workers are done with earlier packets of the flow.
    Begun,
}
