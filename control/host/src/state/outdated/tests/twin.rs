//! Twin: model of the kernel with its objects, which generates the notifications of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::step::{RouteForm, SHARED, Step};
use crate::forwarding::SwitchesUpdate;
use crate::state::message::{KernelMessage, NextHopObject, Placement, RouteEntry};
use crate::state::tests::{address, entry, hop, link};
use crate::{Family, HostAddress, HostLink, HostNeighbour, HostNextHop, NeighbourState};

/// Devices that no step removes.
pub const LASTING: u32 = 9;
pub const LASTING_TOO: u32 = 10;
/// Gateway number that stands for gateway 1 with an encapsulation.
const ENCAPSULATED: u8 = 2;
/// Prefix of the multipath routes.
pub const SIBLINGS: &str = "fd01::/64";
/// Prefix of the only route.
pub const SOLE: &str = "fd02::/64";

/// Modelled kernel with its current objects.
#[derive(Default)]
pub struct Twin {
    links: BTreeMap<u32, u8>,
    addresses: BTreeMap<(u32, u8), bool>,
    neighbours: BTreeMap<(u32, u8), u8>,
    objects: BTreeMap<u32, (u32, u8)>,
    groups: BTreeMap<u32, Vec<u32>>,
    forwarding: BTreeMap<u32, bool>,
    routes: BTreeMap<u8, RouteEntry>,
    stacked: [Vec<RouteEntry>; 2],
    siblings: BTreeMap<u32, BTreeSet<(u32, u8)>>,
    sole: Option<RouteEntry>,
}

pub fn device(ifindex: u32, mtu: u8) -> KernelMessage {
    let KernelMessage::Link(message) = link(ifindex, true, true) else { unreachable!() };
    KernelMessage::Link(HostLink { mtu: 1500 + u32::from(mtu), ..message })
}

fn source(ifindex: u32, last: u8) -> IpAddr {
    if last == SHARED { IpAddr::from([10, 0, 0, SHARED]) } else { address(ifindex, last).address }
}

pub fn an_address(ifindex: u32, last: u8, tentative: bool) -> HostAddress {
    HostAddress { address: source(ifindex, last), tentative, ..address(ifindex, last) }
}

fn neighbour(ifindex: u32, last: u8, mac: u8) -> HostNeighbour {
    let state = if mac == 0 { NeighbourState::Failed } else { NeighbourState::Reachable };
    let mac = (mac != 0).then_some([2, 0, 0, 0, 0, mac]);
    HostNeighbour { ifindex, ip: IpAddr::from([10, 0, ifindex as u8, last]), mac, state }
}

pub fn object(id: u32, (ifindex, gateway): (u32, u8)) -> NextHopObject {
    let hop = Some(hop(ifindex, &format!("192.0.2.{gateway}")));
    NextHopObject { id, group: None, blackhole: false, hop }
}

pub fn group(id: u32, members: &[u32]) -> NextHopObject {
    let members = members.iter().map(|member| (*member, 1)).collect();
    NextHopObject { id, group: Some(members), blackhole: false, hop: None }
}

/// Returns the ids of a group's members. The id of group 1 is lower than those of its members; other groups
/// have a higher id.
fn members(group: u32) -> [u32; 2] {
    if group == 1 { [2, 3] } else { [3, 4] }
}

pub fn switches(ifindex: u32, on: bool) -> KernelMessage {
    let update = SwitchesUpdate { forwarding: Some(on), ..SwitchesUpdate::default() };
    KernelMessage::Switches { ifindex: Some(ifindex), family: Family::Ipv4, update }
}

fn stacked(v6: bool, number: u8) -> RouteEntry {
    let device = if number.is_multiple_of(2) { LASTING } else { LASTING_TOO };
    if v6 {
        return RouteEntry { metric: 256, protocol: number, ..entry("fe80::/64", &[hop(device, "")]) };
    }
    entry("10.99.0.0/16", &[hop(device, &format!("192.0.2.{number}"))])
}

fn with_siblings(metric: u32, hops: impl IntoIterator<Item = (u32, u8)>) -> RouteEntry {
    let hop = |(device, gateway): (u32, u8)| {
        let encap = gateway == ENCAPSULATED;
        HostNextHop { encap, ..hop(device, &format!("fd00::{}", if encap { 1 } else { gateway })) }
    };
    let hops: Vec<HostNextHop> = hops.into_iter().map(hop).collect();
    RouteEntry { metric, ..entry(SIBLINGS, &hops) }
}

fn sole(gateways: u8) -> RouteEntry {
    let gateway = if gateways == 0 { "" } else { "fd00::1" };
    let devices = if gateways == 2 { vec![LASTING, LASTING_TOO] } else { vec![LASTING] };
    let hops: Vec<HostNextHop> = devices.into_iter().map(|device| hop(device, gateway)).collect();
    entry(SOLE, &hops)
}

impl Twin {
    /// Makes a change, and returns its notifications in the kernel's order.
    pub fn apply(&mut self, step: &Step) -> Vec<KernelMessage> {
        let mut messages = Vec::new();
        if let Step::LinkGone(ifindex) = step {
            let lost = self.addresses.iter().filter(|((device, _), _)| device == ifindex);
            messages.extend(lost.map(|((device, last), tentative)| {
                KernelMessage::AddressGone(an_address(*device, *last, *tentative))
            }));
        }
        if let Step::Link(ifindex, _) = step
            && !self.forwarding.contains_key(ifindex)
        {
            self.forwarding.insert(*ifindex, false);
            messages.push(switches(*ifindex, false));
        }
        let groups = self.groups.clone();
        messages.extend(self.change(step));
        if let Step::NextHopGone(id) = step {
            messages.extend(self.changed_groups(groups, *id));
        }
        messages
    }

    fn change(&mut self, step: &Step) -> Option<KernelMessage> {
        match step {
            Step::Link(ifindex, mtu) => {
                self.links.insert(*ifindex, *mtu);
                Some(device(*ifindex, *mtu))
            }
            Step::LinkGone(ifindex) => self.remove_device(*ifindex),
            Step::Address(ifindex, last, tentative) => {
                self.links.get(ifindex)?;
                let was = self.addresses.get(&(*ifindex, *last));
                // After a repeated notification, the state can't tell that the device had the address before.
                if was.is_some() && *last == SHARED {
                    return None;
                }
                self.addresses.insert((*ifindex, *last), *tentative);
                Some(KernelMessage::Address(an_address(*ifindex, *last, *tentative)))
            }
            Step::AddressGone(ifindex, last) => {
                // Keep the last address of a device: with it, the kernel would also remove other routes.
                let is_last = self.addresses.keys().filter(|(other, _)| other == ifindex).count() < 2;
                let tentative = *self.addresses.get(&(*ifindex, *last)).filter(|_| !is_last)?;
                self.remove_address(*ifindex, *last);
                Some(KernelMessage::AddressGone(an_address(*ifindex, *last, tentative)))
            }
            Step::Neighbour(ifindex, last, mac) => {
                self.links.get(ifindex)?;
                self.neighbours.insert((*ifindex, *last), *mac);
                Some(KernelMessage::Neighbour(neighbour(*ifindex, *last, *mac)))
            }
            Step::NeighbourGone(ifindex, last) => {
                let mac = self.neighbours.remove(&(*ifindex, *last))?;
                Some(KernelMessage::NeighbourGone(neighbour(*ifindex, *last, mac)))
            }
            Step::Forwarding(ifindex, on) => {
                self.links.get(ifindex)?;
                self.forwarding.insert(*ifindex, *on);
                Some(switches(*ifindex, *on))
            }
            Step::NextHop(..) | Step::NextHopGone(_) | Step::Group(_) => self.change_object(step),
            step => self.change_route(step),
        }
    }

    fn change_object(&mut self, step: &Step) -> Option<KernelMessage> {
        match step {
            Step::NextHop(id, ifindex, gateway) => {
                self.links.get(ifindex)?;
                let (ifindex, _) = self.objects.get(id).copied().unwrap_or((*ifindex, 0));
                self.objects.insert(*id, (ifindex, *gateway));
                Some(KernelMessage::NextHop(object(*id, (ifindex, *gateway))))
            }
            Step::NextHopGone(id) => self.remove_object(*id).then_some(KernelMessage::NextHopGone(*id)),
            Step::Group(id) => {
                let here = members(*id).into_iter().filter(|member| self.objects.contains_key(member));
                let here: Vec<u32> = here.collect();
                if here.is_empty() || self.groups.contains_key(id) {
                    return None;
                }
                let message = KernelMessage::NextHop(group(*id, &here));
                self.groups.insert(*id, here);
                Some(message)
            }
            _ => None,
        }
    }

    fn change_route(&mut self, step: &Step) -> Option<KernelMessage> {
        match step {
            Step::Route(number, form) => {
                let route = self.route(*number, form)?;
                self.routes.insert(*number, route.clone());
                Some(KernelMessage::Route(route, Placement::Replace))
            }
            Step::RouteGone(number) => self.routes.remove(number).map(KernelMessage::RouteGone),
            Step::Stacked { v6, number, prepend } => {
                let (route, prepend) = (stacked(*v6, *number), *prepend && !v6);
                let routes = &mut self.stacked[usize::from(*v6)];
                if routes.contains(&route) {
                    return None;
                }
                routes.insert(if prepend { 0 } else { routes.len() }, route.clone());
                let placement = if prepend { Placement::Prepend } else { Placement::Append };
                Some(KernelMessage::Route(route, placement))
            }
            Step::StackedAgain { v6, number } => {
                let route = stacked(*v6, *number);
                let is_known = self.stacked[usize::from(*v6)].contains(&route);
                is_known.then_some(KernelMessage::Route(route, Placement::Prepend))
            }
            Step::StackedGone { v6, number } => {
                let (route, routes) = (stacked(*v6, *number), &mut self.stacked[usize::from(*v6)]);
                let at = routes.iter().position(|other| *other == route)?;
                Some(KernelMessage::RouteGone(routes.remove(at)))
            }
            Step::Sole(gateways) => {
                let route = self.sole.insert(sole(*gateways));
                Some(KernelMessage::Route(route.clone(), Placement::Replace))
            }
            Step::SoleGone => self.sole.take().map(KernelMessage::RouteGone),
            step => self.change_siblings(step),
        }
    }

    fn change_siblings(&mut self, step: &Step) -> Option<KernelMessage> {
        match step {
            Step::Sibling { metric, device, gateway, alone } => {
                self.links.get(device)?;
                let hops = self.siblings.entry(*metric).or_default();
                hops.insert((*device, *gateway));
                let named = if *alone { BTreeSet::from([(*device, *gateway)]) } else { hops.clone() };
                Some(KernelMessage::Route(with_siblings(*metric, named), Placement::Append))
            }
            Step::SiblingGone { metric, device, gateway } => {
                let gone = (*device, *gateway);
                let removed = self.siblings.get_mut(metric)?.remove(&gone);
                removed.then(|| KernelMessage::RouteGone(with_siblings(*metric, [gone])))
            }
            Step::Siblings { metric, devices } => {
                let here = devices.iter().filter(|device| self.links.contains_key(device));
                let hops: BTreeSet<_> = here.map(|device| (*device, 7)).collect();
                (!hops.is_empty()).then(|| {
                    self.siblings.insert(*metric, hops.clone());
                    KernelMessage::Route(with_siblings(*metric, hops), Placement::Replace)
                })
            }
            Step::SiblingsGone { metric } => {
                let hops = self.siblings.remove(metric).filter(|hops| !hops.is_empty())?;
                Some(KernelMessage::RouteGone(with_siblings(*metric, hops)))
            }
            _ => None,
        }
    }

    fn route(&self, number: u8, form: &RouteForm) -> Option<RouteEntry> {
        let route = entry(&format!("10.{number}.0.0/16"), &[]);
        match form {
            RouteForm::Over(devices) => {
                devices.iter().all(|device| self.links.contains_key(device)).then_some(())?;
                let hops = devices.iter().map(|device| hop(*device, "192.0.2.1")).collect();
                Some(RouteEntry { next_hops: hops, ..route })
            }
            RouteForm::From(device, last) => {
                self.addresses.get(&(*device, *last))?;
                let preferred_source = Some(source(*device, *last));
                let next_hops = vec![hop(LASTING, "192.0.2.1")];
                Some(RouteEntry { next_hops, preferred_source, ..route })
            }
            RouteForm::Object(id) => {
                let next_hops = self.next_hops(*id);
                (!next_hops.is_empty()).then_some(RouteEntry { next_hops, next_hop_id: Some(*id), ..route })
            }
        }
    }

    /// Returns the next hops of an object or of a group.
    fn next_hops(&self, id: u32) -> Vec<HostNextHop> {
        let members = self.groups.get(&id).cloned().unwrap_or_else(|| vec![id]);
        members.iter().filter_map(|id| object(*id, *self.objects.get(id)?).hop).collect()
    }

    fn remove_address(&mut self, ifindex: u32, last: u8) {
        self.addresses.remove(&(ifindex, last));
        let lost = source(ifindex, last);
        if self.addresses.keys().all(|(device, last)| source(*device, *last) != lost) {
            self.routes.retain(|_, route| route.preferred_source != Some(lost));
        }
    }

    /// Removes a next-hop object or a group, its routes and memberships, and the emptied groups.
    fn remove_object(&mut self, id: u32) -> bool {
        if self.objects.remove(&id).is_none() && self.groups.remove(&id).is_none() {
            return false;
        }
        self.routes.retain(|_, route| route.next_hop_id != Some(id));
        self.groups.values_mut().for_each(|members| members.retain(|member| *member != id));
        let emptied = self.groups.iter().filter(|(_, members)| members.is_empty());
        let emptied: Vec<u32> = emptied.map(|(id, _)| *id).collect();
        for group in emptied {
            self.remove_object(group);
        }
        true
    }

    /// Returns the notifications of the groups that changed because the object `removed` was removed with a
    /// notification.
    fn changed_groups(&self, before: BTreeMap<u32, Vec<u32>>, removed: u32) -> Vec<KernelMessage> {
        let changed = before.into_iter().filter(|(id, members)| self.groups.get(id) != Some(members));
        let message = |(id, _): (u32, Vec<u32>)| match self.groups.get(&id) {
            Some(members) => KernelMessage::NextHop(group(id, members)),
            None => KernelMessage::NextHopGone(id),
        };
        changed.filter(|(id, _)| *id != removed).map(message).collect()
    }

    /// Removes a device and all objects on it. Only the addresses are announced as removed.
    fn remove_device(&mut self, ifindex: u32) -> Option<KernelMessage> {
        self.links.remove(&ifindex)?;
        (0..3).for_each(|last| self.remove_address(ifindex, last));
        self.neighbours.retain(|(device, _), _| *device != ifindex);
        self.forwarding.remove(&ifindex);
        let objects = self.objects.iter().filter(|(_, (device, _))| *device == ifindex);
        let objects: Vec<u32> = objects.map(|(id, _)| *id).collect();
        for id in objects {
            self.remove_object(id);
        }
        self.routes.retain(|_, route| {
            route.next_hop_id.is_some() || route.next_hops.iter().all(|hop| hop.ifindex != ifindex)
        });
        self.siblings.values_mut().for_each(|hops| hops.retain(|(device, _)| *device != ifindex));
        Some(KernelMessage::LinkGone(ifindex))
    }

    /// Returns a list of all objects. With `each`, an IPv6 route has one message per next hop; otherwise one
    /// message in total.
    pub fn list(&self, each: bool) -> Vec<KernelMessage> {
        let add = |route: RouteEntry| KernelMessage::Route(route, Placement::Append);
        let mut list = vec![device(LASTING, 0), device(LASTING_TOO, 0)];
        list.extend(self.links.iter().map(|(ifindex, mtu)| device(*ifindex, *mtu)));
        let addresses = self.addresses.iter();
        list.extend(addresses.map(|((d, last), t)| KernelMessage::Address(an_address(*d, *last, *t))));
        list.extend(self.forwarding.iter().map(|(ifindex, on)| switches(*ifindex, *on)));
        let objects = self.objects.iter().map(|(id, hop)| (*id, object(*id, *hop)));
        let groups = self.groups.iter().map(|(id, members)| (*id, group(*id, members)));
        let by_id: BTreeMap<u32, NextHopObject> = objects.chain(groups).collect();
        list.extend(by_id.into_values().map(KernelMessage::NextHop));
        let routes = self.routes.values().map(|route| match route.next_hop_id {
            Some(id) => RouteEntry { next_hops: self.next_hops(id), ..route.clone() },
            None => route.clone(),
        });
        list.extend(routes.chain(self.stacked.iter().flatten().cloned()).map(add));
        let siblings = self.siblings.iter().filter(|(_, hops)| !hops.is_empty());
        let siblings = siblings.map(|(metric, hops)| with_siblings(*metric, hops.iter().copied()));
        for route in siblings.chain(self.sole.clone()) {
            if each {
                let hops = route.next_hops.iter();
                list.extend(hops.map(|hop| add(RouteEntry { next_hops: vec![*hop], ..route.clone() })));
            } else {
                list.push(add(route));
            }
        }
        let neighbours = self.neighbours.iter();
        list.extend(neighbours.map(|((d, last), mac)| KernelMessage::Neighbour(neighbour(*d, *last, *mac))));
        list
    }
}
