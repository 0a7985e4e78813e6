//! Entries of the flow cache, as the worker knows them.

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
    /// Latest generation for which the plan is valid.
    pub generation: u64,
    pub phase: EntryPhase,
    /// Packets accounted so far.
    pub accounted: OffloadTotals,
    /// Whether a placement offloads the flow.
    pub placed: bool,
    pub upcalls: Upcalls,
    pub rate: Rate,
    pub last_used: Instant,
}

impl Entry {
    /// Returns whether the entry has settled, and so has begun.
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
    /// XDP programs may still be treating packets whose flow they looked up before the entry was inserted.
    Settling {
        /// Time at which the entry has settled.
        until: Instant,
    },
    /// The XDP program may use the entry once earlier packets of the flow are done with.
    Begun,
}
