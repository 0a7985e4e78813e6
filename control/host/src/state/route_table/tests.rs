//! Tests of the identity and the order of the routes of one prefix.

use crate::HostNextHop;
use crate::state::message::{KernelMessage, Placement, RouteEntry};
use crate::state::tests::{entry, hop, link, listed};
use crate::state::{HostState, Scope};

const V4: &str = "10.1.0.0/16";
const V6: &str = "fd01::/64";

fn two_ports() -> HostState {
    let mut state = HostState::default();
    state.apply(link(1, true, true));
    state.apply(link(2, true, true));
    state
}

fn apply(state: &mut HostState, entry: &RouteEntry, placement: Placement) {
    state.apply(KernelMessage::Route(entry.clone(), placement));
}

fn stored(state: &HostState, prefix: &str) -> Vec<RouteEntry> {
    state.routes.get(prefix.parse().unwrap()).iter().map(|route| route.entry.clone()).collect()
}

#[test]
fn ipv6_next_hops_that_differ_only_in_encapsulation_are_two() {
    let mut state = two_ports();
    let next_hops = |state: &HostState| state.effective(V6.parse().unwrap()).unwrap().next_hops;
    let plain = hop(1, "fe80::1");
    let encapsulated = HostNextHop { encap: true, ..plain };
    let route = RouteEntry { metric: 20, ..entry(V6, &[encapsulated, plain]) };
    apply(&mut state, &route, Placement::Append);
    assert_eq!(next_hops(&state), [plain, encapsulated]);
    let list = vec![
        link(1, true, true),
        link(2, true, true),
        KernelMessage::Route(route.clone(), Placement::Append),
    ];
    assert_eq!(listed(&mut state, list), []);
    state.apply(KernelMessage::RouteGone(RouteEntry { next_hops: vec![encapsulated], ..route }));
    assert_eq!(next_hops(&state), [plain]);
}

#[test]
fn an_addition_to_an_ipv6_multipath_route_keeps_the_attributes_of_known_next_hops() {
    let mut state = two_ports();
    let known = hop(1, "fe80::1");
    apply(&mut state, &RouteEntry { protocol: 4, ..entry(V6, &[known]) }, Placement::Append);
    let hops = [HostNextHop { weight: 7, ..known }, hop(2, "fe80::2")];
    apply(&mut state, &RouteEntry { protocol: 186, ..entry(V6, &hops) }, Placement::Append);
    let attributes: Vec<(u8, u32)> =
        stored(&state, V6).iter().map(|route| (route.protocol, route.next_hops[0].weight)).collect();
    assert_eq!(attributes, [(4, 7), (186, 1)]);
}

#[test]
fn a_change_of_a_next_hop_object_replaces_no_other_route() {
    for prefix in [V4, V6] {
        let mut state = two_ports();
        let other = entry(prefix, &[hop(1, "")]);
        let by_object = RouteEntry { next_hop_id: Some(5), ..entry(prefix, &[hop(2, "")]) };
        apply(&mut state, &other, Placement::Append);
        apply(&mut state, &by_object, Placement::Append);
        apply(&mut state, &by_object, Placement::Replace);
        assert_eq!(stored(&state, prefix), [other, by_object]);
    }
}

#[test]
fn repeated_notification_leaves_a_route_in_place() {
    let mut state = two_ports();
    let [first, second] = [1, 2].map(|device| entry(V4, &[hop(device, "")]));
    let mut list = vec![link(1, true, true), link(2, true, true)];
    list.extend([&first, &second].map(|route| KernelMessage::Route(route.clone(), Placement::Append)));
    listed(&mut state, list);
    apply(&mut state, &second, Placement::Prepend);
    apply(&mut state, &second, Placement::Prepend);
    assert_eq!(stored(&state, V4), [first, second]);
}

#[test]
fn notification_moves_a_route_of_the_list_under_way() {
    let mut state = two_ports();
    let [first, second] = [1, 2].map(|device| entry(V4, &[hop(device, "")]));
    let mut changes = Vec::new();
    state.begin_list(Scope::All);
    for route in [&first, &second] {
        state.apply_listed(KernelMessage::Route(route.clone(), Placement::Append), &mut changes);
    }
    apply(&mut state, &first, Placement::Append);
    assert_eq!(stored(&state, V4), [second, first]);
}
