//! Tests of lists (netlink dumps) whose parts are older than the notifications before them.

mod step;
mod twin;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::tests::{entry, hop, listed};
use super::super::{HostState, Scope};
use crate::state::message::{KernelMessage, Placement, RouteEntry};
use crate::{Family, HostChange};
use step::{SHARED, Step, step};
use twin::{LASTING, LASTING_TOO, SIBLINGS, SOLE, Twin, an_address, device, group, object, switches};

/// Returns the state as text, for comparison: the objects, and the stored routes, including those that are
/// not effective.
fn as_text(state: &HostState) -> Vec<String> {
    let mut lines: Vec<String> = state.snapshot().iter().map(|change| format!("{change:?}")).collect();
    lines.extend(state.next_hop_objects().map(|object| format!("{object:?}")));
    lines.extend(state.addresses().map(|address| format!("{address:?}")));
    lines.extend(state.neighbours().map(|neighbour| format!("{neighbour:?}")));
    lines.extend(state.links().map(|link| format!("{link:?}")));
    for prefix in state.routes.prefixes() {
        let stored = state.routes.get(prefix).iter().map(|route| match route.entry.next_hop_id {
            // Omit the next hops of the message: they may be older than those of the next-hop object.
            Some(_) => format!("{:?}", RouteEntry { next_hops: Vec::new(), ..route.entry.clone() }),
            None => format!("{:?}", route.entry),
        });
        let mut stored: Vec<String> = stored.collect();
        if [SIBLINGS, SOLE].contains(&prefix.to_string().as_str()) {
            stored.sort();
        }
        lines.extend(stored);
    }
    lines
}

/// Applies a list and notifications. `behind` has, for each part of the list, the number of notifications
/// that arrive before the part. `ended` is the number of notifications that arrive before the end of the
/// list.
fn list_behind(
    state: &mut HostState,
    list: Vec<KernelMessage>,
    behind: &[usize],
    ended: usize,
    mut notifications: Vec<KernelMessage>,
) {
    let after = notifications.split_off(ended.min(notifications.len()));
    let mut behind: Vec<usize> = list.iter().zip(behind.iter().cycle()).map(|(_, behind)| *behind).collect();
    behind.sort_unstable();
    let mut parts = list.into_iter().zip(behind).peekable();
    let mut changes: Vec<HostChange> = Vec::new();
    state.begin_list(Scope::All);
    for (number, message) in notifications.into_iter().enumerate() {
        while let Some((part, _)) = parts.next_if(|(_, behind)| *behind <= number) {
            state.apply_listed(part, &mut changes);
        }
        state.apply_to(message, &mut changes);
    }
    parts.for_each(|(part, _)| state.apply_listed(part, &mut changes));
    state.sweep(Scope::All, &mut changes);
    after.into_iter().for_each(|message| state.apply_to(message, &mut changes));
}

/// Applies notifications, and then a list that is older than they are.
fn list_after(state: &mut HostState, notifications: Vec<KernelMessage>, list: Vec<KernelMessage>) {
    list_behind(state, list, &[usize::MAX], usize::MAX, notifications);
}

/// Returns the devices whose routes the mirror lists again after the notifications.
fn unsettled(notifications: &[KernelMessage]) -> BTreeSet<u32> {
    let mut devices = BTreeSet::new();
    for message in notifications {
        match message {
            KernelMessage::AddressGone(address) => _ = devices.insert(address.ifindex),
            KernelMessage::LinkGone(ifindex) => _ = devices.remove(ifindex),
            _ => {}
        }
    }
    devices
}

/// Lists the next-hop objects and a device's routes, as the mirror does after the removal of an address.
fn settle(state: &mut HostState, list: Vec<KernelMessage>, ifindex: u32) {
    let mut changes = Vec::new();
    state.begin_list(Scope::RoutesOf(ifindex));
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
    /// Compares the state with the modelled kernel after a list and notifications in random order. The kernel
    /// builds the list between two steps, and queues each part behind any number of notifications. Before the
    /// list, the state has received all notifications, some, or none. With `newer`, only half of the
    /// notifications from before the list arrive before it, so the list is newer than the rest.
    #[test]
    fn notifications_outweigh_a_list_that_was_built_before(
        steps in prop::collection::vec((step(), any::<bool>()), 1..50),
        hearing in 0..3u8,
        later in prop::collection::vec(step(), 1..20),
        built in 0..20usize,
        behind in prop::collection::vec(0..20usize, 60),
        ended in 0..40usize,
        each in any::<bool>(),
        newer in any::<bool>(),
    ) {
        let (mut twin, mut state) = (Twin::default(), HostState::default());
        if hearing > 0 {
            state.apply(device(LASTING, 0));
            state.apply(device(LASTING_TOO, 0));
        }
        let is_known = |step: &Step| hearing == 2 || !step.needs_knowledge();
        for (step, heard) in steps.iter().filter(|(step, _)| is_known(step)) {
            let heard = hearing == 2 || (hearing == 1 && *heard);
            let messages = twin.apply(step).into_iter().filter(|_| heard);
            messages.for_each(|message| drop(state.apply(message)));
        }
        // Leave out repeated notifications: such a notification looks like the delayed first notification of
        // a listed route.
        let is_possible = |step: &&Step| {
            let is_repeated = matches!(step, Step::StackedAgain { .. });
            is_known(step) && !is_repeated && !(newer && step.needs_order())
        };
        let (before, after) = later.split_at(built.min(later.len()));
        let mut notifications: Vec<KernelMessage> =
            before.iter().filter(is_possible).flat_map(|step| twin.apply(step)).collect();
        let list = twin.list(each);
        let first = if newer { notifications.len() / 2 } else { notifications.len() };
        let behind: Vec<usize> = behind.iter().map(|behind| behind + first).collect();
        let ended = if newer { usize::MAX } else { first + ended };
        notifications.extend(after.iter().filter(is_possible).flat_map(|step| twin.apply(step)));
        let unsettled = unsettled(&notifications);
        list_behind(&mut state, list, &behind, ended, notifications);
        unsettled.into_iter().for_each(|ifindex| settle(&mut state, twin.list(each), ifindex));
        let mut fresh = HostState::default();
        listed(&mut fresh, twin.list(each));
        prop_assert_eq!(as_text(&state), as_text(&fresh));
        prop_assert_eq!(listed(&mut state, twin.list(each)), []);
    }
}

fn add(entry: &RouteEntry) -> KernelMessage {
    KernelMessage::Route(entry.clone(), Placement::Append)
}

#[test]
fn a_route_removed_before_the_first_list_stays_away() {
    let mut state = HostState::default();
    let route = entry("10.1.0.0/16", &[hop(1, "")]);
    let list = vec![device(1, 0), add(&route)];
    list_after(&mut state, vec![KernelMessage::RouteGone(route)], list);
    assert_eq!(state.routes().count(), 0);
}

#[test]
fn a_replaced_ipv6_route_of_another_kind_stays_away() {
    let kinds = [
        entry(SOLE, &[hop(1, "")]),
        entry(SOLE, &[hop(1, "fd00::1"), hop(2, "fd00::1")]),
        RouteEntry { next_hop_id: Some(5), ..entry(SOLE, &[hop(2, "")]) },
    ];
    for before in &kinds {
        for after in kinds.iter().filter(|after| *after != before) {
            let mut state = HostState::default();
            let list = vec![device(1, 0), device(2, 0), add(before)];
            listed(&mut state, list.clone());
            let notification = KernelMessage::Route(after.clone(), Placement::Replace);
            list_after(&mut state, vec![notification], list);
            let prefix = after.prefix;
            assert_eq!(state.routes.get(prefix).len(), after.next_hops.len(), "{before:?} {after:?}");
            assert_eq!(state.effective(prefix).unwrap().next_hops, after.next_hops);
        }
    }
}

#[test]
fn switches_announced_before_their_device_survive_a_list() {
    // In the second case, the mirror has missed the removal of an older device with the same index.
    for before in [Vec::new(), vec![device(1, 0)]] {
        let mut state = HostState::default();
        listed(&mut state, before);
        list_after(&mut state, vec![switches(1, true)], Vec::new());
        assert_eq!(state.links().count(), 0);
        state.apply(device(1, 0));
        assert!(state.forwarding().enabled(1, Family::Ipv4));
    }
}

#[test]
fn removed_unknown_address_keeps_its_routes_if_another_device_has_the_address() {
    let lost = an_address(1, SHARED, false);
    let from = |prefix| RouteEntry { preferred_source: Some(lost.address), ..entry(prefix, &[hop(1, "")]) };
    for (is_held, routes) in [(true, 2), (false, 0)] {
        let mut state = HostState::default();
        let mut list = vec![device(1, 0), device(2, 0)];
        list.extend(is_held.then(|| KernelMessage::Address(an_address(2, SHARED, false))));
        list.push(add(&from("10.1.0.0/16")));
        let notifications = vec![add(&from("10.2.0.0/16")), KernelMessage::AddressGone(lost)];
        list_after(&mut state, notifications, list);
        assert_eq!(state.routes().count(), routes);
    }
}

#[test]
fn listed_group_loses_members_on_a_removed_device() {
    for id in [1, 9] {
        let cases = [(vec![2, 3], BTreeSet::from([3, id])), (vec![2], BTreeSet::from([3]))];
        for (members, remaining) in cases {
            let mut state = HostState::default();
            let mut objects = vec![object(2, (1, 0)), object(3, (2, 0)), group(id, &members)];
            objects.sort_by_key(|object| object.id);
            let mut list = vec![device(1, 0), device(2, 0)];
            list.extend(objects.into_iter().map(KernelMessage::NextHop));
            list.push(add(&RouteEntry { next_hop_id: Some(id), ..entry("10.1.0.0/16", &[]) }));
            list_after(&mut state, vec![KernelMessage::LinkGone(1)], list);
            let ids: BTreeSet<u32> = state.next_hop_objects().map(|object| object.id).collect();
            assert_eq!(ids, remaining);
            assert_eq!(state.routes().count(), usize::from(ids.contains(&id)));
        }
    }
}

#[test]
fn a_source_address_that_the_list_does_not_confirm_keeps_no_route() {
    // The mirror has missed the removal of the address of device 2.
    let mut state = HostState::default();
    let lost = an_address(1, SHARED, false);
    let route = RouteEntry { preferred_source: Some(lost.address), ..entry("10.1.0.0/16", &[hop(1, "")]) };
    let list = vec![device(1, 0), device(2, 0), KernelMessage::Address(lost), add(&route)];
    listed(&mut state, list.clone());
    state.apply(KernelMessage::Address(an_address(2, SHARED, false)));
    list_after(&mut state, vec![KernelMessage::AddressGone(lost)], list);
    assert_eq!((state.addresses().count(), state.routes().count()), (0, 0));
}

#[test]
fn a_listed_group_loses_a_known_member_that_the_list_does_not_name() {
    // The kernel built the part of the list with the group before the device was removed, and the next part
    // afterwards.
    let mut state = HostState::default();
    let part = vec![device(2, 0), KernelMessage::NextHop(group(1, &[2, 3]))];
    let member = |id, device| KernelMessage::NextHop(object(id, (device, 0)));
    listed(&mut state, [vec![device(1, 0)], part.clone(), vec![member(2, 1), member(3, 2)]].concat());
    list_after(&mut state, vec![KernelMessage::LinkGone(1)], [part, vec![member(3, 2)]].concat());
    let objects: Vec<_> = state.next_hop_objects().cloned().collect();
    assert_eq!(objects, [group(1, &[3]), object(3, (2, 0))]);
}

#[test]
fn a_listed_route_by_a_group_that_notifications_have_emptied_stays_away() {
    let mut state = HostState::default();
    let route = RouteEntry { next_hop_id: Some(1), ..entry("10.1.0.0/16", &[hop(1, ""), hop(2, "")]) };
    let mut list = vec![device(1, 0), device(2, 0), KernelMessage::NextHop(group(1, &[2, 3]))];
    list.extend([object(2, (1, 0)), object(3, (2, 0))].map(KernelMessage::NextHop));
    let behind: Vec<usize> = list.iter().map(|_| 0).chain([usize::MAX]).collect();
    list.push(add(&route));
    let notifications = vec![
        KernelMessage::NextHopGone(3),
        KernelMessage::NextHop(group(1, &[2])),
        KernelMessage::LinkGone(1),
    ];
    list_behind(&mut state, list, &behind, usize::MAX, notifications);
    assert_eq!((state.next_hop_objects().count(), state.routes.prefixes().count()), (0, 0));
}

#[test]
fn a_change_of_a_next_hop_object_outdates_no_other_listed_route() {
    for prefix in ["10.1.0.0/16", SOLE] {
        let mut state = HostState::default();
        let by_object = RouteEntry { next_hop_id: Some(5), ..entry(prefix, &[hop(1, "")]) };
        let other = entry(prefix, &[hop(2, "")]);
        let list = vec![device(1, 0), device(2, 0), add(&by_object), add(&other)];
        let notification = KernelMessage::Route(by_object, Placement::Replace);
        list_behind(&mut state, list, &[0, 0, 0, 1], usize::MAX, vec![notification]);
        assert_eq!(state.routes.get(other.prefix).len(), 2);
    }
}

#[test]
fn listed_object_with_a_changed_device_keeps_its_group() {
    // The mirror has missed the change from device 1 to device 2.
    let mut state = HostState::default();
    let route = RouteEntry { next_hop_id: Some(9), ..entry("10.1.0.0/16", &[hop(2, "")]) };
    let list = |ifindex| {
        let objects = [object(2, (ifindex, 0)), group(9, &[2])].map(KernelMessage::NextHop);
        [vec![device(2, 0)], objects.into(), vec![add(&route)]].concat()
    };
    listed(&mut state, [vec![device(1, 0)], list(1)].concat());
    list_after(&mut state, vec![KernelMessage::LinkGone(1)], list(2));
    assert_eq!((state.next_hop_objects().count(), state.routes().count()), (2, 1));
}

#[test]
fn a_route_from_an_address_that_comes_back_outlives_the_sweep() {
    let mut state = HostState::default();
    let lost = an_address(1, 1, false);
    let route = RouteEntry { preferred_source: Some(lost.address), ..entry("10.1.0.0/16", &[hop(1, "")]) };
    let list = vec![device(1, 0), KernelMessage::Address(lost), add(&route)];
    let again = [KernelMessage::AddressGone(lost), KernelMessage::Address(lost), add(&route)];
    list_after(&mut state, again.into(), list);
    assert_eq!((state.addresses().count(), state.routes().count()), (1, 1));
}
