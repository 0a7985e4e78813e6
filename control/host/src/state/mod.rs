//! State of one network namespace: pure data, changed by decoded kernel messages.
//!
//! The kernel does not report all changes. When a device goes down, the kernel drops IPv4 routes and next-hop
//! objects without a message. The module `devices` drops them in the same way at once. Afterwards, the mirror
//! lists the routes again.
//!
//! Each entry carries the generation in which the kernel last confirmed it. A list (netlink dump) starts a
//! new generation, and confirms the listed entries. At its end, entries of an older generation are removed.

mod addresses;
mod devices;
mod effective;
pub mod message;
mod neighbours;
mod next_hops;
mod outdated;
mod route_table;
mod routes;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Forwarding, HostAddress, HostChange, HostLink, HostNeighbour, HostRoute, RouteKind};
use message::{KernelMessage, NextHopObject, Placement};
use outdated::Outdated;
pub use sweep::Scope;

/// Entry with the generation in which the kernel last confirmed it.
#[derive(Clone, Debug)]
struct Stamped<T> {
    value: T,
    generation: u32,
}

type AddressKey = (u32, IpAddr, u8);

/// Links, addresses, routes, neighbours and forwarding switches of one network namespace.
#[derive(Clone, Debug, Default)]
pub struct HostState {
    links: BTreeMap<u32, Stamped<HostLink>>,
    addresses: BTreeMap<AddressKey, Stamped<HostAddress>>,
    neighbours: BTreeMap<(u32, IpAddr), Stamped<HostNeighbour>>,
    next_hops: next_hops::NextHopTable,
    routes: route_table::RouteTable,
    forwarding: Forwarding,
    generation: u32,
    differences: u64,
    pub(crate) outdated: Outdated,
}

impl HostState {
    /// Returns a device by its index.
    pub fn link(&self, ifindex: u32) -> Option<&HostLink> {
        self.links.get(&ifindex).map(|link| &link.value)
    }

    /// Returns a device by its name.
    pub fn link_by_name(&self, name: &str) -> Option<&HostLink> {
        self.links().find(|link| link.name == name)
    }

    /// Returns all devices, by index.
    pub fn links(&self) -> impl Iterator<Item = &HostLink> {
        self.links.values().map(|link| &link.value)
    }

    /// Returns all addresses, by device.
    pub fn addresses(&self) -> impl Iterator<Item = &HostAddress> {
        self.addresses.values().map(|address| &address.value)
    }

    /// Returns all neighbours, by device.
    pub fn neighbours(&self) -> impl Iterator<Item = &HostNeighbour> {
        self.neighbours.values().map(|neighbour| &neighbour.value)
    }

    /// Returns the entry of one neighbour.
    pub fn neighbour(&self, ifindex: u32, ip: IpAddr) -> Option<&HostNeighbour> {
        self.neighbours.get(&(ifindex, ip)).map(|neighbour| &neighbour.value)
    }

    /// Returns all next-hop objects, by id.
    pub fn next_hop_objects(&self) -> impl Iterator<Item = &NextHopObject> {
        self.next_hops.objects()
    }

    /// Returns the forwarding switches.
    pub fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }

    /// Applies a notification; returns the resulting changes.
    pub fn apply(&mut self, message: KernelMessage) -> Vec<HostChange> {
        let mut changes = Vec::new();
        self.apply_to(message, &mut changes);
        changes
    }

    /// Applies a notification and appends the resulting changes.
    pub fn apply_to(&mut self, message: KernelMessage, changes: &mut Vec<HostChange>) {
        self.outdated.note(&message, &self.routes);
        change(self, message, changes);
    }

    /// Applies an entry of a list that [`HostState::begin_list`] began. If the entry differs from this state,
    /// counts a difference. Ignores objects that newer notifications have changed ([`outdated`](outdated)).
    pub fn apply_listed(&mut self, message: KernelMessage, changes: &mut Vec<HostChange>) {
        let Some(message) = self.outdated.current_part(message, &self.routes) else { return };
        let known = changes.len();
        let unimportant = self.differs_little(&message);
        let message = match message {
            KernelMessage::Route(entry, _) => KernelMessage::Route(entry, Placement::Listed),
            message => message,
        };
        change(self, message, changes);
        if !unimportant {
            changes[known..].iter().for_each(|change| tracing::debug!(?change, "a list differs"));
            self.differences += (changes.len() - known) as u64;
        }
    }

    /// Returns the number of differences that lists and sweeps have found and corrected so far.
    pub fn differences(&self) -> u64 {
        self.differences
    }

    /// Returns the whole state as changes against an empty state, devices first.
    pub fn snapshot(&self) -> Vec<HostChange> {
        let links = self.links().cloned().map(HostChange::Link);
        let switches = self.forwarding.as_changes();
        let addresses = self.addresses().map(|address| HostChange::Address {
            ifindex: address.ifindex,
            net: address.net(),
            present: true,
        });
        let neighbours = self.neighbours().map(|neighbour| HostChange::Neighbour {
            ifindex: neighbour.ifindex,
            ip: neighbour.ip,
            neighbour: Some(*neighbour),
        });
        let routes =
            self.routes().map(|route| HostChange::Route { prefix: route.prefix, route: Some(route) });
        links.chain(switches).chain(addresses).chain(neighbours).chain(routes).collect()
    }

    /// Makes a change, and appends the resulting changes of the effective routes of `prefixes`.
    fn transition(
        &mut self,
        prefixes: impl IntoIterator<Item = IpNet>,
        changes: &mut Vec<HostChange>,
        change: impl FnOnce(&mut Self),
    ) {
        let before: Vec<(IpNet, Option<HostRoute>)> =
            prefixes.into_iter().map(|prefix| (prefix, self.effective(prefix))).collect();
        change(self);
        for (prefix, before) in before {
            let route = self.effective(prefix);
            if route != before {
                changes.push(HostChange::Route { prefix, route });
            }
        }
    }
}

/// Applies a message: a notification, or a list entry that is not outdated.
fn change(state: &mut HostState, message: KernelMessage, changes: &mut Vec<HostChange>) {
    match message {
        KernelMessage::Link(link) => state.set_link(link, changes),
        KernelMessage::LinkGone(ifindex) => state.remove_link(ifindex, changes),
        KernelMessage::Address(address) => state.set_address(address, changes),
        KernelMessage::AddressGone(address) => state.remove_address(&address, changes),
        KernelMessage::Route(entry, placement) => state.set_route(entry, placement, changes),
        KernelMessage::RouteGone(entry) => state.remove_route(&entry, changes),
        KernelMessage::NextHop(object) => state.set_next_hop(object, changes),
        KernelMessage::NextHopGone(id) => state.remove_next_hop(id, changes),
        KernelMessage::Neighbour(neighbour) => state.set_neighbour(neighbour, changes),
        KernelMessage::NeighbourGone(neighbour) => {
            state.remove_neighbour(neighbour.ifindex, neighbour.ip, changes);
        }
        KernelMessage::Queueing(ifindex) => changes.push(HostChange::Queueing(Some(ifindex))),
        KernelMessage::Switches { ifindex, family, update } => {
            state.forwarding.update(ifindex, family, update, changes);
        }
        KernelMessage::SwitchesGone { ifindex, family } => state.forwarding.remove(ifindex, family, changes),
    }
}

/// Returns the destination addresses of packets to this host: its own, directed broadcast and anycast
/// addresses, without 127.0.0.0/8.
pub fn local_addresses(state: &HostState) -> Vec<IpAddr> {
    let ours = |route: &HostRoute| {
        route.table == route_table::LOCAL
            && matches!(route.kind, RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast)
            && route.prefix.prefix_len() == route.prefix.max_prefix_len()
    };
    let loopback = |ip: &IpAddr| matches!(ip, IpAddr::V4(ip) if ip.is_loopback());
    state.routes().filter(ours).map(|route| route.prefix.addr()).filter(|ip| !loopback(ip)).collect()
}
