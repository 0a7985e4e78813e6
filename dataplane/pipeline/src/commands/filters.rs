//! Commands to the tables and counters of filters.

use millrace_plugin::{BindingCountsPage, BindingId};
use millrace_units::GateId;

use super::{ReplyTo, answer};
use crate::gate_tables::WorkerTable;
use crate::gates::Gates;
use crate::offloaded_flows::Invalidation;

/// Maximum number of filters whose counters a worker reads or clears between two batches.
const FILTERS_AT_ONCE: usize = 1024;

/// Command to the tables and counters of filters.
pub enum FilterCommand {
    /// Replaces the table of a gate by one with the same filters.
    SetTable(GateId, WorkerTable),
    /// Asks for the counters of a bounded number of bindings, from the given binding on.
    Count(BindingId, ReplyTo<BindingCountsPage>),
    /// Clears the counters of a bounded number of bindings, from the given binding on. The answer is the
    /// first binding of the next command; `None` after the last.
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

    /// Carries out the command.
    pub(crate) fn carry_out(self, gates: &mut Gates) {
        let plugins = gates.plugins_mut();
        match self {
            // Not the last reference: control keeps the old table until no worker reads it.
            Self::SetTable(gate, table) => drop(plugins.bindings.set_table(gate, table)),
            Self::Count(from, reply) => answer(&reply, plugins.bindings.counts_from(from, FILTERS_AT_ONCE)),
            Self::Clear(from, reply) => answer(&reply, plugins.bindings.clear_counts(from, FILTERS_AT_ONCE)),
        }
    }
}
