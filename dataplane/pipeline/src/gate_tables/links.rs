//! Links from the filters of one gate into the DAG of the next gate. They are valid only for the two table
//! versions that they were made from.
//!
//! A change of filters at either gate invalidates the links. Searches of the next gate's DAG then start at
//! its root, until control has made new links ([`GateTables::link`](crate::GateTables::link)).

use millrace_classify::{FilterTable, Links};
use millrace_units::GateId;

use crate::gate_tables::table::GateTable;

/// Links into a gate's DAG.
#[derive(Debug)]
pub struct GateLinks {
    previous: GateId,
    /// Version stamps of the two tables that the links connect.
    stamps: (u64, u64),
    links: Links,
}

impl GateLinks {
    /// Returns the links between the DAGs of two gates; `None` if one of the tables is not a DAG.
    pub(crate) fn new((previous, before): (GateId, &GateTable), after: &GateTable) -> Option<Self> {
        // If a binding has several filters, the result of the previous gate doesn't tell which of them the
        // packet matched. So such a binding gets no link, and the search of the next gate starts at the root.
        let alone = before.dag()?.entries().filter(|entry| before.filters_of(entry.value) == 1);
        let links = Links::new(after.dag()?, alone.map(|entry| (entry.value.0 as usize, &entry.filter)));
        Some(Self { previous, stamps: (before.stamp(), after.stamp()), links })
    }

    /// Returns whether the links were made from the current versions of both tables.
    #[inline]
    pub(crate) fn are_of(&self, before: &GateTable, after: &GateTable) -> bool {
        self.stamps == (before.stamp(), after.stamp())
    }

    /// Returns the gate at which the links begin.
    pub fn previous(&self) -> GateId {
        self.previous
    }

    /// Returns the links, by the numbers of the bindings at the previous gate.
    pub fn links(&self) -> &Links {
        &self.links
    }
}
