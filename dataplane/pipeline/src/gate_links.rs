//! Links from the filters of one gate into the DAG of the next, for two tables in one state each.
//!
//! A change of filters at either gate ends them: then the next gate's DAG is walked from its root, until control has made
//! them anew ([`GateTables::link`](crate::GateTables::link)).

use millrace_classify::{FilterTable, Links};
use millrace_units::GateId;

use crate::gate_table::GateTable;

/// The links into a gate's DAG.
#[derive(Debug)]
pub struct GateLinks {
    previous: GateId,
    /// The stamps of the tables that they lead from and into.
    stamps: (u64, u64),
    links: Links,
}

impl GateLinks {
    /// Links between the DAGs of two gates; `None` when one of them has another kind of table.
    pub(crate) fn new((previous, before): (GateId, &GateTable), after: &GateTable) -> Option<Self> {
        // A packet that met a binding of several filters may have matched any of them: it walks from the root.
        let alone = before.dag()?.entries().filter(|entry| before.filters_of(entry.value) == 1);
        let links = Links::new(after.dag()?, alone.map(|entry| (entry.value.0 as usize, &entry.filter)));
        Some(Self { previous, stamps: (before.stamp(), after.stamp()), links })
    }

    /// Whether they lead from this table into that one, as both are.
    #[inline]
    pub(crate) fn are_of(&self, before: &GateTable, after: &GateTable) -> bool {
        self.stamps == (before.stamp(), after.stamp())
    }

    /// The gate whose filters they belong to.
    pub fn previous(&self) -> GateId {
        self.previous
    }

    /// The links by the numbers of the bindings at that gate.
    pub fn links(&self) -> &Links {
        &self.links
    }
}
