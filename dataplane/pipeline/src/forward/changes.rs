//! Changes of routes and neighbours, reported by control and by other workers.

use std::net::IpAddr;

use ipnet::IpNet;
use millrace_forward::Route;
use millrace_units::{NextHopIndex, PortId};
use millrace_wire::mac_addr::MacAddr;

/// Routes with their numbers. A worker swaps its previous routes into the list and returns the list. Control
/// then frees the previous routes, so that the worker spends no time on that.
pub type NumberedRoutes = Vec<(NextHopIndex, Route)>;

/// Prefix whose route has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// Prefix.
    pub prefix: IpNet,
    /// Whether the prefix is now an address of the router or a broadcast address. Packets with such a source
    /// are dropped.
    pub own: bool,
}

/// Change of a neighbour's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourChange {
    /// Port of the neighbour.
    pub port: PortId,
    /// Address of the neighbour.
    pub address: IpAddr,
    /// State of the neighbour's MAC address, or another worker's report.
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

/// State of a neighbour's MAC address, or another worker's report about the neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourKnowledge {
    /// Resolved MAC address.
    Known(MacAddr),
    /// The neighbour does not answer.
    Failed,
    /// Static MAC address; only for ports without a kernel stack.
    Static(MacAddr),
    /// No state: the neighbour was removed.
    Forgotten,
    /// Another worker holds packets for the neighbour and requests its resolution. Only for ports without a
    /// kernel stack; control sends this to the owner of the port's device.
    Wanted,
    /// Another worker has sent packets to the neighbour. Only for ports without a kernel stack; control sends
    /// this to the owner of the port's device.
    Used,
}
