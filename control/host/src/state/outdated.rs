//! Objects that notifications name during a list (netlink dump).
//!
//! The kernel builds each part of a list first, and queues it for the socket later. A notification of a
//! change in between arrives before the part, although the part shows the older state. So notifications
//! outweigh lists. The mirror ignores a listed object if a notification since the start of the list names the
//! object, or removes another object on which it depends. Each next hop of an IPv6 route counts as an object
//! of its own, and so does each switch of a device.
//!
//! In these cases, the mirror wrongly ignores a current object until the next list:
//! - a change that no notification reports (an XDP link, a queueing discipline, the neighbour state),
//! - a route that the mirror does not know yet, if a notification replaces another route of the same metric,
//! - a route that the mirror believes to be the replaced one, because it does not know the kernel's first
//!   route,
//! - a route by a next-hop object that moves to a device created anew,
//! - a route from an address of two devices, if the list is newer than the notifications of the address,
//! - a next-hop group with a lower id than one of its members, if the mirror knows this member on another
//!   device, and that device is removed.
//!
//! In these cases, a list brings back an object that no longer exists:
//! - routes that the kernel drops silently as a device goes down, until the mirror lists the device's routes,
//! - until the next list, a replaced IPv6 route that the mirror does not know. This happens if exactly one of
//!   the old and the new route has a gateway and no next-hop object,
//! - until the next list, a replaced route that the mirror knows behind a route which the kernel no longer
//!   has. A rule against this case would remove current routes after each replacement.
//!
//! If a list stays incomplete, routes from an address that is removed meanwhile stay until the next list.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::AddressKey;
use super::message::{KernelMessage, NextHopObject, Placement, RouteEntry};
use super::route_table::{Dependency, RouteTable, same_route, same_slot, siblings};
use crate::forwarding::SwitchesUpdate;
use crate::{Family, HostNextHop};

/// Notes about the notifications since the current list began; `None` between two lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outdated(Option<Notes>);

#[derive(Clone, Debug, Default)]
struct Notes {
    /// Whether the list covers the addresses of all devices.
    has_addresses: bool,
    objects: HashSet<Object>,
    switches: HashMap<(Option<u32>, Family), SwitchesUpdate>,
    routes: HashMap<IpNet, Vec<RouteNote>>,
    /// Removed objects; the kernel removes most of their dependants without a notification.
    removed: HashSet<Dependency>,
    /// Next-hop objects that groups have lost because the objects' device was removed. The list of groups
    /// does not name the devices of members.
    lost_members: HashSet<u32>,
}

/// Identity of an object that a notification describes completely.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Object {
    Link(u32),
    Address(AddressKey),
    NextHop(u32),
    Neighbour(u32, IpAddr),
}

/// Route that a notification has added, changed or removed.
#[derive(Clone, Debug)]
struct RouteNote {
    entry: RouteEntry,
    /// Whether the route has replaced another route, which the notification does not name.
    replaces: bool,
}

impl Outdated {
    /// Begins to note notifications. `has_addresses` tells whether the list covers the addresses of all
    /// devices.
    pub fn begin(&mut self, has_addresses: bool) {
        self.0 = Some(Notes { has_addresses, ..Notes::default() });
    }

    /// Deletes the notes at the end of a list, even if the list stays incomplete.
    pub fn end(&mut self) {
        self.0 = None;
    }

    /// Whether a list is in progress.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a list that covers the addresses of all devices is in progress.
    pub(super) fn awaits_addresses(&self) -> bool {
        self.0.as_ref().is_some_and(|notes| notes.has_addresses)
    }

    /// Returns the source addresses that no device has any more.
    pub(super) fn removed_sources(&self) -> Vec<IpAddr> {
        let removed = self.0.iter().flat_map(|notes| &notes.removed);
        let source = |dependency: &Dependency| match dependency {
            Dependency::Source(source) => Some(*source),
            _ => None,
        };
        removed.filter_map(source).collect()
    }

    /// Returns the devices whose switches a notification has named.
    pub(super) fn devices_with_switches(&self) -> BTreeSet<u32> {
        let switches = self.0.iter().flat_map(|notes| notes.switches.keys());
        switches.filter_map(|(ifindex, _)| *ifindex).collect()
    }

    /// Notes the objects that a notification names. `table` holds the routes as they were before the
    /// notification.
    pub(super) fn note(&mut self, message: &KernelMessage, table: &RouteTable) {
        let Some(notes) = &mut self.0 else { return };
        notes.objects.extend(object(message));
        match message {
            KernelMessage::Route(entry, placement) => {
                // When the next-hop object of a route changes, the kernel announces the route as replaced.
                let is_object_change = entry.next_hop_id.is_some() && table.contains(entry);
                notes.note_route(entry, *placement == Placement::Replace && !is_object_change);
            }
            KernelMessage::RouteGone(entry) => notes.note_route(entry, false),
            KernelMessage::Switches { ifindex, family, update } => {
                notes.note_switches(*ifindex, *family, *update);
            }
            KernelMessage::SwitchesGone { ifindex, family } => {
                notes.note_switches(Some(*ifindex), *family, SwitchesUpdate::ALL_OFF);
            }
            KernelMessage::LinkGone(ifindex) => self.note_removed(Dependency::Device(*ifindex)),
            _ => {}
        }
    }

    /// Notes a route that a notification has replaced without naming it.
    pub(super) fn note_replaced(&mut self, entry: &RouteEntry) {
        if let Some(notes) = &mut self.0 {
            notes.note_route(entry, false);
        }
    }

    /// Notes the removal of an object on which other objects depend.
    pub(super) fn note_removed(&mut self, dependency: Dependency) {
        if let Some(notes) = &mut self.0 {
            notes.removed.insert(dependency);
        }
    }

    /// Notes a next-hop object that groups have lost with its device.
    pub(super) fn note_lost_member(&mut self, id: u32) {
        if let Some(notes) = &mut self.0 {
            notes.lost_members.insert(id);
        }
    }

    /// Returns the part of a listed message that no notification has outdated. Returns the removal of a
    /// next-hop object instead if the object was removed without a notification.
    pub(super) fn current_part(
        &mut self,
        message: KernelMessage,
        table: &RouteTable,
    ) -> Option<KernelMessage> {
        let Some(notes) = &mut self.0 else { return Some(message) };
        if object(&message).is_some_and(|object| notes.objects.contains(&object)) {
            return None;
        }
        let is_on_removed = device(&message).is_some_and(|ifindex| notes.is_removed(ifindex));
        match message {
            // Report the object as removed: groups that the list named earlier may have it as a member.
            KernelMessage::NextHop(object) if is_on_removed => Some(KernelMessage::NextHopGone(object.id)),
            _ if is_on_removed => None,
            KernelMessage::NextHop(object) => Some(notes.current_next_hop(object)),
            KernelMessage::Address(address) => {
                // Another device still has the address.
                notes.removed.remove(&Dependency::Source(address.address));
                Some(KernelMessage::Address(address))
            }
            KernelMessage::Route(entry, placement) => {
                let entry = notes.current_route(entry, table)?;
                Some(KernelMessage::Route(entry, placement))
            }
            KernelMessage::Switches { ifindex, family, update } => {
                let named = notes.switches.get(&(ifindex, family)).copied().unwrap_or_default();
                let update = update.without(&named);
                (update != SwitchesUpdate::default()).then_some(KernelMessage::Switches {
                    ifindex,
                    family,
                    update,
                })
            }
            message => Some(message),
        }
    }
}

impl Notes {
    fn note_route(&mut self, entry: &RouteEntry, replaces: bool) {
        // Allocate for one route: most prefixes have no more.
        let notes = self.routes.entry(entry.prefix).or_insert_with(|| Vec::with_capacity(1));
        for entry in siblings(entry.clone()) {
            match notes.iter_mut().find(|note| same_route(&note.entry, &entry)) {
                Some(note) => note.replaces |= replaces,
                None => notes.push(RouteNote { entry, replaces }),
            }
        }
    }

    fn note_switches(&mut self, ifindex: Option<u32>, family: Family, update: SwitchesUpdate) {
        let named = self.switches.entry((ifindex, family)).or_default();
        *named = named.or(update);
    }

    fn is_removed(&self, ifindex: u32) -> bool {
        self.removed.contains(&Dependency::Device(ifindex))
    }

    /// Returns a listed next-hop object without lost members, or the removal of an emptied group.
    fn current_next_hop(&mut self, mut object: NextHopObject) -> KernelMessage {
        let is_lost =
            |id: u32| self.lost_members.contains(&id) || self.removed.contains(&Dependency::NextHop(id));
        if let Some(group) = &mut object.group {
            let members = group.len();
            group.retain(|(member, _)| !is_lost(*member));
            if group.is_empty() && members > 0 {
                return KernelMessage::NextHopGone(object.id);
            }
        }
        // The list names this object, so the object exists. The mirror noted its loss because it knew the
        // object on another device, or with fewer members.
        self.lost_members.remove(&object.id);
        self.removed.remove(&Dependency::NextHop(object.id));
        KernelMessage::NextHop(object)
    }

    /// Returns a listed route without its outdated next hops; `None` if the whole route is outdated.
    fn current_route(&self, entry: RouteEntry, table: &RouteTable) -> Option<RouteEntry> {
        if self.removed.is_empty() && !self.routes.contains_key(&entry.prefix) {
            return Some(entry);
        }
        let mut routes = siblings(entry);
        routes.retain(|route| !self.outdates(route, table));
        let hops = routes.iter().flat_map(|route| &route.next_hops);
        let next_hops: Vec<HostNextHop> = hops.copied().collect();
        Some(RouteEntry { next_hops, ..routes.pop()? })
    }

    fn outdates(&self, route: &RouteEntry, table: &RouteTable) -> bool {
        if self.has_lost_dependency(route) {
            return true;
        }
        let Some(notes) = self.routes.get(&route.prefix) else { return false };
        let is_replaced = |note: &RouteNote| note.replaces && same_slot(&note.entry, route);
        notes.iter().any(|note| same_route(&note.entry, route))
            || (notes.iter().any(is_replaced) && !table.contains(route))
    }

    fn has_lost_dependency(&self, route: &RouteEntry) -> bool {
        if self.removed.is_empty() {
            return false;
        }
        if route.preferred_source.is_some_and(|ip| self.removed.contains(&Dependency::Source(ip))) {
            return true;
        }
        let on_removed = |hop: &HostNextHop| self.is_removed(hop.ifindex);
        let hops = &route.next_hops;
        match route.next_hop_id {
            Some(id) if self.removed.contains(&Dependency::NextHop(id)) => true,
            // A group loses its members one by one. So a route by a group is outdated only if all its next
            // hops are outdated.
            Some(_) => !hops.is_empty() && hops.iter().all(on_removed),
            None => hops.iter().any(on_removed),
        }
    }
}

fn object(message: &KernelMessage) -> Option<Object> {
    match message {
        KernelMessage::Link(link) => Some(Object::Link(link.ifindex)),
        KernelMessage::LinkGone(ifindex) => Some(Object::Link(*ifindex)),
        KernelMessage::Address(address) | KernelMessage::AddressGone(address) => {
            Some(Object::Address(address.key()))
        }
        KernelMessage::NextHop(object) => Some(Object::NextHop(object.id)),
        KernelMessage::NextHopGone(id) => Some(Object::NextHop(*id)),
        KernelMessage::Neighbour(neighbour) | KernelMessage::NeighbourGone(neighbour) => {
            Some(Object::Neighbour(neighbour.ifindex, neighbour.ip))
        }
        _ => None,
    }
}

/// Returns the device of an object that is removed together with its device.
fn device(message: &KernelMessage) -> Option<u32> {
    match message {
        KernelMessage::Address(address) => Some(address.ifindex),
        KernelMessage::NextHop(object) => object.hop.map(|hop| hop.ifindex),
        KernelMessage::Neighbour(neighbour) => Some(neighbour.ifindex),
        KernelMessage::Switches { ifindex, .. } => *ifindex,
        _ => None,
    }
}
