//! Effects of device messages on the state, including route changes that the kernel makes without a message.

use ipnet::IpNet;

use super::route_table::{Dependency, StoredRoute};
use super::{HostState, Stamped};
use crate::{HostChange, HostLink};

/// Scope of routes to the host itself, which survive while their device is down.
const SCOPE_HOST: u8 = 254;

impl HostState {
    pub(super) fn set_link(&mut self, link: HostLink, changes: &mut Vec<HostChange>) {
        let ifindex = link.ifindex;
        let was = self.link(ifindex).cloned();
        let stamped = Stamped { value: link.clone(), generation: self.generation };
        let same = was.as_ref() == Some(&link);
        let was = was.map_or((false, false), |was| (was.admin_up, was.carrier));
        let now = (link.admin_up, link.carrier);
        if !same {
            changes.push(HostChange::Link(link));
        }
        if was == now {
            self.links.insert(ifindex, stamped);
            return;
        }
        let affected = self.affected_by_device(ifindex);
        self.transition(affected, changes, |state| {
            state.links.insert(ifindex, stamped);
            follow_link(state, ifindex, was, now);
        });
    }

    pub(super) fn remove_link(&mut self, ifindex: u32, changes: &mut Vec<HostChange>) {
        self.forwarding.remove_device(ifindex, changes);
        remove_without_switches(self, ifindex, changes);
    }

    /// Marks the IPv4 next hops of a device dead or alive, and drops the routes without a living next hop.
    pub(super) fn mark_next_hops(&mut self, ifindex: u32, dead: bool) {
        retain_ipv4(self, ifindex, |route| {
            let hops = &mut route.entry.next_hops;
            hops.iter_mut().filter(|hop| hop.ifindex == ifindex).for_each(|hop| hop.dead = dead);
            !hops.iter().all(|hop| hop.dead)
        });
    }
}

fn retain_ipv4(state: &mut HostState, ifindex: u32, mut keep: impl FnMut(&mut StoredRoute) -> bool) {
    let users = state.routes.dependants(Dependency::Device(ifindex));
    let users: Vec<IpNet> = users.filter(|prefix| prefix.addr().is_ipv4()).collect();
    for prefix in users {
        state.routes.retain(prefix, |route| !uses(route, ifindex) || keep(route));
    }
}

/// Removes all routes and next-hop objects of a removed device. An IPv4 multipath route is removed as a
/// whole, even if only one next hop is on the device.
fn drop_routes_of(state: &mut HostState, ifindex: u32) {
    for id in state.next_hops.on_device(ifindex) {
        state.outdated.note_lost_member(id);
        let groups = state.drop_next_hop(id).into_iter().filter(|gone| *gone != id);
        groups.for_each(|group| state.outdated.note_removed(Dependency::NextHop(group)));
    }
    let users: Vec<IpNet> = state.routes.dependants(Dependency::Device(ifindex)).collect();
    for prefix in users {
        state.routes.retain(prefix, |route| {
            // `drop_next_hop` has already removed the routes by known next-hop objects.
            let by_unknown_object =
                route.entry.next_hop_id.is_some_and(|id| state.next_hops.resolve(id).is_none());
            let hops = &route.entry.next_hops;
            let has_lost_object = by_unknown_object && hops.iter().all(|hop| hop.ifindex == ifindex);
            !has_lost_object && !uses(route, ifindex)
        });
    }
}

/// Drops the IPv4 routes by a device that went down. Keeps a route with another next hop whose device is up.
fn flush_ipv4(state: &mut HostState, ifindex: u32) {
    let down: Vec<u32> = state.links().filter(|link| !link.admin_up).map(|link| link.ifindex).collect();
    retain_ipv4(state, ifindex, |route| {
        let hops = &route.entry.next_hops;
        route.entry.scope == SCOPE_HOST || !hops.iter().all(|hop| hop.dead || down.contains(&hop.ifindex))
    });
}

fn follow_link(state: &mut HostState, ifindex: u32, was: (bool, bool), now: (bool, bool)) {
    let ((was_up, had_carrier), (up, carrier)) = (was, now);
    if (was_up && !up) || (had_carrier && !carrier) {
        for id in state.next_hops.on_device(ifindex) {
            state.drop_next_hop(id);
        }
    }
    if was_up && !up {
        flush_ipv4(state, ifindex);
    }
    if !was_up && up {
        state.mark_next_hops(ifindex, false);
    }
}

/// Removes a device and all objects on it, except its forwarding switches: the kernel may already have
/// announced these for a new device with the same index.
pub(super) fn remove_without_switches(state: &mut HostState, ifindex: u32, changes: &mut Vec<HostChange>) {
    let affected = state.affected_by_device(ifindex);
    let mut was_here = false;
    state.transition(affected, changes, |state| {
        drop_routes_of(state, ifindex);
        was_here = state.links.remove(&ifindex).is_some();
    });
    let addresses: Vec<_> = state.addresses().filter(|address| address.ifindex == ifindex).copied().collect();
    addresses.iter().for_each(|address| state.remove_address(address, changes));
    let neighbours: Vec<_> = state.neighbours().filter(|n| n.ifindex == ifindex).copied().collect();
    neighbours.iter().for_each(|n| state.remove_neighbour(n.ifindex, n.ip, changes));
    if was_here {
        changes.push(HostChange::LinkGone(ifindex));
    }
}

/// Whether a route has a next hop on the device itself, not by a next-hop object.
pub(super) fn uses(route: &StoredRoute, ifindex: u32) -> bool {
    route.entry.next_hop_id.is_none() && route.entry.next_hops.iter().any(|hop| hop.ifindex == ifindex)
}
