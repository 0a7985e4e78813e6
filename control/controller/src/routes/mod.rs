//! Conversion of kernel and configured routes to routes of the forwarding table.

pub(crate) mod changes;
pub(crate) mod configured;
pub(crate) mod list;
pub(crate) mod table;
pub(crate) mod views;
pub(crate) mod wanted;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_forward::{NextHop, NextHops, Route};
use millrace_host::{HostRoute, OwnRoute, PrefixRange, RouteKind, merged};
use millrace_units::PortId;

use crate::ControlError;
use crate::routes::table::RouteTable;
use crate::routes::wanted::WantedRoutes;
use crate::view::{MissingRoutesView, RouteView};

/// Routes of the router beside its model.
pub(crate) struct Routes {
    /// Forwarding table.
    pub table: RouteTable,
    /// Routes installed in the kernel, by prefix.
    installed: BTreeMap<IpNet, OwnRoute>,
    /// Configured routes that the kernel should have but lacks.
    wanted: WantedRoutes,
}

impl Routes {
    /// Creates the routes of a router with an empty forwarding table.
    pub fn new(table: RouteTable) -> Self {
        Self { table, installed: BTreeMap::new(), wanted: WantedRoutes::default() }
    }

    /// Takes the routes installed in the kernel, for their removal.
    pub fn take_installed(&mut self) -> impl Iterator<Item = OwnRoute> + use<> {
        std::mem::take(&mut self.installed).into_values()
    }

    /// Returns the view of the missing routes; `None` where there are none.
    pub fn missing(&self) -> Option<MissingRoutesView> {
        self.wanted.view()
    }

    /// Adds to the view of a route the reason why the kernel lacks the route, if it does.
    pub fn with_missing(&self, prefix: IpNet, view: RouteView) -> RouteView {
        RouteView { missing: self.wanted.why(&prefix).map(str::to_owned), ..view }
    }

    /// Returns the error for adding a route to a prefix that already has a configured route.
    pub fn there_is_one(&self, prefix: IpNet) -> ControlError {
        match self.wanted.why(&prefix) {
            Some(why) => ControlError::Conflict(format!(
                "there is a route of ours to {prefix}, which the kernel is given again by and by ({why}): remove it first"
            )),
            None => ControlError::there_is_one(prefix),
        }
    }
}

/// Ports by the index of their kernel device.
pub type PortsByDevice = HashMap<u32, PortId>;

/// Converts a kernel route to a route of the forwarding table; `None` for multicast.
pub fn from_kernel(route: &HostRoute, ports: &PortsByDevice) -> Option<Route> {
    match route.kind {
        RouteKind::Unicast => Some(unicast(route, ports)),
        RouteKind::Local | RouteKind::Anycast => Some(Route::Local),
        RouteKind::Broadcast => Some(Route::Broadcast),
        RouteKind::Blackhole => Some(Route::Blackhole),
        RouteKind::Unreachable => Some(Route::Unreachable),
        RouteKind::Prohibit => Some(Route::Prohibit),
        RouteKind::Multicast => None,
        RouteKind::Throw | RouteKind::Other => Some(Route::Kernel),
    }
}

/// Returns a forward route if each next hop is behind a port of the router. Otherwise the kernel handles the
/// packets.
fn unicast(route: &HostRoute, ports: &PortsByDevice) -> Route {
    let hops: Option<Vec<NextHop>> = route
        .next_hops
        .iter()
        .map(|hop| {
            let port = ports.get(&hop.ifindex).filter(|_| !hop.encap)?;
            let weight = u16::try_from(hop.weight).unwrap_or(u16::MAX);
            Some(NextHop { port: *port, gateway: hop.gateway, weight })
        })
        .collect();
    hops.and_then(|hops| NextHops::new(&hops).ok()).map_or(Route::Kernel, Route::Forward)
}

/// Routes that only the workers hold, mostly through ports without a kernel device. They take precedence over
/// the kernel's route to the same prefix.
#[derive(Clone, Debug, Default)]
pub struct OwnRoutes {
    /// Connected routes, from the ports' addresses.
    connected: BTreeMap<IpNet, Route>,
    /// Configured and added routes. They take precedence over connected routes to the same prefix.
    added: BTreeMap<IpNet, Route>,
    /// Subnets of the ports, from both kinds of routes.
    subnets: Subnets,
}

/// Directly connected subnets. Destinations in a subnet are neighbours at its port.
#[derive(Clone, Debug, Default)]
struct Subnets {
    /// Port of each subnet: first from a connected route, then from an added route, which takes precedence.
    ports: HashMap<IpNet, [Option<PortId>; 2]>,
    /// Number of subnets by family (IPv6 is `true`) and prefix length.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl Subnets {
    /// Sets the port of a subnet, from an added route or from a connected one; `None` removes it.
    fn set(&mut self, net: IpNet, added: bool, port: Option<PortId>) {
        let ports = self.ports.entry(net).or_default();
        let before = ports.iter().any(Option::is_some);
        ports[usize::from(added)] = port;
        let count = self.lengths.entry((net.addr().is_ipv6(), net.prefix_len())).or_default();
        match (before, ports.iter().any(Option::is_some)) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        }
        if ports.iter().all(Option::is_none) {
            self.ports.remove(&net);
        }
    }

    /// Returns the port of the longest subnet prefix that contains an address.
    fn port_of(&self, address: IpAddr) -> Option<PortId> {
        let family = (address.is_ipv6(), 0)..=(address.is_ipv6(), u8::MAX);
        let lengths = self.lengths.range(family).rev().filter(|(_, count)| **count > 0);
        lengths.into_iter().find_map(|((_, length), _)| {
            let [connected, added] = self.ports.get(&IpNet::new(address, *length).ok()?.trunc())?;
            added.or(*connected)
        })
    }
}

/// Returns the port at which the destinations of a route are neighbours; `None` if all next hops are
/// gateways.
fn subnet_of(route: &Route) -> Option<PortId> {
    match route {
        Route::Forward(hops) => hops.iter().find(|hop| hop.gateway.is_none()).map(|hop| hop.port),
        _ => None,
    }
}

impl OwnRoutes {
    /// Adds the routes of a port's address: to the address itself, to the subnet, and to an IPv4 broadcast
    /// address.
    pub fn add_address(&mut self, port: PortId, net: IpNet) {
        let host = IpNet::from(net.addr());
        self.connected.insert(host, Route::Local);
        // Every port has the link-local prefix, so the prefix doesn't determine the port.
        let link_local = matches!(net, IpNet::V6(v6) if v6.addr().is_unicast_link_local());
        if net.prefix_len() == host.prefix_len() || link_local {
            return;
        }
        self.connected.insert(net.trunc(), Route::Forward(NextHops::single(NextHop::new(port, None))));
        self.subnets.set(net.trunc(), false, Some(port));
        if let IpNet::V4(v4) = net
            && v4.prefix_len() < 31
        {
            self.connected.insert(IpAddr::V4(v4.broadcast()).into(), Route::Broadcast);
        }
    }

    /// Removes and returns the connected routes.
    pub fn take_connected(&mut self) -> BTreeMap<IpNet, Route> {
        let connected = std::mem::take(&mut self.connected);
        connected.keys().for_each(|net| self.subnets.set(*net, false, None));
        connected
    }

    /// Returns the connected routes.
    pub fn connected(&self) -> &BTreeMap<IpNet, Route> {
        &self.connected
    }

    /// Adds a configured route.
    pub fn add(&mut self, prefix: IpNet, route: Route) {
        self.subnets.set(prefix, true, subnet_of(&route));
        self.added.insert(prefix, route);
    }

    /// Removes an added route and returns it; `None` if there is none.
    pub fn remove(&mut self, prefix: &IpNet) -> Option<Route> {
        self.subnets.set(*prefix, true, None);
        self.added.remove(prefix)
    }

    /// Whether a route to exactly `prefix` was added.
    pub fn is_added(&self, prefix: &IpNet) -> bool {
        self.added.contains_key(prefix)
    }

    /// Returns the route to exactly `prefix`; an added route takes precedence over a connected one.
    pub fn get(&self, prefix: &IpNet) -> Option<&Route> {
        self.added.get(prefix).or_else(|| self.connected.get(prefix))
    }

    /// Returns all routes, in the order of their prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &Route)> {
        self.range(PrefixRange::default())
    }

    /// Returns the routes of a range, in the order of their prefixes.
    pub fn range(&self, range: PrefixRange) -> impl Iterator<Item = (IpNet, &Route)> {
        merged(range.of(&self.added), range.of(&self.connected))
    }

    /// Returns the port whose subnet contains `address`.
    pub fn port_towards(&self, address: IpAddr) -> Option<PortId> {
        self.subnets.port_of(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_brings_its_host_its_subnet_and_its_broadcast() {
        let mut own = OwnRoutes::default();
        own.add_address(PortId(3), "10.1.0.1/24".parse().unwrap());
        own.add_address(PortId(4), "10.2.0.0/31".parse().unwrap());
        own.add_address(PortId(4), "fd00::1/64".parse().unwrap());
        let kinds: Vec<String> = own.iter().map(|(net, route)| format!("{net} {route}")).collect();
        assert_eq!(
            kinds,
            [
                "10.1.0.0/24 forward port 3 weight 1",
                "10.1.0.1/32 local",
                "10.1.0.255/32 broadcast",
                "10.2.0.0/31 forward port 4 weight 1",
                "10.2.0.0/32 local",
                "fd00::/64 forward port 4 weight 1",
                "fd00::1/128 local",
            ]
        );
        assert_eq!(own.port_towards("10.1.0.77".parse().unwrap()), Some(PortId(3)));
        assert_eq!(own.port_towards("192.0.2.1".parse().unwrap()), None);
    }

    #[test]
    fn an_address_is_behind_the_port_of_the_smallest_subnet() {
        let mut own = OwnRoutes::default();
        let towards = |own: &OwnRoutes, address: &str| own.port_towards(address.parse().unwrap());
        own.add_address(PortId(3), "10.1.0.1/16".parse().unwrap());
        own.add_address(PortId(5), "fd00::1/64".parse().unwrap());
        let subnet = |port| Route::Forward(NextHops::single(NextHop::new(PortId(port), None)));
        let net: IpNet = "10.1.7.0/24".parse().unwrap();
        own.add(net, subnet(4));
        assert_eq!(
            [towards(&own, "10.1.7.9"), towards(&own, "10.1.8.9")],
            [Some(PortId(4)), Some(PortId(3))]
        );
        assert_eq!([towards(&own, "fd00::9"), towards(&own, "fd01::9")], [Some(PortId(5)), None]);
        // A route without a directly connected port adds no subnet.
        own.add(net, Route::Blackhole);
        assert_eq!(towards(&own, "10.1.7.9"), Some(PortId(3)));
        own.take_connected();
        assert_eq!([towards(&own, "10.1.7.9"), towards(&own, "fd00::9")], [None, None]);
    }

    #[test]
    fn what_an_added_route_hides_is_there_again_when_it_is_removed() {
        let mut own = OwnRoutes::default();
        own.add_address(PortId(3), "10.1.0.1/24".parse().unwrap());
        let net: IpNet = "10.1.0.0/24".parse().unwrap();
        let connected = own.get(&net).cloned();
        own.add(net, Route::Blackhole);
        assert_eq!((own.get(&net), own.iter().count()), (Some(&Route::Blackhole), 3));
        assert!(own.is_added(&net) && own.remove(&net).is_some() && !own.is_added(&net));
        assert_eq!(own.get(&net).cloned(), connected);
        assert!(own.remove(&net).is_none());
    }
}
