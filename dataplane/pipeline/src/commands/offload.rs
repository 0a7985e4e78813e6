//! Commands to the offload of flows.

use millrace_plugin::LoadedVariant;
use millrace_units::{InstanceId, Instant, PortId};

use super::{ReplyTo, answer};
use crate::offloaded_flows::{Invalidation, OffloadPort, OffloadedFlows, Placement, WorkerFlowCache};
use crate::router::Router;

/// Command to the offload of flows.
pub enum OffloadCommand {
    /// Sets the worker's part of the flow cache.
    SetCache(Box<dyn WorkerFlowCache>),
    /// Sets the offload capabilities of a port.
    SetPort(PortId, OffloadPort),
    /// Sets the placements of flows; the first one that matches a flow applies.
    Place(Vec<Placement>),
    /// Sets the eBPF variant of an instance; `None` removes it.
    SetVariant(InstanceId, Option<LoadedVariant>),
    /// Adds offloaded packets to the counters of flows, routes and filters, for a bounded number of flow
    /// cache entries from the given slot on. The answer is the first slot of the next command. Each packet is
    /// added once. So packets that were added before control clears the counters don't appear in them
    /// afterwards.
    Account(u32, ReplyTo<Option<u32>>),
}

impl OffloadCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::SetCache(_) | Self::SetPort(..) | Self::Place(_) | Self::SetVariant(..) => {
                Invalidation::Entries
            }
            Self::Account(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::SetPort(..) => true,
            Self::SetCache(_) | Self::Place(_) | Self::SetVariant(..) | Self::Account(..) => false,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::SetCache(cache) => router.offload = Some(Box::new(OffloadedFlows::new(cache))),
            Self::SetPort(id, capabilities) => {
                if let Some(offload) = &mut router.offload {
                    offload.set_port(id, capabilities);
                }
            }
            Self::Place(placements) => {
                if let Some(offload) = &mut router.offload {
                    offload.place(placements);
                }
            }
            Self::SetVariant(id, variant) => {
                router.gates.plugins_mut().instances_mut().set_ebpf_variant(id, variant)
            }
            Self::Account(from, reply) => {
                let next = router
                    .offload_stage()
                    .and_then(|mut offload| offload.accounting().account_from(from, now));
                answer(&reply, next);
            }
        }
    }
}
