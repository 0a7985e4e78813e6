//! Tests of lists whose parts are older than the notifications before them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;

use super::super::tests::{address, entry, hop, link, listed};
use super::super::{HostState, Scope};
use crate::forwarding::SwitchesUpdate;
use crate::state::message::{KernelMessage, NextHopObject, Placement, RouteEntry};
use crate::{Family, HostChange, HostLink, HostNeighbour, HostNextHop, NeighbourState};

/// Devices that no step removes.
const LASTING: u32 = 9;
const LASTING_TOO: u32 = 10;

/// Step of the twin of the kernel.
#[derive(Clone, Debug)]
enum Step {
    /// New MTU of a device.
    Link(u32, u8),
    LinkGone(u32),
    /// Address of a device, tentative or not.
    Address(u32, u8, bool),
    AddressGone(u32, u8),
    Neighbour(u32, u8, u8),
    NeighbourGone(u32, u8),
    /// Next-hop object on a device, with a gateway. An object keeps its device.
    NextHop(u32, u32, u8),
    NextHopGone(u32),
    Forwarding(u32, bool),
    /// The only IPv4 route of a prefix: over one or two devices, from an address, or by a next-hop object.
    Route(u8, RouteForm),
    RouteGone(u8),
    /// One of several IPv4 or IPv6 routes of one prefix and metric, in order.
    Stacked {
        v6: bool,
        number: u8,
        prepend: bool,
    },
    StackedGone {
        v6: bool,
        number: u8,
    },
    /// Next hop of an IPv6 route, announced alone or with the others.
    Sibling {
        metric: u32,
        device: u32,
        gateway: u8,
        alone: bool,
    },
    SiblingGone {
        metric: u32,
        device: u32,
        gateway: u8,
    },
    Siblings {
        metric: u32,
        devices: BTreeSet<u32>,
    },
    SiblingsGone {
        metric: u32,
    },
}

#[derive(Clone, Debug)]
enum RouteForm {
    Over(BTreeSet<u32>),
    From(u32, u8),
    Object(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (device, small, metric) = (1..4u32, 0..3u8, 1..3u32);
    let devices = || prop::collection::btree_set(1..4u32, 1..3);
    let form = prop_oneof![
        devices().prop_map(RouteForm::Over),
        (1..4u32, 0..3u8).prop_map(|(device, last)| RouteForm::From(device, last)),
        (1..4u32).prop_map(RouteForm::Object),
    ];
    let pair = || (1..4u32, 0..3u8);
    prop_oneof![
        (device.clone(), small.clone()).prop_map(|(d, n)| Step::Link(d, n)),
        device.clone().prop_map(Step::LinkGone),
        (device.clone(), small.clone(), any::<bool>()).prop_map(|(d, n, t)| Step::Address(d, n, t)),
        pair().prop_map(|(d, n)| Step::AddressGone(d, n)),
        (device.clone(), small.clone(), small.clone()).prop_map(|(d, n, m)| Step::Neighbour(d, n, m)),
        pair().prop_map(|(d, n)| Step::NeighbourGone(d, n)),
        (1..4u32, device.clone(), small.clone()).prop_map(|(id, d, n)| Step::NextHop(id, d, n)),
        (1..4u32).prop_map(Step::NextHopGone),
        (device.clone(), any::<bool>()).prop_map(|(d, on)| Step::Forwarding(d, on)),
        (small.clone(), form).prop_map(|(n, form)| Step::Route(n, form)),
        small.clone().prop_map(Step::RouteGone),
        (any::<bool>(), 0..4u8, any::<bool>()).prop_map(|(v6, number, prepend)| Step::Stacked {
            v6,
            number,
            prepend
        }),
        (any::<bool>(), 0..4u8).prop_map(|(v6, number)| Step::StackedGone { v6, number }),
        (metric.clone(), device.clone(), small.clone(), any::<bool>())
            .prop_map(|(metric, device, gateway, alone)| Step::Sibling { metric, device, gateway, alone }),
        (metric.clone(), device, small).prop_map(|(metric, device, gateway)| Step::SiblingGone {
            metric,
            device,
            gateway
        }),
        (metric.clone(), devices()).prop_map(|(metric, devices)| Step::Siblings { metric, devices }),
        metric.prop_map(|metric| Step::SiblingsGone { metric }),
    ]
}

/// Twin of the kernel: its objects, and the notifications of their changes.
#[derive(Default)]
struct Twin {
    links: BTreeMap<u32, u8>,
    addresses: BTreeMap<(u32, u8), bool>,
    neighbours: BTreeMap<(u32, u8), u8>,
    objects: BTreeMap<u32, (u32, u8)>,
    forwarding: BTreeMap<u32, bool>,
    routes: BTreeMap<u8, RouteEntry>,
    stacked: [Vec<RouteEntry>; 2],
    siblings: BTreeMap<u32, BTreeSet<(u32, u8)>>,
}

fn device(ifindex: u32, mtu: u8) -> KernelMessage {
    let KernelMessage::Link(message) = link(ifindex, true, true) else { unreachable!() };
    KernelMessage::Link(HostLink { mtu: 1500 + u32::from(mtu), ..message })
}

fn an_address(ifindex: u32, last: u8, tentative: bool) -> crate::HostAddress {
    crate::HostAddress { tentative, ..address(ifindex, last) }
}

fn neighbour(ifindex: u32, last: u8, mac: u8) -> HostNeighbour {
    let state = if mac == 0 { NeighbourState::Failed } else { NeighbourState::Reachable };
    let mac = (mac != 0).then_some([2, 0, 0, 0, 0, mac]);
    HostNeighbour { ifindex, ip: IpAddr::from([10, 0, ifindex as u8, last]), mac, state, router: false }
}

fn object(id: u32, (ifindex, gateway): (u32, u8)) -> NextHopObject {
    let hop = Some(hop(ifindex, &format!("192.0.2.{gateway}")));
    NextHopObject { id, group: None, blackhole: false, hop }
}

fn switches(ifindex: u32, on: bool) -> KernelMessage {
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
    let hops: Vec<HostNextHop> =
        hops.into_iter().map(|(device, gateway)| hop(device, &format!("fd00::{gateway}"))).collect();
    RouteEntry { metric, ..entry("fd01::/64", &hops) }
}

impl Twin {
    fn apply(&mut self, step: &Step) -> Vec<KernelMessage> {
        let mut messages = Vec::new();
        if let Step::LinkGone(ifindex) = step {
            let lost = self.addresses.iter().filter(|((device, _), _)| device == ifindex);
            messages.extend(lost.map(|((device, last), tentative)| {
                KernelMessage::AddressGone(an_address(*device, *last, *tentative))
            }));
        }
        messages.extend(self.change(step));
        if let Step::Link(ifindex, _) = step
            && !self.forwarding.contains_key(ifindex)
        {
            self.forwarding.insert(*ifindex, false);
            messages.push(switches(*ifindex, false));
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
                self.addresses.insert((*ifindex, *last), *tentative);
                Some(KernelMessage::Address(an_address(*ifindex, *last, *tentative)))
            }
            Step::AddressGone(ifindex, last) => {
                // The last address of a device would take more routes along.
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
            Step::NextHop(id, ifindex, gateway) => {
                self.links.get(ifindex)?;
                let (ifindex, _) = self.objects.get(id).copied().unwrap_or((*ifindex, 0));
                self.objects.insert(*id, (ifindex, *gateway));
                Some(KernelMessage::NextHop(object(*id, (ifindex, *gateway))))
            }
            Step::NextHopGone(id) => {
                self.objects.remove(id)?;
                self.routes.retain(|_, route| route.next_hop_id != Some(*id));
                Some(KernelMessage::NextHopGone(*id))
            }
            Step::Forwarding(ifindex, on) => {
                self.links.get(ifindex)?;
                self.forwarding.insert(*ifindex, *on);
                Some(switches(*ifindex, *on))
            }
            step => self.change_route(step),
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
            Step::StackedGone { v6, number } => {
                let (route, routes) = (stacked(*v6, *number), &mut self.stacked[usize::from(*v6)]);
                let at = routes.iter().position(|other| *other == route)?;
                Some(KernelMessage::RouteGone(routes.remove(at)))
            }
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
                let source = Some(address(*device, *last).address);
                let next_hops = vec![hop(LASTING, "192.0.2.1")];
                Some(RouteEntry { next_hops, preferred_source: source, ..route })
            }
            RouteForm::Object(id) => {
                let next_hops = object(*id, *self.objects.get(id)?).hop.into_iter().collect();
                Some(RouteEntry { next_hops, next_hop_id: Some(*id), ..route })
            }
        }
    }

    fn remove_address(&mut self, ifindex: u32, last: u8) {
        self.addresses.remove(&(ifindex, last));
        let source = Some(address(ifindex, last).address);
        self.routes.retain(|_, route| route.preferred_source != source);
    }

    /// Removes a device and all objects on it. Only the addresses have notifications of their own.
    fn remove_device(&mut self, ifindex: u32) -> Option<KernelMessage> {
        self.links.remove(&ifindex)?;
        (0..3).for_each(|last| self.remove_address(ifindex, last));
        self.neighbours.retain(|(device, _), _| *device != ifindex);
        self.forwarding.remove(&ifindex);
        let objects = self.objects.clone();
        self.objects.retain(|_, (device, _)| *device != ifindex);
        self.routes.retain(|_, route| match route.next_hop_id {
            Some(id) => objects[&id].0 != ifindex,
            None => route.next_hops.iter().all(|hop| hop.ifindex != ifindex),
        });
        self.siblings.values_mut().for_each(|hops| hops.retain(|(device, _)| *device != ifindex));
        Some(KernelMessage::LinkGone(ifindex))
    }

    /// Lists all objects, IPv6 next hops in one message per route or in one each.
    fn list(&self, each: bool) -> Vec<KernelMessage> {
        let add = |route: RouteEntry| KernelMessage::Route(route, Placement::Append);
        let mut list = vec![device(LASTING, 0), device(LASTING_TOO, 0)];
        list.extend(self.links.iter().map(|(ifindex, mtu)| device(*ifindex, *mtu)));
        let addresses = self.addresses.iter();
        list.extend(addresses.map(|((d, last), t)| KernelMessage::Address(an_address(*d, *last, *t))));
        list.extend(self.forwarding.iter().map(|(ifindex, on)| switches(*ifindex, *on)));
        list.extend(self.objects.iter().map(|(id, hop)| KernelMessage::NextHop(object(*id, *hop))));
        let routes = self.routes.values().map(|route| match route.next_hop_id {
            Some(id) => {
                RouteEntry { next_hops: vec![object(id, self.objects[&id]).hop.unwrap()], ..route.clone() }
            }
            None => route.clone(),
        });
        list.extend(routes.chain(self.stacked.iter().flatten().cloned()).map(add));
        for (metric, hops) in self.siblings.iter().filter(|(_, hops)| !hops.is_empty()) {
            if each {
                list.extend(hops.iter().map(|hop| add(with_siblings(*metric, [*hop]))));
            } else {
                list.push(add(with_siblings(*metric, hops.iter().copied())));
            }
        }
        let neighbours = self.neighbours.iter();
        list.extend(neighbours.map(|((d, last), mac)| KernelMessage::Neighbour(neighbour(*d, *last, *mac))));
        list
    }
}

/// Returns the state as text: the visible objects, and the stored routes, of which some are hidden.
fn as_text(state: &HostState) -> Vec<String> {
    let mut lines: Vec<String> = state.snapshot().iter().map(|change| format!("{change:?}")).collect();
    lines.extend(state.next_hop_objects().map(|object| format!("{object:?}")));
    lines.extend(state.addresses().map(|address| format!("{address:?}")));
    lines.extend(state.neighbours().map(|neighbour| format!("{neighbour:?}")));
    lines.extend(state.links().map(|link| format!("{link:?}")));
    for prefix in state.routes.prefixes() {
        let stored = state.routes.get(prefix).iter().map(|route| match route.entry.next_hop_id {
            Some(id) => format!("{prefix} by {id}"),
            None => format!("{:?}", route.entry),
        });
        let mut stored: Vec<String> = stored.collect();
        if prefix == with_siblings(1, []).prefix {
            stored.sort();
        }
        lines.extend(stored);
    }
    lines
}

/// Applies a list, each part of it behind a number of notifications of later steps.
fn list_behind(state: &mut HostState, list: Vec<KernelMessage>, behind: &[usize], later: Vec<KernelMessage>) {
    let mut behind: Vec<usize> = list.iter().zip(behind.iter().cycle()).map(|(_, behind)| *behind).collect();
    behind.sort_unstable();
    let mut parts = list.into_iter().zip(behind).peekable();
    let mut changes: Vec<HostChange> = Vec::new();
    state.begin_list();
    for (number, message) in later.into_iter().enumerate() {
        while let Some((part, _)) = parts.next_if(|(_, behind)| *behind <= number) {
            state.apply_listed(part, &mut changes);
        }
        state.apply_to(message, &mut changes);
    }
    parts.for_each(|(part, _)| state.apply_listed(part, &mut changes));
    state.sweep(Scope::All, &mut changes);
}

/// Lists the next-hop objects and the routes by a device, as the mirror does after the loss of an address.
fn settle(state: &mut HostState, list: Vec<KernelMessage>, ifindex: u32) {
    let mut changes = Vec::new();
    state.begin_list();
    for message in list {
        let is_listed = match &message {
            KernelMessage::NextHop(_) => true,
            KernelMessage::Route(entry, _) => entry.next_hops.iter().any(|hop| hop.ifindex == ifindex),
            _ => false,
        };
        if is_listed {
            state.apply_listed(message, &mut changes);
        }
    }
    state.sweep(Scope::RoutesOf(ifindex), &mut changes);
}

proptest! {
    /// The kernel builds a list between two steps, and queues each part behind any number of notifications.
    /// Before the list, the state has heard all notifications, some, or none.
    #[test]
    fn notifications_outweigh_a_list_that_was_built_before(
        steps in prop::collection::vec((step(), any::<bool>()), 1..50),
        hearing in 0..3u8,
        later in prop::collection::vec(step(), 1..20),
        built in 0..20usize,
        behind in prop::collection::vec(0..20usize, 60),
        each in any::<bool>(),
    ) {
        let (mut twin, mut state) = (Twin::default(), HostState::default());
        if hearing > 0 {
            state.apply(device(LASTING, 0));
            state.apply(device(LASTING_TOO, 0));
        }
        for (step, heard) in &steps {
            let heard = hearing == 2 || (hearing == 1 && *heard);
            let messages = twin.apply(step).into_iter().filter(|_| heard);
            messages.for_each(|message| drop(state.apply(message)));
        }
        // Notifications of steps before the list was built come first in any case.
        let (before, after) = later.split_at(built.min(later.len()));
        let mut notifications: Vec<KernelMessage> = before.iter().flat_map(|step| twin.apply(step)).collect();
        let list = twin.list(each);
        let earliest = behind.iter().map(|behind| behind + notifications.len() / 2).collect::<Vec<_>>();
        notifications.extend(after.iter().flat_map(|step| twin.apply(step)));
        let lost = notifications.iter().filter_map(|message| match message {
            KernelMessage::AddressGone(address) => Some(address.ifindex),
            _ => None,
        });
        let unsettled: BTreeSet<u32> = lost.chain([LASTING]).collect();
        list_behind(&mut state, list, &earliest, notifications);
        unsettled.into_iter().for_each(|ifindex| settle(&mut state, twin.list(each), ifindex));
        let mut fresh = HostState::default();
        listed(&mut fresh, twin.list(each));
        prop_assert_eq!(as_text(&state), as_text(&fresh));
        prop_assert_eq!(listed(&mut state, twin.list(each)), []);
    }
}
