//! Commands to the table of neighbours.

use std::net::IpAddr;

use millrace_units::PortId;
use millrace_wire::mac_addr::MacAddr;

use super::{FEW, ReplyTo};
use crate::driver_flows::Invalidation;

/// New knowledge of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourChange {
    /// Port of the neighbour.
    pub port: PortId,
    /// Its address.
    pub address: IpAddr,
    /// Knowledge of its link address.
    pub state: NeighbourKnowledge,
}

/// Neighbours that the worker used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsedNeighbours {
    /// Their ports and addresses.
    pub used: Vec<(PortId, IpAddr)>,
    /// Whether there are more to ask for.
    pub more: bool,
}

/// Knowledge of a neighbour's link address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourKnowledge {
    /// It has this address.
    Known(MacAddr),
    /// It does not answer.
    Failed,
    /// It has this static address: only for ports without a kernel.
    Static(MacAddr),
    /// The address is forgotten.
    Forgotten,
    /// Packets wait for it at another worker: the worker that has the port's device resolves it. Only for ports without a kernel.
    Wanted,
    /// Another worker has sent packets to it. Only for ports without a kernel, and for the worker that has their device.
    Used,
}

/// Command to the table of neighbours.
#[derive(Debug)]
pub enum NeighbourCommand {
    /// Reports new knowledge of neighbours.
    Set(Vec<NeighbourChange>),
    /// Asks for neighbours that the worker used since the last question: a bounded number, of kernel ports and of ports whose
    /// devices other workers have.
    TakeUsed(ReplyTo<UsedNeighbours>),
}

impl NeighbourCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Set(_) => Invalidation::Neighbours,
            Self::TakeUsed(_) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Set(changes) => changes.len() <= FEW,
            Self::TakeUsed(_) => false,
        }
    }
}
