//! Begin and end of lists (netlink dumps), and removal of entries that a list omits.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::HostState;
use super::addresses::drop_routes_from;
use super::devices::{remove_without_switches, uses};
use super::message::KernelMessage;
use super::route_table::{Dependency, StoredRoute};
use crate::HostChange;

/// Part of the kernel's state that a list covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The whole state.
    All,
    /// All next-hop objects, and the routes with a next hop on this device.
    RoutesOf(u32),
}

impl HostState {
    /// Begins a list, and a new generation. [`sweep`](Self::sweep) then removes the entries that were not
    /// listed.
    pub fn begin_list(&mut self, scope: Scope) {
        self.generation += 1;
        self.outdated.begin(scope == Scope::All);
    }

    /// Ends a list. Removes the unlisted entries in its scope, and counts them as differences.
    pub fn sweep(&mut self, scope: Scope, changes: &mut Vec<HostChange>) {
        for source in self.outdated.removed_sources() {
            drop_routes_from(self, source, StoredRoute::is_in_doubt, changes);
        }
        let arriving = self.outdated.devices_with_switches();
        self.outdated.end();
        let known = changes.len();
        for id in self.next_hops.older_than(self.generation) {
            self.remove_next_hop(id, changes);
        }
        let prefixes: Vec<IpNet> = match scope {
            Scope::All => self.routes.prefixes().collect(),
            Scope::RoutesOf(ifindex) => self.routes.dependants(Dependency::Device(ifindex)).collect(),
        };
        for prefix in prefixes {
            self.sweep_prefix(prefix, scope, changes);
        }
        if scope == Scope::All {
            self.sweep_devices(&arriving, changes);
        }
        changes[known..].iter().for_each(|change| tracing::debug!(?change, "not in the list"));
        self.differences += (changes.len() - known) as u64;
    }

    fn sweep_prefix(&mut self, prefix: IpNet, scope: Scope, changes: &mut Vec<HostChange>) {
        let generation = self.generation;
        let stale = self.routes.get(prefix).iter().filter(|route| route.generation < generation);
        let affected: BTreeSet<IpNet> =
            stale.flat_map(|route| self.affected(prefix, route.entry.table)).collect();
        if affected.is_empty() {
            return;
        }
        self.transition(affected, changes, |state| {
            state.routes.retain(prefix, |route| {
                let in_scope = match scope {
                    Scope::All => true,
                    Scope::RoutesOf(ifindex) => uses(route, ifindex),
                };
                route.generation >= generation || !in_scope
            });
        });
    }

    fn sweep_devices(&mut self, arriving: &BTreeSet<u32>, changes: &mut Vec<HostChange>) {
        let generation = self.generation;
        // Remove the unlisted addresses, but not the routes from these addresses: the list has named the
        // routes that still exist.
        self.addresses.retain(|(ifindex, ..), address| {
            if address.generation < generation {
                let net = address.value.net();
                changes.push(HostChange::Address { ifindex: *ifindex, net, present: false });
            }
            address.generation >= generation
        });
        let neighbours = self.neighbours.values().filter(|neighbour| neighbour.generation < generation);
        let neighbours: Vec<_> = neighbours.map(|neighbour| neighbour.value).collect();
        neighbours.iter().for_each(|gone| self.remove_neighbour(gone.ifindex, gone.ip, changes));
        let links = self.links.values().filter(|link| link.generation < generation);
        let links: Vec<_> = links.map(|link| link.value.ifindex).collect();
        links.into_iter().for_each(|ifindex| remove_without_switches(self, ifindex, changes));
        // Remove the switches of devices that came and went while notifications were lost. Keep the switches
        // of arriving devices: the kernel announces switches before their device.
        let switches: BTreeSet<u32> = self.forwarding.devices.keys().map(|(ifindex, _)| *ifindex).collect();
        let left = switches.difference(arriving).filter(|ifindex| !self.links.contains_key(*ifindex));
        left.for_each(|ifindex| self.forwarding.remove_device(*ifindex, changes));
    }

    /// Whether a listed entry can differ from the state only by changes that the kernel does not report.
    pub(super) fn differs_little(&self, message: &KernelMessage) -> bool {
        match message {
            KernelMessage::Neighbour(now) => self
                .neighbour(now.ifindex, now.ip)
                .is_some_and(|was| (was.mac, was.state.valid()) == (now.mac, now.state.valid())),
            KernelMessage::Link(now) => self.link(now.ifindex).is_some_and(|was| {
                let was = crate::HostLink { xdp: now.xdp, ..was.clone() };
                was == *now
            }),
            // The kernel announces an IPv6 address only after duplicate address detection.
            KernelMessage::Address(now) => now.tentative,
            _ => false,
        }
    }
}
