//! Commands to the tables and counters of filters.

use millrace_plugin::{BindingCountsPage, BindingId};
use millrace_units::GateId;

use super::ReplyTo;
use crate::driver_flows::Invalidation;
use crate::gate_tables::WorkerTable;

/// Command to the tables and counters of filters.
pub enum FilterCommand {
    /// Replaces the table of a gate by one with the same filters.
    SetTable(GateId, WorkerTable),
    /// Asks for the counters of a bounded number of bindings, from this one on.
    Count(BindingId, ReplyTo<BindingCountsPage>),
    /// Clears the counters of a bounded number of bindings, from this one on. The answer is the first binding
    /// of the next command.
    Clear(BindingId, ReplyTo<Option<BindingId>>),
}

impl FilterCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // The new table finds the same bindings.
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
