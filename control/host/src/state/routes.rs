//! Effects of route and next-hop messages on the state.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::HostState;
use super::message::{NextHopObject, Placement, RouteEntry};
use super::route_table::{Dependency, LOCAL, MAIN};
use crate::HostChange;
use crate::prefix_range::span;

impl HostState {
    pub(super) fn set_route(
        &mut self,
        entry: RouteEntry,
        placement: Placement,
        changes: &mut Vec<HostChange>,
    ) {
        let affected = self.affected(entry.prefix, entry.table);
        let (generation, listing) = (self.generation, self.outdated.is_under_way());
        self.transition(affected, changes, |state| {
            let replaced = state.routes.insert(entry, placement, generation, listing);
            replaced.iter().for_each(|route| state.outdated.note_replaced(route));
        });
    }

    pub(super) fn remove_route(&mut self, entry: &RouteEntry, changes: &mut Vec<HostChange>) {
        let affected = self.affected(entry.prefix, entry.table);
        self.transition(affected, changes, |state| state.routes.remove(entry));
    }

    pub(super) fn set_next_hop(&mut self, object: NextHopObject, changes: &mut Vec<HostChange>) {
        let affected = self.affected_by_objects([object.id]);
        let generation = self.generation;
        self.transition(affected, changes, |state| state.next_hops.insert(object, generation));
    }

    pub(super) fn remove_next_hop(&mut self, id: u32, changes: &mut Vec<HostChange>) {
        let affected = self.affected_by_objects([id]);
        self.transition(affected, changes, |state| {
            let gone = state.drop_next_hop(id);
            gone.into_iter().for_each(|id| state.outdated.note_removed(Dependency::NextHop(id)));
        });
    }

    /// Removes a next-hop object and the routes that use it, as the kernel does; returns the ids of the
    /// object and of the emptied groups.
    pub(super) fn drop_next_hop(&mut self, id: u32) -> Vec<u32> {
        let gone = self.next_hops.remove(id);
        for id in &gone {
            let users: Vec<IpNet> = self.routes.dependants(Dependency::NextHop(*id)).collect();
            for prefix in users {
                self.routes.retain(prefix, |route| route.entry.next_hop_id != Some(*id));
            }
        }
        gone
    }

    /// Returns the prefixes whose effective route may change if a route of this prefix and table changes.
    pub(super) fn affected(&self, prefix: IpNet, table: u32) -> Vec<IpNet> {
        let mut affected = vec![prefix];
        let others = |covered: &IpNet| *covered != prefix && prefix.contains(covered);
        if table == LOCAL && prefix.prefix_len() < prefix.max_prefix_len() {
            affected.extend(self.routes.covered_by(prefix).filter(others));
        } else if table == MAIN && !self.routes.in_default.is_empty() {
            affected.extend(self.routes.in_default.range(span(prefix)).copied().filter(others));
        }
        affected
    }

    /// Returns the prefixes whose effective route may change if these next-hop objects change.
    pub(super) fn affected_by_objects(&self, ids: impl IntoIterator<Item = u32>) -> BTreeSet<IpNet> {
        let objects = ids.into_iter().flat_map(|id| self.next_hops.with_groups(id));
        let users = objects.flat_map(|id| self.routes.dependants(Dependency::NextHop(id)));
        self.with_hidden(users.collect())
    }

    /// Returns the prefixes whose effective route may change if a device changes.
    pub(super) fn affected_by_device(&self, ifindex: u32) -> BTreeSet<IpNet> {
        let mut affected = self.affected_by_objects(self.next_hops.on_device(ifindex));
        affected.extend(self.routes.dependants(Dependency::Device(ifindex)));
        self.with_hidden(affected)
    }

    /// Adds the prefixes that an affected prefix may hide.
    pub(super) fn with_hidden(&self, mut affected: BTreeSet<IpNet>) -> BTreeSet<IpNet> {
        let wide: Vec<IpNet> = self.routes.wide_local.intersection(&affected).copied().collect();
        affected.extend(wide.into_iter().flat_map(|prefix| self.routes.covered_by(prefix)));
        affected.extend(&self.routes.in_default);
        affected
    }
}
