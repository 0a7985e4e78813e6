//! Commands to the flow table.

use std::time::Duration;

use millrace_classify::CompiledSelection;
use millrace_packet::FlowKey;
use millrace_plugin::BindingId;

use super::ReplyTo;
use crate::driver_flows::{Invalidation, StaysUp};

/// Part of the flow table, and a filter of its flows.
#[derive(Clone, Debug)]
pub struct FlowScan {
    /// First record of the part: 0 at first, then `next` of the previous page.
    pub from: u32,
    /// Maximum number of records to check, whether they match or not.
    pub records: u32,
    /// Filter: a flow matches if some packet of it may match.
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

/// Report on a flow record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Flow key.
    pub key: FlowKey,
    /// Varying fields that filters distinguish; 0 if no filter does.
    pub varying: u32,
    /// Mask of the bits of `varying` that filters match.
    pub varying_mask: u32,
    /// Number of packets since the record was made.
    pub packets: u64,
    /// Number of bytes since then, link headers included.
    pub bytes: u64,
    /// Age of the record.
    pub age: Duration,
    /// Time since the last packet.
    pub idle: Duration,
    /// Whether the record is on probation, so that new flows may displace it.
    pub probation: bool,
    /// Whether a reservation prevents other flows from displacing the record.
    pub reserved: bool,
    /// Bindings of the flow's path, in the order of the gates.
    pub bindings: Vec<BindingId>,
    /// Route in words, with names of ports.
    pub route: String,
    /// Hash that identifies the flow in queues.
    pub hash: u32,
    /// Reason that keeps the flow at the worker; `None` if it is offloaded.
    pub stays_up: Option<StaysUp>,
    /// Whether a placement matches the flow.
    pub placed: bool,
}

/// Command to the flow table.
#[derive(Debug)]
pub enum FlowCommand {
    /// Replaces the flows with a reservation, whose records no other flow displaces.
    Reserve(Vec<FlowKey>),
    /// Asks for the flow records in a bounded part of the table.
    Scan(FlowScan, ReplyTo<FlowPage>),
    /// Removes the flow records in a bounded part of the table. The worker classifies the next packets of
    /// these flows again.
    Flush(FlowScan, ReplyTo<FlowPage>),
}

impl FlowCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // The entry of a flow is removed only when the worker next visits it.
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
