//! The state of one network namespace: pure data.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Forwarding, HostAddress, HostLink, HostNeighbour, HostRoute};

/// Links, addresses, routes, neighbours and forwarding switches of one network namespace.
#[derive(Clone, Debug, Default)]
pub struct HostState {
    links: BTreeMap<u32, HostLink>,
    addresses: BTreeMap<(u32, IpAddr), HostAddress>,
    neighbours: BTreeMap<(u32, IpAddr), HostNeighbour>,
    forwarding: Forwarding,
}

impl HostState {
    /// A device by its index.
    pub fn link(&self, ifindex: u32) -> Option<&HostLink> {
        self.links.get(&ifindex)
    }

    /// A device by its name.
    pub fn link_by_name(&self, name: &str) -> Option<&HostLink> {
        self.links.values().find(|link| link.name == name)
    }

    /// All devices, by index.
    pub fn links(&self) -> impl Iterator<Item = &HostLink> {
        self.links.values()
    }

    /// All addresses, by device.
    pub fn addresses(&self) -> impl Iterator<Item = &HostAddress> {
        self.addresses.values()
    }

    /// All neighbours, by device.
    pub fn neighbours(&self) -> impl Iterator<Item = &HostNeighbour> {
        self.neighbours.values()
    }

    /// The entry of one neighbour.
    pub fn neighbour(&self, ifindex: u32, ip: IpAddr) -> Option<&HostNeighbour> {
        self.neighbours.get(&(ifindex, ip))
    }

    /// The forwarding switches.
    pub fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }

    /// The route that holds for exactly this prefix, with its usable next hops.
    pub fn effective(&self, _prefix: IpNet) -> Option<HostRoute> {
        None
    }

    /// All effective routes in the order of their prefixes.
    pub fn routes(&self) -> impl Iterator<Item = HostRoute> + '_ {
        std::iter::empty()
    }
}

/// The addresses that packets to this host have, directed broadcasts and anycast included, 127.0.0.0/8 not.
pub fn local_addresses(_state: &HostState) -> Vec<IpAddr> {
    Vec::new()
}
