//! Commands to the flow table.

use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::{ReplyTo, answer};
use crate::flow_reports::{FlowPage, FlowScan};
use crate::offloaded_flows::Invalidation;
use crate::router::Router;

/// Command to the flow table.
#[derive(Debug)]
pub enum FlowCommand {
    /// Replaces the list of reserved flows, whose records no other flow displaces.
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
            // A removed record leaves its flow cache entry behind, until the worker next visits the entry.
            Self::Flush(..) => Invalidation::Entries,
            Self::Reserve(_) | Self::Scan(..) => Invalidation::Nothing,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::Reserve(flows) => router.classifier.reserved.set(&flows, router.seed),
            Self::Scan(scan, reply) => answer(&reply, scan.run(router, now)),
            Self::Flush(scan, reply) => answer(&reply, scan.flush(router, now)),
        }
    }
}
