//! Routes of the kernel's three tables by prefix, in the kernel's order of preference.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::message::{Placement, RouteEntry};
use crate::prefix_range::span;
use crate::{HostNextHop, PrefixRange};

#[cfg(test)]
mod tests;

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

/// Route with the generation in which the kernel last confirmed it. An IPv6 multipath route is stored as one
/// route per next hop, as in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StoredRoute {
    pub entry: RouteEntry,
    pub generation: u32,
    /// Whether a device has lost the route's source address, and the list in progress must tell whether
    /// another device has it.
    source_in_doubt: bool,
    /// Placement by the last message about the route; `Replace` if a notification has left the route in its
    /// place. Routes of a list are placed before the routes that were appended since the list began.
    placement: Placement,
}

impl StoredRoute {
    fn new(entry: RouteEntry, placement: Placement, generation: u32) -> Self {
        Self { entry, generation, source_in_doubt: false, placement }
    }

    /// Whether the route depends on a source address that may be gone.
    pub fn is_in_doubt(&self) -> bool {
        self.source_in_doubt
    }
}

/// All routes. The routes of one prefix are in the order in which the kernel tries them.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteTable {
    by_prefix: BTreeMap<IpNet, Vec<StoredRoute>>,
    dependants: HashMap<Dependency, HashSet<IpNet>>,
    /// Prefixes of the local table that cover more than one address. They hide longer prefixes of the main
    /// table.
    pub wide_local: BTreeSet<IpNet>,
    /// Prefixes of the default table. Shorter prefixes of the main table hide them.
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

    /// Adds or changes a route as the kernel does; returns the routes that it replaces. `listing` tells
    /// whether a list is in progress.
    pub fn insert(
        &mut self,
        entry: RouteEntry,
        placement: Placement,
        generation: u32,
        listing: bool,
    ) -> Vec<RouteEntry> {
        self.edit(entry.prefix, |routes| match placement {
            Placement::Listed => {
                siblings(entry).into_iter().for_each(|route| insert_listed(routes, route, generation));
                Vec::new()
            }
            placement => insert_notified(routes, entry, placement, generation, listing),
        })
    }

    /// Removes a route; for IPv6, removes only the next hops that `entry` names.
    pub fn remove(&mut self, entry: &RouteEntry) {
        self.edit(entry.prefix, |routes| {
            for gone in siblings(entry.clone()) {
                if let Some(at) = routes.iter().position(|route| same_route(&route.entry, &gone)) {
                    routes.remove(at);
                }
            }
        });
    }

    /// Whether the table has this route; flags and metrics other than the priority may differ.
    pub fn contains(&self, entry: &RouteEntry) -> bool {
        self.get(entry.prefix).iter().any(|route| same_route(&route.entry, entry))
    }

    /// Keeps the routes of a prefix for which `keep` returns true; `keep` may change them.
    pub fn retain(&mut self, prefix: IpNet, mut keep: impl FnMut(&mut StoredRoute) -> bool) {
        self.edit(prefix, |routes| routes.retain_mut(|route| keep(route)));
    }

    /// Marks the routes from a source address that a device has lost as in doubt.
    pub fn doubt_source(&mut self, source: IpAddr) {
        let users: Vec<IpNet> = self.dependants(Dependency::Source(source)).collect();
        for prefix in users {
            self.retain(prefix, |route| {
                route.source_in_doubt |= route.entry.preferred_source == Some(source);
                true
            });
        }
    }

    fn edit<T>(&mut self, prefix: IpNet, change: impl FnOnce(&mut Vec<StoredRoute>) -> T) -> T {
        let routes = self.by_prefix.entry(prefix).or_default();
        for dependency in routes.iter().flat_map(|route| dependencies(&route.entry)) {
            forget(&mut self.dependants, dependency, prefix);
        }
        let outcome = change(routes);
        for dependency in routes.iter().flat_map(|route| dependencies(&route.entry)) {
            self.dependants.entry(dependency).or_default().insert(prefix);
        }
        let wide = prefix.prefix_len() < prefix.max_prefix_len();
        mark(&mut self.wide_local, prefix, wide && routes.iter().any(|route| route.entry.table == LOCAL));
        mark(&mut self.in_default, prefix, routes.iter().any(|route| route.entry.table == DEFAULT));
        if routes.is_empty() {
            self.by_prefix.remove(&prefix);
        }
        outcome
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
    // A known next-hop object is resolved when the route is used. If the object is unknown, the next hops in
    // the message apply.
    let devices = entry.next_hops.iter().map(|hop| Dependency::Device(hop.ifindex));
    let object = entry.next_hop_id.map(Dependency::NextHop);
    devices.chain(object).chain(entry.preferred_source.map(Dependency::Source))
}

/// Returns the rank of a route among the routes of its prefix: first the table (local, main, default), then
/// the metric.
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
    let key = |hop: &HostNextHop| (hop_key(hop), hop.weight);
    a.next_hops.iter().map(key).eq(b.next_hops.iter().map(key))
}

/// Whether `a` and `b` are the same route for the kernel. Flags of next hops, and metrics other than the
/// priority, don't count.
pub(super) fn same_route(a: &RouteEntry, b: &RouteEntry) -> bool {
    if joins(a) && joins(b) {
        return same_group(a, b) && a.next_hops.iter().map(hop_key).eq(b.next_hops.iter().map(hop_key));
    }
    same_group(a, b)
        && (a.kind == b.kind || a.next_hop_id.is_some())
        && (a.protocol, a.scope, a.preferred_source) == (b.protocol, b.scope, b.preferred_source)
        && same_hops(a, b)
}

/// Whether one route may replace the other: same metric, and for IPv6 both or neither may be part of a
/// multipath route.
pub(super) fn same_slot(a: &RouteEntry, b: &RouteEntry) -> bool {
    same_group(a, b) && joins(a) == joins(b)
}

/// Whether the kernel joins this IPv6 route with others of the same metric into a multipath route.
fn joins(entry: &RouteEntry) -> bool {
    const REDIRECT: u8 = 1;
    const ROUTER_ADVERTISEMENT: u8 = 9;
    entry.prefix.addr().is_ipv6()
        && entry.next_hop_id.is_none()
        && !matches!(entry.protocol, REDIRECT | ROUTER_ADVERTISEMENT)
        && !entry.next_hops.is_empty()
        && entry.next_hops.iter().all(|hop| hop.gateway.is_some())
}

/// Returns the identity of a next hop. Next hops that differ only in their encapsulation have the same
/// identity here, although the kernel distinguishes them.
fn hop_key(hop: &HostNextHop) -> (u32, Option<IpAddr>, bool) {
    (hop.ifindex, hop.gateway, hop.encap)
}

/// Splits an IPv6 multipath route into one route per next hop; returns any other route whole.
pub(super) fn siblings(mut entry: RouteEntry) -> Vec<RouteEntry> {
    if !joins(&entry) || entry.next_hops.len() == 1 {
        return vec![entry];
    }
    let hops = std::mem::take(&mut entry.next_hops);
    hops.into_iter().map(|hop| RouteEntry { next_hops: vec![hop], ..entry.clone() }).collect()
}

/// Returns the routes of one prefix. The parts of each IPv6 multipath route are joined into its first one.
pub(super) fn joined<'a>(
    routes: impl Iterator<Item = &'a RouteEntry> + Clone,
) -> impl Iterator<Item = Cow<'a, RouteEntry>> + Clone {
    routes.clone().enumerate().filter_map(move |(number, entry)| {
        if !joins(entry) {
            return Some(Cow::Borrowed(entry));
        }
        let mut siblings = routes.clone().enumerate().filter(|(_, other)| same_slot(other, entry));
        if siblings.next().is_some_and(|(first, _)| first < number) {
            return None;
        }
        let mut others = siblings.map(|(_, other)| other).peekable();
        if others.peek().is_none() {
            return Some(Cow::Borrowed(entry));
        }
        let hops = entry.next_hops.iter().chain(others.flat_map(|other| &other.next_hops));
        let mut next_hops: Vec<HostNextHop> = hops.copied().collect();
        // Sort the next hops: the kernel's order differs between notifications and lists.
        next_hops.sort_by_key(hop_key);
        Some(Cow::Owned(RouteEntry { next_hops, ..entry.clone() }))
    })
}

/// Inserts a route of a list. Routes arrive in the kernel's order. A known route keeps its place if the place
/// agrees with this order, because the list of one device lacks other routes of the prefix.
fn insert_listed(routes: &mut Vec<StoredRoute>, entry: RouteEntry, generation: u32) {
    let stored = StoredRoute::new(entry, Placement::Listed, generation);
    let is_current =
        |route: &StoredRoute| rank(&route.entry) == rank(&stored.entry) && route.generation == generation;
    let is_listed = |route: &StoredRoute| is_current(route) && route.placement == Placement::Listed;
    if let Some(at) = routes.iter().position(|route| same_route(&route.entry, &stored.entry)) {
        if !routes[at..].iter().any(is_listed) {
            routes[at] = stored;
            return;
        }
        routes.remove(at);
    }
    let at = routes.iter().rposition(is_listed).map(|last| last + 1).unwrap_or_else(|| {
        let start = start_of_rank(routes, &stored.entry);
        let comes_before = |route: &&StoredRoute| is_current(route) && route.placement != Placement::Append;
        start + routes[start..].iter().take_while(comes_before).count()
    });
    routes.insert(at, stored);
}

/// Inserts a route of a notification; returns the routes that it has replaced.
fn insert_notified(
    routes: &mut Vec<StoredRoute>,
    entry: RouteEntry,
    mut placement: Placement,
    generation: u32,
    listing: bool,
) -> Vec<RouteEntry> {
    let replaces = placement == Placement::Replace;
    if entry.prefix.addr().is_ipv6() && !replaces {
        // The kernel appends all IPv6 routes.
        placement = Placement::Append;
    }
    let (place, replaced) = if replaces { remove_replaced(routes, &entry) } else { (None, Vec::new()) };
    // During a list, a route that the mirror knows may be new in the kernel: either the list brought the new
    // route before its notification, or the mirror's route is an old one that the list will remove. Without a
    // list in progress, the kernel announces a known route again, and the route keeps its place.
    let may_be_new = |route: &StoredRoute| {
        listing && (route.generation < generation || route.placement == Placement::Listed)
    };
    for entry in siblings(entry) {
        let known = routes.iter().position(|route| same_route(&route.entry, &entry));
        if let Some(at) = known.filter(|at| replaces || joins(&entry) || !may_be_new(&routes[*at])) {
            update(&mut routes[at], entry, replaces, generation);
            continue;
        }
        if let Some(at) = known {
            routes.remove(at);
        }
        let last = || routes.iter().rposition(|route| same_group(&route.entry, &entry));
        let end = if placement == Placement::Append { last().map(|last| last + 1) } else { place };
        let at = end.unwrap_or_else(|| start_of_rank(routes, &entry));
        routes.insert(at, StoredRoute::new(entry, placement, generation));
    }
    replaced
}

/// Changes a known route without moving it.
fn update(stored: &mut StoredRoute, entry: RouteEntry, replaces: bool, generation: u32) {
    let in_place = replaces || stored.generation < generation;
    let placement = if in_place { Placement::Replace } else { stored.placement };
    let entry = if replaces || !joins(&entry) {
        entry
    } else {
        // In a message with several next hops, the other attributes are those of the first next hop.
        RouteEntry { next_hops: entry.next_hops, ..stored.entry.clone() }
    };
    *stored = StoredRoute::new(entry, placement, generation);
}

/// Removes the routes that `entry` replaces. Returns the place of the first of them, and the removed routes.
fn remove_replaced(routes: &mut Vec<StoredRoute>, entry: &RouteEntry) -> (Option<usize>, Vec<RouteEntry>) {
    // When a next-hop object changes, the kernel announces the routes by this object as replaced, although
    // they are the same.
    let may_be_known = entry.prefix.addr().is_ipv4() || entry.next_hop_id.is_some();
    if may_be_known && routes.iter().any(|route| same_route(&route.entry, entry)) {
        return (None, Vec::new());
    }
    let find = |same: fn(&RouteEntry, &RouteEntry) -> bool| {
        routes.iter().position(|route| same(&route.entry, entry))
    };
    let Some(at) = find(same_slot).or_else(|| find(same_group)) else { return (None, Vec::new()) };
    let first = routes.remove(at).entry;
    let is_sibling = |route: &mut StoredRoute| joins(&first) && same_slot(&route.entry, &first);
    let mut replaced: Vec<RouteEntry> = routes.extract_if(.., is_sibling).map(|route| route.entry).collect();
    replaced.push(first);
    (Some(at), replaced)
}

fn start_of_rank(routes: &[StoredRoute], entry: &RouteEntry) -> usize {
    routes.iter().position(|route| rank(&route.entry) >= rank(entry)).unwrap_or(routes.len())
}
