//! Effects of address messages on the state.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::route_table::{Dependency, StoredRoute};
use super::{HostState, Stamped};
use crate::{HostAddress, HostChange};

/// Lowest address, as the lower bound of a key range.
const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl HostState {
    pub(super) fn set_address(&mut self, address: HostAddress, changes: &mut Vec<HostChange>) {
        let stamped = Stamped { value: address, generation: self.generation };
        let is_first = address.address.is_ipv4() && !has_ipv4(self, address.ifindex);
        let before = self.addresses.insert(address.key(), stamped);
        // A known address may have been tentative.
        if before.is_some_and(|before| before.value == address) {
            return;
        }
        let (ifindex, net) = (address.ifindex, address.net());
        changes.push(HostChange::Address { ifindex, net, present: true });
        // The first IPv4 address of a device enables IPv4 on the device. The change examines all routes by
        // the device, so make it only for the first of possibly thousands of addresses.
        if is_first {
            let affected = self.affected_by_device(ifindex);
            self.transition(affected, changes, |state| state.mark_next_hops(ifindex, false));
        }
    }

    pub(super) fn remove_address(&mut self, address: &HostAddress, changes: &mut Vec<HostChange>) {
        let was_known = self.addresses.remove(&address.key()).is_some();
        let (ifindex, net) = (address.ifindex, address.net());
        if was_known {
            changes.push(HostChange::Address { ifindex, net, present: false });
        }
        if address.address.is_ipv4() {
            lose_source(self, address.address, changes);
            // If the mirror didn't know this address, the device may have other addresses that the mirror
            // doesn't know. So IPv4 stays enabled.
            if was_known {
                self.disable_ipv4_without_address(ifindex, changes);
            }
        }
    }

    /// Disables IPv4 on a device that has lost its last IPv4 address, as the kernel does without a message.
    fn disable_ipv4_without_address(&mut self, ifindex: u32, changes: &mut Vec<HostChange>) {
        if !has_ipv4(self, ifindex) {
            let affected = self.affected_by_device(ifindex);
            self.transition(affected, changes, |state| state.mark_next_hops(ifindex, true));
        }
    }
}

/// Drops IPv4 routes whose preferred source is no longer an address of the host, as the kernel does without a
/// message. During a list of all addresses, the list may still show that another device has the address.
/// Therefore the routes then stay, marked as in doubt.
fn lose_source(state: &mut HostState, source: IpAddr, changes: &mut Vec<HostChange>) {
    let is_unsure = state.outdated.awaits_addresses();
    if has_address(state, source, if is_unsure { state.generation } else { 0 }) {
        return;
    }
    state.outdated.note_removed(Dependency::Source(source));
    if is_unsure {
        state.routes.doubt_source(source);
    } else {
        drop_routes_from(state, source, |_| true, changes);
    }
}

/// Whether any device has an address that the kernel has confirmed since `generation`. Looks up the address
/// once for each device, and doesn't scan all addresses.
fn has_address(state: &HostState, wanted: IpAddr, generation: u32) -> bool {
    let mut from = 0;
    while let Some(((ifindex, ..), _)) = state.addresses.range((from, FIRST, 0)..).next() {
        let mut found = state.addresses.range((*ifindex, wanted, 0)..=(*ifindex, wanted, u8::MAX));
        if found.any(|(_, address)| address.generation >= generation) {
            return true;
        }
        let Some(next) = ifindex.checked_add(1) else { return false };
        from = next;
    }
    false
}

/// Whether a device has an IPv4 address.
fn has_ipv4(state: &HostState, ifindex: u32) -> bool {
    let last = (ifindex, IpAddr::V4(Ipv4Addr::BROADCAST), u8::MAX);
    state.addresses.range((ifindex, FIRST, 0)..=last).next().is_some()
}

/// Drops the IPv4 routes from a source address for which `is_lost` returns true.
pub(super) fn drop_routes_from(
    state: &mut HostState,
    source: IpAddr,
    is_lost: impl Fn(&StoredRoute) -> bool,
    changes: &mut Vec<HostChange>,
) {
    let users: Vec<IpNet> = state.routes.dependants(Dependency::Source(source)).collect();
    let affected = state.with_hidden(users.iter().copied().collect());
    let keep = |route: &StoredRoute| route.entry.preferred_source != Some(source) || !is_lost(route);
    state.transition(affected, changes, |state| {
        users.into_iter().for_each(|prefix| state.routes.retain(prefix, |route| keep(route)));
    });
}
