//! Changes of routes and neighbours, as control and the other workers report them.

use std::net::IpAddr;

use ipnet::IpNet;
use millrace_forward::Route;
use millrace_units::{NextHopIndex, PortId};
use millrace_wire::mac_addr::MacAddr;

/// Routes with their numbers. A worker swaps them with its previous routes, and returns these to control,
/// which frees their memory. So no packet waits for that.
pub type NumberedRoutes = Vec<(NextHopIndex, Route)>;

/// Prefix whose route has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// Prefix.
    pub prefix: IpNet,
    /// Whether the prefix is now an address of the router or a broadcast address, from which no packet may
    /// come.
    pub own: bool,
}

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
