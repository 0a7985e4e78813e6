//! Tests of the state alone: the effect of each message, and the comparison of single messages with a list of
//! the resulting state.

use std::net::IpAddr;

use proptest::prelude::*;

use super::message::{KernelMessage, NextHopObject, Placement, RouteEntry};
use super::{HostState, Scope, local_addresses};
use crate::forwarding::SwitchesUpdate;
use crate::{Family, HostAddress, HostChange, HostLink, HostNextHop, HostRoute, RouteKind};

pub(super) fn link(ifindex: u32, admin_up: bool, carrier: bool) -> KernelMessage {
    KernelMessage::Link(HostLink {
        ifindex,
        name: format!("port{ifindex}"),
        kind: None,
        mac: None,
        mtu: 1500,
        admin_up,
        carrier,
        master: None,
        master_kind: None,
        loopback: false,
        peer: None,
        xdp: None,
        rx_queues: 1,
        tx_queues: 1,
    })
}

pub(super) fn hop(ifindex: u32, gateway: &str) -> HostNextHop {
    let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
    HostNextHop { ifindex, gateway, weight: 1, onlink: false, dead: false, encap: false }
}

pub(super) fn entry(prefix: &str, hops: &[HostNextHop]) -> RouteEntry {
    RouteEntry {
        prefix: prefix.parse().unwrap(),
        kind: RouteKind::Unicast,
        table: 254,
        protocol: 4,
        scope: 0,
        service_type: 0,
        from_source: false,
        metric: 0,
        preferred_source: None,
        next_hop_id: None,
        next_hops: hops.to_vec(),
        mtu: None,
    }
}

fn add(entry: RouteEntry) -> KernelMessage {
    KernelMessage::Route(entry, Placement::Append)
}

fn two_ports() -> HostState {
    let mut state = HostState::default();
    state.apply(link(1, true, true));
    state.apply(link(2, true, true));
    state
}

fn effective(state: &HostState, prefix: &str) -> Option<HostRoute> {
    state.effective(prefix.parse().unwrap())
}

fn only_route(changes: &[HostChange]) -> Option<&HostRoute> {
    match changes {
        [HostChange::Route { route, .. }] => route.as_ref(),
        other => panic!("one route change wanted: {other:?}"),
    }
}

#[test]
fn a_repeated_message_changes_nothing() {
    let mut state = two_ports();
    let message = add(entry("10.1.0.0/16", &[hop(1, "10.0.0.2")]));
    assert_eq!(state.apply(message.clone()).len(), 1);
    assert_eq!(state.apply(message), []);
    assert_eq!(state.apply(link(1, true, true)), []);
}

#[test]
fn a_route_behind_a_better_one_is_not_reported_until_that_goes() {
    let mut state = two_ports();
    let better = RouteEntry { metric: 1, ..entry("10.1.0.0/16", &[hop(1, "10.0.0.2")]) };
    let worse = RouteEntry { metric: 2, ..entry("10.1.0.0/16", &[hop(2, "10.0.1.2")]) };
    state.apply(add(better.clone()));
    assert_eq!(state.apply(add(worse)), []);
    let changes = state.apply(KernelMessage::RouteGone(better));
    assert_eq!(only_route(&changes).unwrap().metric, 2);
}

#[test]
fn the_local_table_hides_main_and_main_hides_default() {
    let mut state = two_ports();
    let local = RouteEntry { table: 255, kind: RouteKind::Local, ..entry("10.0.0.0/8", &[hop(1, "")]) };
    let main = entry("10.1.0.0/16", &[hop(1, "10.0.0.2")]);
    let default = RouteEntry { table: 253, ..entry("10.1.2.0/24", &[hop(2, "10.0.1.2")]) };
    state.apply(add(default));
    assert!(effective(&state, "10.1.2.0/24").is_some());
    assert_eq!(state.apply(add(main)).len(), 2, "the new route, and the one it hides");
    assert!(effective(&state, "10.1.2.0/24").is_none());
    assert_eq!(state.apply(add(local.clone())).len(), 2);
    assert!(effective(&state, "10.1.0.0/16").is_none());
    state.apply(KernelMessage::RouteGone(local));
    assert!(effective(&state, "10.1.0.0/16").is_some());
}

#[test]
fn lost_carrier_removes_next_hops_and_keeps_local_addresses() {
    let mut state = two_ports();
    let local =
        RouteEntry { table: 255, kind: RouteKind::Local, scope: 254, ..entry("10.0.0.1/32", &[hop(1, "")]) };
    state.apply(add(local));
    state.apply(add(entry("10.1.0.0/16", &[hop(1, "10.0.0.2"), hop(2, "10.0.1.2")])));
    state.apply(add(entry("10.2.0.0/16", &[hop(1, "10.0.0.2")])));
    let changes = state.apply(link(1, true, false));
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert_eq!(effective(&state, "10.1.0.0/16").unwrap().next_hops, [hop(2, "10.0.1.2")]);
    assert_eq!(effective(&state, "10.2.0.0/16"), None);
    assert_eq!(local_addresses(&state), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    state.apply(link(1, true, true));
    assert_eq!(effective(&state, "10.1.0.0/16").unwrap().next_hops.len(), 2);
    assert!(effective(&state, "10.2.0.0/16").is_some());
}

#[test]
fn ipv4_routes_do_not_come_back_with_a_device_that_was_set_down() {
    let mut state = two_ports();
    state.apply(add(entry("10.1.0.0/16", &[hop(1, "10.0.0.2")])));
    state.apply(add(entry("fd01::/64", &[hop(1, "fd00::2")])));
    state.apply(link(1, false, false));
    state.apply(link(1, true, true));
    assert_eq!(effective(&state, "10.1.0.0/16"), None, "dropped by the kernel without a message");
    assert!(effective(&state, "fd01::/64").is_some(), "the kernel would have said so");
}

#[test]
fn routes_follow_their_next_hop_object() {
    let mut state = two_ports();
    let object =
        |id, gateway| NextHopObject { id, group: None, blackhole: false, hop: Some(hop(1, gateway)) };
    state.apply(KernelMessage::NextHop(object(1, "10.0.0.2")));
    state.apply(KernelMessage::NextHop(object(2, "10.0.0.3")));
    let group = NextHopObject { id: 9, group: Some(vec![(1, 1), (2, 5)]), blackhole: false, hop: None };
    state.apply(KernelMessage::NextHop(group));
    for third in 0..10 {
        let route = RouteEntry { next_hop_id: Some(9), ..entry(&format!("10.1.{third}.0/24"), &[]) };
        state.apply(add(route));
    }
    assert_eq!(state.apply(KernelMessage::NextHop(object(1, "10.0.0.7"))).len(), 10);
    let route = effective(&state, "10.1.3.0/24").unwrap();
    assert_eq!(route.next_hops, [hop(1, "10.0.0.7"), HostNextHop { weight: 5, ..hop(1, "10.0.0.3") }]);
    assert_eq!(state.apply(KernelMessage::NextHopGone(2)).len(), 10);
    assert_eq!(
        state.apply(KernelMessage::NextHopGone(1)).len(),
        10,
        "the group is empty, its routes are gone"
    );
    assert_eq!(state.routes().count(), 0);
}

#[test]
fn route_with_an_unknown_next_hop_object_follows_the_device_of_its_message() {
    let mut state = HostState::default();
    let route = RouteEntry { next_hop_id: Some(9), ..entry("10.1.0.0/16", &[hop(1, "10.0.0.2")]) };
    assert!(state.apply(add(route)).is_empty(), "there is no such device");
    let changes = state.apply(link(1, true, true));
    assert!(effective(&state, "10.1.0.0/16").is_some());
    assert!(
        changes.iter().any(|change| matches!(change, HostChange::Route { route: Some(_), .. })),
        "{changes:?}"
    );
    let changes = state.apply(KernelMessage::LinkGone(1));
    assert!(effective(&state, "10.1.0.0/16").is_none());
    assert!(
        changes.iter().any(|change| matches!(change, HostChange::Route { route: None, .. })),
        "{changes:?}"
    );
}

#[test]
fn routes_for_some_service_types_or_sources_are_left_to_the_kernel() {
    let mut state = two_ports();
    state.apply(add(entry("10.1.0.0/16", &[hop(1, "10.0.0.2")])));
    state.apply(add(RouteEntry { service_type: 16, ..entry("10.1.0.0/16", &[hop(2, "10.0.1.2")]) }));
    assert_eq!(effective(&state, "10.1.0.0/16").unwrap().kind, RouteKind::Other);
}

#[test]
fn forwarding_is_asked_of_the_device_for_ipv4_and_of_the_namespace_for_ipv6() {
    let mut state = two_ports();
    let on = SwitchesUpdate { forwarding: Some(true), ..SwitchesUpdate::default() };
    let switch = |ifindex, family| KernelMessage::Switches { ifindex, family, update: on };
    assert_eq!(state.apply(switch(None, Family::Ipv4)).len(), 1);
    assert!(!state.forwarding().enabled(1, Family::Ipv4));
    state.apply(switch(Some(1), Family::Ipv4));
    assert!(state.forwarding().enabled(1, Family::Ipv4));
    state.apply(switch(Some(1), Family::Ipv6));
    assert!(!state.forwarding().enabled(1, Family::Ipv6));
    state.apply(switch(None, Family::Ipv6));
    assert!(state.forwarding().enabled(2, Family::Ipv6));
}

#[test]
fn removed_device_removes_its_addresses_routes_and_neighbours() {
    let mut state = two_ports();
    state.apply(KernelMessage::Address(address(1, 1)));
    state.apply(add(entry("10.1.0.0/16", &[hop(1, "10.0.0.2"), hop(2, "10.0.1.2")])));
    let changes = state.apply(KernelMessage::LinkGone(1));
    assert!(changes.contains(&HostChange::LinkGone(1)), "{changes:?}");
    assert_eq!((state.addresses().count(), state.routes().count()), (0, 0));
}

#[test]
fn address_that_is_no_longer_tentative_is_a_change() {
    let mut state = two_ports();
    let tentative = HostAddress { tentative: true, ..address(1, 1) };
    state.apply(KernelMessage::Address(tentative));
    assert_eq!(state.apply(KernelMessage::Address(tentative)), []);
    let changes = state.apply(KernelMessage::Address(address(1, 1)));
    assert_eq!(changes, [HostChange::Address { ifindex: 1, net: address(1, 1).net(), present: true }]);
    assert_eq!(state.apply(KernelMessage::Address(address(1, 1))), []);
}

pub(super) fn address(ifindex: u32, last: u8) -> HostAddress {
    HostAddress {
        ifindex,
        address: IpAddr::from([10, 0, ifindex as u8, last]),
        prefix_length: 24,
        peer: None,
        tentative: false,
    }
}

/// Step of the modelled kernel, which reports every change, as the real kernel does for these steps.
#[derive(Clone, Debug)]
enum Step {
    Link(u32, bool),
    Address(u32, u8, bool),
    Route { number: u8, metric: u32, first: u32, second: Option<u32>, v6: bool },
    RouteGone(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let device = 1..4u32;
    prop_oneof![
        (device.clone(), any::<bool>()).prop_map(|(device, carrier)| Step::Link(device, carrier)),
        (device.clone(), 1..4u8, any::<bool>())
            .prop_map(|(d, last, present)| Step::Address(d, last, present)),
        (0..6u8, 1..3u32, device.clone(), proptest::option::of(device), any::<bool>()).prop_map(
            |(number, metric, first, second, v6)| Step::Route { number, metric, first, second, v6 }
        ),
        (0..20usize).prop_map(Step::RouteGone),
    ]
}

/// Model of the kernel for these steps: it has at most one route per prefix and metric, replaced as a whole.
#[derive(Default)]
struct Model {
    carriers: std::collections::BTreeMap<u32, bool>,
    addresses: std::collections::BTreeSet<(u32, u8)>,
    routes: Vec<RouteEntry>,
}

impl Model {
    fn route(number: u8, metric: u32, first: u32, second: Option<u32>, v6: bool) -> RouteEntry {
        let gateway = |device: u32| if v6 { format!("fd00::{device}") } else { format!("192.0.2.{device}") };
        let second = second.filter(|second| *second != first);
        let mut hops: Vec<_> =
            std::iter::once(first).chain(second).map(|device| hop(device, &gateway(device))).collect();
        hops.sort_by_key(|hop| hop.ifindex);
        let prefix = if v6 { format!("fd0{number}::/64") } else { format!("10.{number}.0.0/16") };
        RouteEntry { metric, ..entry(&prefix, &hops) }
    }

    fn apply(&mut self, step: &Step) -> Vec<KernelMessage> {
        match *step {
            Step::Link(device, carrier) => {
                self.carriers.insert(device, carrier);
                vec![link(device, true, carrier)]
            }
            Step::Address(device, last, true) => {
                self.addresses.insert((device, last));
                vec![KernelMessage::Address(address(device, last))]
            }
            Step::Address(device, last, false) => {
                // Keep the last address: the real kernel would silently drop routes with it, and this model
                // does not.
                let others = self.addresses.iter().filter(|(other, _)| *other == device).count();
                if others < 2 || !self.addresses.remove(&(device, last)) {
                    return Vec::new();
                }
                vec![KernelMessage::AddressGone(address(device, last))]
            }
            Step::Route { number, metric, first, second, v6 } => {
                let route = Self::route(number, metric, first, second, v6);
                let same = |known: &RouteEntry| (known.prefix, known.metric) == (route.prefix, metric);
                match self.routes.iter().position(same) {
                    Some(at) => self.routes[at] = route.clone(),
                    None => self.routes.push(route.clone()),
                }
                vec![KernelMessage::Route(route, Placement::Replace)]
            }
            Step::RouteGone(at) if at < self.routes.len() => {
                vec![KernelMessage::RouteGone(self.routes.remove(at))]
            }
            Step::RouteGone(_) => Vec::new(),
        }
    }

    fn list(&self) -> Vec<KernelMessage> {
        let links = self.carriers.iter().map(|(device, carrier)| link(*device, true, *carrier));
        let addresses =
            self.addresses.iter().map(|(device, last)| KernelMessage::Address(address(*device, *last)));
        links.chain(addresses).chain(self.routes.iter().cloned().map(add)).collect()
    }
}

pub(super) fn listed(state: &mut HostState, messages: Vec<KernelMessage>) -> Vec<HostChange> {
    let mut changes = Vec::new();
    state.begin_list(Scope::All);
    messages.into_iter().for_each(|message| state.apply_listed(message, &mut changes));
    state.sweep(Scope::All, &mut changes);
    changes
}

fn as_text(state: &HostState) -> Vec<String> {
    let mut lines: Vec<String> = state.snapshot().iter().map(|change| format!("{change:?}")).collect();
    lines.sort();
    lines
}

proptest! {
    #[test]
    fn messages_one_by_one_lead_to_the_same_state_as_a_list(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::default();
        let mut state = HostState::default();
        for step in &steps {
            for message in model.apply(step) {
                state.apply(message);
            }
        }
        let mut fresh = HostState::default();
        listed(&mut fresh, model.list());
        prop_assert_eq!(as_text(&state), as_text(&fresh));
        prop_assert_eq!(listed(&mut state, model.list()), []);
    }

    #[test]
    fn a_list_repairs_a_state_that_missed_any_messages(
        steps in prop::collection::vec((step(), any::<bool>()), 1..60)
    ) {
        let mut model = Model::default();
        let mut state = HostState::default();
        for (step, heard) in &steps {
            for message in model.apply(step) {
                if *heard {
                    state.apply(message);
                }
            }
        }
        listed(&mut state, model.list());
        let mut fresh = HostState::default();
        listed(&mut fresh, model.list());
        prop_assert_eq!(as_text(&state), as_text(&fresh));
        prop_assert_eq!(listed(&mut state, model.list()), []);
    }
}

#[test]
fn a_sweep_of_the_last_address_of_a_device_keeps_the_listed_routes() {
    let mut state = two_ports();
    state.apply(KernelMessage::Address(address(1, 1)));
    let route = add(entry("10.1.0.0/16", &[hop(1, "10.0.0.2")]));
    listed(&mut state, vec![link(1, true, true), link(2, true, true), route]);
    assert_eq!(state.addresses().count(), 0);
    assert!(effective(&state, "10.1.0.0/16").is_some());
}

#[test]
fn a_list_of_one_device_keeps_the_order_of_the_routes_of_a_prefix() {
    let routes = |prefix| [1, 2].map(|device| add(entry(prefix, &[hop(device, "")])));
    for prefix in ["10.1.0.0/16", "fe80::/64"] {
        let mut state = two_ports();
        let [first, second] = routes(prefix);
        state.apply(first);
        state.apply(second.clone());
        let mut changes = Vec::new();
        state.begin_list(Scope::RoutesOf(2));
        state.apply_listed(second, &mut changes);
        state.sweep(Scope::RoutesOf(2), &mut changes);
        assert_eq!((changes, effective(&state, prefix).unwrap().next_hops), (vec![], vec![hop(1, "")]));
    }
}

/// Returns the processor time used by this thread, which other threads don't affect.
fn processor_time() -> std::time::Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
}

/// Returns the processor time for adding and removing `count` addresses of a device, each with the kernel's
/// local route.
fn time_of_addresses(count: u16) -> std::time::Duration {
    let start = processor_time();
    let mut state = two_ports();
    let of = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let ip = IpAddr::from([10, 1, high, low]);
        let route = RouteEntry {
            kind: RouteKind::Local,
            table: 255,
            protocol: 2,
            scope: 254,
            preferred_source: Some(ip),
            ..entry(&format!("{ip}/32"), &[hop(1, "")])
        };
        (HostAddress { address: ip, prefix_length: 16, ..address(1, 0) }, route)
    };
    for number in 0..count {
        let (address, route) = of(number);
        state.apply(add(route));
        state.apply(KernelMessage::Address(address));
    }
    assert_eq!(local_addresses(&state).len(), usize::from(count));
    for number in 0..count {
        let (address, route) = of(number);
        state.apply(KernelMessage::AddressGone(address));
        state.apply(KernelMessage::RouteGone(route));
    }
    assert_eq!(local_addresses(&state).len(), 0);
    processor_time() - start
}

#[test]
fn thousands_of_addresses_take_no_more_than_their_part_each() {
    let few = time_of_addresses(250);
    let many = time_of_addresses(4000);
    assert!(many < few * 60, "16 times as many take {many:?} instead of {few:?}");
}
