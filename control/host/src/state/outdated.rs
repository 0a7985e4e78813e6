//! Objects that notifications name while a list is under way.
//!
//! The kernel builds a part of a list, and queues the part later. Notifications of changes in between come
//! before the part, which is then older. So notifications outweigh lists: a listed object is left out if a
//! notification since the start of the list names it, or removes an object that it depends on. The next hops
//! of an IPv6 route count one by one, and so do the switches of a device.
//!
//! The next list finds what is left out wrongly:
//! - a change that no notification reports (an XDP link, a queueing discipline, the neighbour state),
//! - a route that the mirror does not know yet, if a notification replaces another route of the same metric,
//! - a route by a next-hop object that moves to a device created anew.
//!
//! A list may bring back routes that the kernel drops silently as a device goes down. The list of the
//! device's routes, which the mirror makes afterwards, removes them.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::AddressKey;
use super::message::{KernelMessage, Placement, RouteEntry};
use super::route_table::{Dependency, RouteTable, same_route, same_slot, siblings};
use crate::forwarding::SwitchesUpdate;
use crate::{Family, HostNextHop};

/// Notifications since the current list began; `None` between two lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outdated(Option<Notes>);

#[derive(Clone, Debug, Default)]
struct Notes {
    objects: HashSet<Object>,
    switches: HashMap<(Option<u32>, Family), SwitchesUpdate>,
    routes: HashMap<IpNet, Vec<RouteNote>>,
    /// Removed objects; the kernel removes most of their dependants without a notification.
    removed: HashSet<Dependency>,
}

/// Object that each notification describes as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Object {
    Link(u32),
    Address(AddressKey),
    NextHop(u32),
    Neighbour(u32, IpAddr),
}

/// Added, changed or removed route.
#[derive(Clone, Debug)]
struct RouteNote {
    entry: RouteEntry,
    /// Whether the route has replaced another route, which the notification does not name.
    replaces: bool,
}

impl Outdated {
    /// Begins to note notifications.
    pub fn begin(&mut self) {
        self.0 = Some(Notes::default());
    }

    /// Ends the notes, also of a list that stays incomplete.
    pub fn end(&mut self) {
        self.0 = None;
    }

    /// Notes the objects that a notification names.
    pub(super) fn note(&mut self, message: &KernelMessage) {
        let Some(notes) = &mut self.0 else { return };
        notes.objects.extend(object(message));
        match message {
            KernelMessage::Route(entry, placement) => {
                notes.note_route(entry, *placement == Placement::Replace);
            }
            KernelMessage::RouteGone(entry) => notes.note_route(entry, false),
            KernelMessage::Switches { ifindex, family, update } => {
                notes.note_switches(*ifindex, *family, *update);
            }
            KernelMessage::SwitchesGone { ifindex, family } => {
                notes.note_switches(Some(*ifindex), *family, SwitchesUpdate::ALL_OFF);
            }
            KernelMessage::LinkGone(ifindex) => self.note_removed(Dependency::Device(*ifindex)),
            KernelMessage::NextHopGone(id) => self.note_removed(Dependency::NextHop(*id)),
            _ => {}
        }
    }

    /// Notes the removal of an object on which others depend.
    pub(super) fn note_removed(&mut self, dependency: Dependency) {
        if let Some(notes) = &mut self.0 {
            notes.removed.insert(dependency);
        }
    }

    /// Returns the part of a listed message that no notification has outdated.
    pub(super) fn current_part(&self, message: KernelMessage, table: &RouteTable) -> Option<KernelMessage> {
        let Some(notes) = &self.0 else { return Some(message) };
        if object(&message).is_some_and(|object| notes.objects.contains(&object))
            || device(&message).is_some_and(|ifindex| notes.is_removed(ifindex))
        {
            return None;
        }
        match message {
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
        let notes = self.routes.entry(entry.prefix).or_default();
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

    /// Returns a listed route without outdated next hops; `None` if the route is outdated.
    fn current_route(&self, entry: RouteEntry, table: &RouteTable) -> Option<RouteEntry> {
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
            // A group loses its members one by one.
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
            Some(Object::Address((address.ifindex, address.address, address.prefix_length)))
        }
        KernelMessage::NextHop(object) => Some(Object::NextHop(object.id)),
        KernelMessage::NextHopGone(id) => Some(Object::NextHop(*id)),
        KernelMessage::Neighbour(neighbour) | KernelMessage::NeighbourGone(neighbour) => {
            Some(Object::Neighbour(neighbour.ifindex, neighbour.ip))
        }
        _ => None,
    }
}

/// Returns the device of an object that vanishes with its device.
fn device(message: &KernelMessage) -> Option<u32> {
    match message {
        KernelMessage::Address(address) => Some(address.ifindex),
        KernelMessage::NextHop(object) => object.hop.map(|hop| hop.ifindex),
        KernelMessage::Neighbour(neighbour) => Some(neighbour.ifindex),
        KernelMessage::Switches { ifindex, .. } => *ifindex,
        _ => None,
    }
}
