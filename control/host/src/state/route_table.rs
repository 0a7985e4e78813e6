//! Routes of the kernel's three tables by prefix, in the kernel's order of preference.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::message::{Placement, RouteEntry};
use crate::prefix_range::span;
use crate::{HostNextHop, PrefixRange};

pub(super) const LOCAL: u32 = 255;
pub(super) const MAIN: u32 = 254;
pub(super) const DEFAULT: u32 = 253;

/// Object that a route depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Dependency {
    Device(u32),
    NextHop(u32),
    Source(IpAddr),
}

/// Route with the generation in which the kernel last confirmed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StoredRoute {
    pub entry: RouteEntry,
    pub generation: u32,
}

/// All routes; the routes of one prefix are in the order in which the kernel would try them.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteTable {
    by_prefix: BTreeMap<IpNet, Vec<StoredRoute>>,
    dependants: HashMap<Dependency, HashSet<IpNet>>,
    /// Prefixes in the local table with more than one address, which hide longer prefixes of the main table.
    pub wide_local: BTreeSet<IpNet>,
    /// Prefixes in the default table, which shorter prefixes of the main table hide.
    pub in_default: BTreeSet<IpNet>,
}

impl RouteTable {
    pub fn get(&self, prefix: IpNet) -> &[StoredRoute] {
        self.by_prefix.get(&prefix).map_or(&[], Vec::as_slice)
    }

    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.by_prefix.keys().copied()
    }

    pub fn prefixes_in(&self, range: PrefixRange) -> impl Iterator<Item = IpNet> + '_ {
        range.of(&self.by_prefix).map(|(prefix, _)| prefix)
    }

    pub fn covered_by(&self, prefix: IpNet) -> impl Iterator<Item = IpNet> + '_ {
        self.by_prefix.range(span(prefix)).map(|(covered, _)| *covered).filter(move |q| prefix.contains(q))
    }

    pub fn dependants(&self, dependency: Dependency) -> impl Iterator<Item = IpNet> + '_ {
        self.dependants.get(&dependency).into_iter().flatten().copied()
    }

    /// Adds or changes a route in the same manner as the kernel.
    pub fn insert(&mut self, entry: RouteEntry, placement: Placement, generation: u32) {
        self.edit(entry.prefix, |routes| match entry.prefix {
            IpNet::V4(_) => insert_v4(routes, entry, placement, generation),
            IpNet::V6(_) => insert_v6(routes, entry, placement, generation),
        });
    }

    /// Removes a route, or removes next hops from an IPv6 route.
    pub fn remove(&mut self, entry: &RouteEntry) {
        self.edit(entry.prefix, |routes| match entry.prefix {
            IpNet::V4(_) => {
                if let Some(at) = routes.iter().position(|route| same_route(&route.entry, entry)) {
                    routes.remove(at);
                }
            }
            IpNet::V6(_) => remove_v6(routes, entry),
        });
    }

    /// Keeps the routes of a prefix for which `keep` returns true; `keep` may change them.
    pub fn retain(&mut self, prefix: IpNet, mut keep: impl FnMut(&mut StoredRoute) -> bool) {
        self.edit(prefix, |routes| routes.retain_mut(|route| keep(route)));
    }

    fn edit(&mut self, prefix: IpNet, change: impl FnOnce(&mut Vec<StoredRoute>)) {
        let routes = self.by_prefix.entry(prefix).or_default();
        for dependency in routes.iter().flat_map(|route| dependencies(&route.entry)) {
            forget(&mut self.dependants, dependency, prefix);
        }
        change(routes);
        for dependency in routes.iter().flat_map(|route| dependencies(&route.entry)) {
            self.dependants.entry(dependency).or_default().insert(prefix);
        }
        let wide = prefix.prefix_len() < prefix.max_prefix_len();
        mark(&mut self.wide_local, prefix, wide && routes.iter().any(|route| route.entry.table == LOCAL));
        mark(&mut self.in_default, prefix, routes.iter().any(|route| route.entry.table == DEFAULT));
        if routes.is_empty() {
            self.by_prefix.remove(&prefix);
        }
    }
}

fn mark(set: &mut BTreeSet<IpNet>, prefix: IpNet, member: bool) {
    if member {
        set.insert(prefix);
    } else if !set.is_empty() {
        set.remove(&prefix);
    }
}

fn forget(dependants: &mut HashMap<Dependency, HashSet<IpNet>>, dependency: Dependency, prefix: IpNet) {
    if let Some(prefixes) = dependants.get_mut(&dependency) {
        prefixes.remove(&prefix);
        if prefixes.is_empty() {
            dependants.remove(&dependency);
        }
    }
}

fn dependencies(entry: &RouteEntry) -> impl Iterator<Item = Dependency> + '_ {
    // The next hops of a known object are resolved at use. Until the object is known, the next hops of the
    // message count.
    let devices = entry.next_hops.iter().map(|hop| Dependency::Device(hop.ifindex));
    let object = entry.next_hop_id.map(Dependency::NextHop);
    devices.chain(object).chain(entry.preferred_source.map(Dependency::Source))
}

/// Returns the order of a route among the routes of its prefix: rule order of the tables, then the metric.
fn rank(entry: &RouteEntry) -> (u32, u32) {
    (LOCAL - entry.table, entry.metric)
}

fn same_group(a: &RouteEntry, b: &RouteEntry) -> bool {
    rank(a) == rank(b) && a.service_type == b.service_type && a.from_source == b.from_source
}

fn same_hops(a: &RouteEntry, b: &RouteEntry) -> bool {
    if a.next_hop_id.is_some() || b.next_hop_id.is_some() {
        return a.next_hop_id == b.next_hop_id;
    }
    let key = |hop: &HostNextHop| (hop.ifindex, hop.gateway, hop.weight);
    a.next_hops.iter().map(key).eq(b.next_hops.iter().map(key))
}

/// Whether both are the same kernel route; flags of next hops, and metrics other than the priority, don't
/// count.
fn same_route(a: &RouteEntry, b: &RouteEntry) -> bool {
    same_group(a, b)
        && (a.kind == b.kind || a.next_hop_id.is_some())
        && (a.protocol, a.scope, a.preferred_source) == (b.protocol, b.scope, b.preferred_source)
        && same_hops(a, b)
}

fn insert_v4(routes: &mut Vec<StoredRoute>, entry: RouteEntry, placement: Placement, generation: u32) {
    let group_start = routes.iter().position(|route| rank(&route.entry) >= rank(&entry));
    let start = group_start.unwrap_or(routes.len());
    let known = routes.iter().position(|route| same_route(&route.entry, &entry));
    let stored = StoredRoute { entry, generation };
    if placement == Placement::Listed {
        if let Some(at) = known {
            routes.remove(at);
        }
        // A list has the kernel's order: insert after the routes already listed and before the routes not
        // confirmed yet.
        let behind = routes[start..]
            .iter()
            .take_while(|route| rank(&route.entry) == rank(&stored.entry) && route.generation == generation);
        let at = start + behind.count();
        routes.insert(at, stored);
        return;
    }
    if let Some(at) = known {
        routes[at] = stored;
        return;
    }
    let in_group = |route: &StoredRoute| same_group(&route.entry, &stored.entry);
    match placement {
        Placement::Replace => match routes.iter().position(in_group) {
            Some(at) => routes[at] = stored,
            None => routes.insert(start, stored),
        },
        Placement::Append => {
            let end = routes.iter().rposition(in_group).map_or(start, |last| last + 1);
            routes.insert(end, stored);
        }
        Placement::Prepend | Placement::Listed => routes.insert(start, stored),
    }
}

/// Whether the kernel joins the route with others of the same metric into a multipath route.
fn joins(entry: &RouteEntry) -> bool {
    const REDIRECT: u8 = 1;
    const ROUTER_ADVERTISEMENT: u8 = 9;
    entry.next_hop_id.is_none()
        && !matches!(entry.protocol, REDIRECT | ROUTER_ADVERTISEMENT)
        && !entry.next_hops.is_empty()
        && entry.next_hops.iter().all(|hop| hop.gateway.is_some())
}

fn hop_key(hop: &HostNextHop) -> (u32, Option<IpAddr>) {
    (hop.ifindex, hop.gateway)
}

fn same_hop(a: &HostNextHop, b: &HostNextHop) -> bool {
    hop_key(a) == hop_key(b)
}

fn contains_hops(whole: &[HostNextHop], part: &[HostNextHop]) -> bool {
    part.iter().all(|hop| whole.iter().any(|other| same_hop(hop, other)))
}

fn insert_v6(routes: &mut Vec<StoredRoute>, mut entry: RouteEntry, placement: Placement, generation: u32) {
    // The kernel's order of next hops differs between additions and lists.
    entry.next_hops.sort_by_key(hop_key);
    let in_group = |route: &StoredRoute| same_group(&route.entry, &entry);
    let joinable = |route: &StoredRoute| in_group(route) && joins(&route.entry) == joins(&entry);
    if placement == Placement::Replace {
        let at = routes.iter().position(joinable).or_else(|| routes.iter().position(in_group));
        match at {
            Some(at) => routes[at] = StoredRoute { entry, generation },
            None => insert_last(routes, StoredRoute { entry, generation }),
        }
        return;
    }
    let known = if joins(&entry) {
        routes.iter().position(joinable)
    } else {
        routes.iter().position(|route| same_route(&route.entry, &entry))
    };
    let Some(at) = known else {
        insert_last(routes, StoredRoute { entry, generation });
        return;
    };
    let stored = &mut routes[at];
    let first_of_list = placement == Placement::Listed && stored.generation != generation;
    let joined = !first_of_list && joins(&entry) && !contains_hops(&entry.next_hops, &stored.entry.next_hops);
    if joined {
        let new =
            entry.next_hops.iter().filter(|hop| !stored.entry.next_hops.iter().any(|old| same_hop(old, hop)));
        let new: Vec<_> = new.copied().collect();
        stored.entry.next_hops.extend(new);
        stored.entry.next_hops.sort_by_key(hop_key);
    } else {
        stored.entry = entry;
    }
    stored.generation = generation;
}

fn insert_last(routes: &mut Vec<StoredRoute>, stored: StoredRoute) {
    let end = routes.iter().position(|route| rank(&route.entry) > rank(&stored.entry));
    routes.insert(end.unwrap_or(routes.len()), stored);
}

fn remove_v6(routes: &mut Vec<StoredRoute>, entry: &RouteEntry) {
    if !joins(entry) {
        if let Some(at) = routes.iter().position(|route| same_route(&route.entry, entry)) {
            routes.remove(at);
        }
        return;
    }
    let same = |route: &StoredRoute| same_group(&route.entry, entry) && joins(&route.entry);
    let Some(at) = routes.iter().position(same) else { return };
    let hops = &mut routes[at].entry.next_hops;
    hops.retain(|hop| !entry.next_hops.iter().any(|gone| same_hop(gone, hop)));
    if hops.is_empty() {
        routes.remove(at);
    }
}
