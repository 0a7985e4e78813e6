//! Commands to the flow table.

use std::time::Duration;

use millrace_classify::CompiledSelection;
use millrace_packet::FlowKey;
use millrace_plugin::BindingId;

use super::ReplyTo;
use crate::driver_flows::{Invalidation, StaysUp};

/// Part of the flow table, and the flows that are asked for.
#[derive(Clone, Debug)]
pub struct FlowScan {
    /// Record at which the part begins: 0 at first, then `next` of the page before.
    pub from: u32,
    /// Most records to look at, whatever flows they are of.
    pub records: u32,
    /// Flows of which some packet may match.
    pub filter: CompiledSelection,
}

/// Flows of a part of the table.
#[derive(Clone, Debug, Default)]
pub struct FlowPage {
    /// Flows that the scan found, or that [`FlowCommand::Flush`] removed.
    pub flows: Vec<FlowReport>,
    /// Record at which the next part begins; `None` at the end.
    pub next: Option<u32>,
}

/// Record of a flow, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Six-tuple.
    pub key: FlowKey,
    /// Fields that vary inside the flow, as filters tell its packets apart; 0 where none does.
    pub varying: u32,
    /// Bits of `varying` that filters look at.
    pub varying_mask: u32,
    /// Packets since the record was made.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// Age of the record.
    pub age: Duration,
    /// Time since the last packet.
    pub idle: Duration,
    /// Whether it is new, and may be displaced by other new flows.
    pub probation: bool,
    /// Whether a reservation keeps other flows from displacing it.
    pub reserved: bool,
    /// Bindings of its path, in the order of the journey.
    pub bindings: Vec<BindingId>,
    /// Route in words, with names of ports.
    pub route: String,
    /// Hash by which queues know it.
    pub hash: u32,
    /// Reason why it is not offloaded; `None` when it is.
    pub stays_up: Option<StaysUp>,
    /// Whether a placement names it.
    pub placed: bool,
}

/// Command to the flow table.
#[derive(Debug)]
pub enum FlowCommand {
    /// Sets the flows with a reservation, in place of those before: no other flow displaces their records.
    Reserve(Vec<FlowKey>),
    /// Asks for flow records: a bounded part of the table.
    Scan(FlowScan, ReplyTo<FlowPage>),
    /// Removes flow records: a bounded part of the table. The worker classifies their next packets anew.
    Flush(FlowScan, ReplyTo<FlowPage>),
}

impl FlowCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // The entry of a flow goes with its record, but only when the worker next looks at it.
            Self::Flush(..) => Invalidation::Entries,
            Self::Reserve(_) | Self::Scan(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Reserve(_) | Self::Scan(..) | Self::Flush(..) => false,
        }
    }
}
