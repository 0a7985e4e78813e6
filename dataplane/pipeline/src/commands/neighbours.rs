//! Commands to the table of neighbours.

use std::net::IpAddr;

use millrace_units::PortId;
use millrace_wire::mac_addr::MacAddr;

use super::{FEW, ReplyTo};
use crate::driver_flows::Invalidation;

/// Change of a neighbour's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourChange {
    /// Port of the neighbour.
    pub port: PortId,
    /// Address of the neighbour.
    pub address: IpAddr,
    /// State of its link address.
    pub state: NeighbourKnowledge,
}

/// Neighbours that the worker has used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsedNeighbours {
    /// Ports and addresses of the neighbours.
    pub used: Vec<(PortId, IpAddr)>,
    /// Whether another command would return more.
    pub more: bool,
}

/// State of a neighbour's link address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourKnowledge {
    /// Resolved link address.
    Known(MacAddr),
    /// The neighbour does not answer.
    Failed,
    /// Static link address; only for ports without a kernel.
    Static(MacAddr),
    /// No state: the neighbour was removed.
    Forgotten,
    /// Resolution requested by another worker that holds packets for the neighbour. Only for ports without a
    /// kernel, and for the owner of their device.
    Wanted,
    /// Use of the neighbour by another worker. Only for ports without a kernel, and for the owner of their
    /// device.
    Used,
}

/// Command to the table of neighbours.
#[derive(Debug)]
pub enum NeighbourCommand {
    /// Reports changed states of neighbours.
    Set(Vec<NeighbourChange>),
    /// Asks for a bounded number of neighbours used since the last such command, at kernel ports and at ports
    /// whose devices other workers own.
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
