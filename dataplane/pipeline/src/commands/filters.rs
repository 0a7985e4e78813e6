//! Commands to the tables and counters of filters.

use millrace_plugin::{BindingCountsPage, BindingId};
use millrace_units::GateId;

use super::ReplyTo;
use crate::driver_flows::Invalidation;
use crate::gate_tables::WorkerTable;

/// Command to the tables and counters of filters.
pub enum FilterCommand {
    /// Gives a gate another table with the same filters.
    SetTable(GateId, WorkerTable),
    /// Asks for the counters of bindings: a bounded number, from this one on.
    Count(BindingId, ReplyTo<BindingCountsPage>),
    /// Sets the counters of bindings to zero: a bounded number, from this one on; the answer is the binding at which the next command
    /// begins.
    Clear(BindingId, ReplyTo<Option<BindingId>>),
}

impl FilterCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // The other table finds the same bindings.
            Self::SetTable(..) => Invalidation::Nothing,
            Self::Count(..) | Self::Clear(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::SetTable(..) => true,
            Self::Count(..) | Self::Clear(..) => false,
        }
    }
}
