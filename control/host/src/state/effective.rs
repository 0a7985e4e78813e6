//! Selection of the effective route of each prefix.
//!
//! The kernel searches the local table, then main, then default, each for its longest match. Millrace has one
//! table by prefix. It gives the same results with two rules. A prefix of main is omitted if a shorter prefix
//! of local covers it. A prefix of default is omitted if a shorter prefix of main covers it.

use ipnet::IpNet;

use super::HostState;
use super::message::RouteEntry;
use super::route_table::{DEFAULT, LOCAL, MAIN, StoredRoute, joined};
use crate::{HostNextHop, HostRoute, PrefixRange, RouteKind};

impl HostState {
    /// Returns the effective route of exactly this prefix, with its usable next hops.
    ///
    /// A unicast route without usable next hops is skipped, and the route with the next metric applies.
    pub fn effective(&self, prefix: IpNet) -> Option<HostRoute> {
        let routes = self.routes.get(prefix);
        if routes.is_empty() {
            return None;
        }
        let not_throw = |route: &HostRoute| route.kind != RouteKind::Throw;
        if let Some(route) = first_usable(self, routes, LOCAL).filter(not_throw) {
            return Some(route);
        }
        if hidden_by_local(self, prefix) {
            return None;
        }
        if let Some(route) = first_usable(self, routes, MAIN) {
            return Some(route);
        }
        first_usable(self, routes, DEFAULT).filter(|_| !hidden_by_main(self, prefix))
    }

    /// Whether the main table has a route of `protocol` to exactly this prefix, even an unusable one.
    pub fn has_route_of(&self, prefix: IpNet, protocol: u8) -> bool {
        let mut entries = self.routes.get(prefix).iter().map(|route| &route.entry);
        entries.any(|entry| entry.table == MAIN && entry.protocol == protocol)
    }

    /// Returns all effective routes in the order of their prefixes.
    pub fn routes(&self) -> impl Iterator<Item = HostRoute> + '_ {
        self.routes.prefixes().filter_map(|prefix| self.effective(prefix))
    }

    /// Returns the effective routes in a range, in the order of their prefixes. Does not scan earlier routes.
    pub fn routes_in(&self, range: PrefixRange) -> impl Iterator<Item = HostRoute> + '_ {
        self.routes.prefixes_in(range).filter_map(|prefix| self.effective(prefix))
    }
}

fn hidden_by_main(state: &HostState, prefix: IpNet) -> bool {
    let mut wider = prefix;
    while let Some(net) = wider.supernet() {
        wider = net;
        if holds(state, wider, MAIN) {
            return true;
        }
    }
    false
}

/// Whether a table has a usable route to exactly this prefix, other than `throw`. Such a route ends the
/// kernel's search.
fn holds(state: &HostState, prefix: IpNet, table: u32) -> bool {
    first_usable(state, state.routes.get(prefix), table).is_some_and(|route| route.kind != RouteKind::Throw)
}

fn hidden_by_local(state: &HostState, prefix: IpNet) -> bool {
    let hides = |wide: &IpNet| *wide != prefix && wide.contains(&prefix);
    // `wide_local` holds only a few prefixes, such as 127.0.0.0/8 and ff00::/8.
    state.routes.wide_local.iter().any(|wide| hides(wide) && holds(state, *wide, LOCAL))
}

fn hop_usable(state: &HostState, entry: &RouteEntry, hop: &HostNextHop) -> bool {
    // For IPv6, the kernel marks next hops dead only when their device goes down. An old route message may be
    // outdated in this, so use the state of the device.
    let disabled = hop.dead && entry.prefix.addr().is_ipv4() && entry.next_hop_id.is_none();
    !disabled && state.link(hop.ifindex).is_some_and(crate::HostLink::usable)
}

fn resolved<'a>(
    state: &HostState,
    entry: &'a RouteEntry,
) -> (RouteKind, std::borrow::Cow<'a, [HostNextHop]>) {
    let object = entry.next_hop_id.and_then(|id| state.next_hops.resolve(id));
    match object {
        None => (entry.kind, entry.next_hops.as_slice().into()),
        Some(object) if object.blackhole => (RouteKind::Blackhole, Vec::new().into()),
        Some(object) if entry.kind == RouteKind::Blackhole => (RouteKind::Unicast, object.next_hops.into()),
        Some(object) => (entry.kind, object.next_hops.into()),
    }
}

fn usable(state: &HostState, entry: &RouteEntry) -> Option<HostRoute> {
    let (kind, hops) = resolved(state, entry);
    let mut next_hops: Vec<HostNextHop> = match kind {
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw => Vec::new(),
        RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast => hops.iter().map(cleared).collect(),
        RouteKind::Unicast | RouteKind::Multicast | RouteKind::Other => {
            hops.iter().filter(|hop| hop_usable(state, entry, hop)).map(cleared).collect()
        }
    };
    if next_hops.is_empty() && matches!(kind, RouteKind::Unicast | RouteKind::Multicast) {
        return None;
    }
    if let [only] = next_hops.as_mut_slice() {
        only.weight = 1;
    }
    Some(HostRoute {
        prefix: entry.prefix,
        kind,
        table: entry.table,
        protocol: entry.protocol,
        metric: entry.metric,
        next_hops,
        mtu_metric: entry.mtu,
    })
}

fn first_usable(state: &HostState, routes: &[StoredRoute], table: u32) -> Option<HostRoute> {
    let of_table = routes.iter().map(|route| &route.entry).filter(|entry| entry.table == table);
    let conditional = |entry: &RouteEntry| entry.service_type != 0 || entry.from_source;
    let only_kernel = of_table.clone().any(conditional);
    let mut route = joined(of_table).find_map(|entry| usable(state, &entry))?;
    if only_kernel {
        route.kind = RouteKind::Other;
    }
    Some(route)
}

fn cleared(hop: &HostNextHop) -> HostNextHop {
    HostNextHop { dead: false, ..*hop }
}
