//! Commands to the offload of flows.

use millrace_plugin::LoadedForm;
use millrace_units::{InstanceId, PortId};

use super::ReplyTo;
use crate::driver_flows::{DriverCache, DriverPort, Invalidation, Placement};

/// Command to the offload of flows.
pub enum OffloadCommand {
    /// Sets the worker's part of the flow cache.
    SetCache(Box<dyn DriverCache>),
    /// Sets the offload capabilities of a port.
    SetPort(PortId, DriverPort),
    /// Sets the placements of flows; the first one that matches a flow applies.
    Place(Vec<Placement>),
    /// Sets the eBPF variant of an instance; `None` for none.
    SetForm(InstanceId, Option<LoadedForm>),
    /// Accounts offloaded packets to flows, routes and filters, for a bounded number of entries from this
    /// slot on. The answer is the first slot of the next command. Counters that are cleared afterwards don't
    /// include these packets.
    Account(u32, ReplyTo<Option<u32>>),
}

impl OffloadCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::SetCache(_) | Self::SetPort(..) | Self::Place(_) | Self::SetForm(..) => {
                Invalidation::Entries
            }
            Self::Account(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::SetPort(..) => true,
            Self::SetCache(_) | Self::Place(_) | Self::SetForm(..) | Self::Account(..) => false,
        }
    }
}
