//! Routes that only the workers hold, not the kernel.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_forward::{NextHop, NextHops, Route};
use millrace_host::{PrefixRange, merged};
use millrace_units::PortId;

/// Routes that the workers hold and the kernel doesn't; most of them lead through ports without a kernel
/// device. Each takes precedence over the kernel's route to the same prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnRoutes {
    /// Connected routes, from the ports' addresses.
    connected: BTreeMap<IpNet, Route>,
    /// Configured and added routes. They take precedence over connected routes to the same prefix.
    added: BTreeMap<IpNet, Route>,
    /// Subnets of the ports, from connected and added routes.
    subnets: Subnets,
}

/// Directly connected subnets. Destinations in a subnet are neighbours at its port.
#[derive(Clone, Debug, Default)]
struct Subnets {
    /// Two ports for each subnet: the port of the connected route, then the port of the added route. The
    /// added route takes precedence.
    ports: HashMap<IpNet, [Option<PortId>; 2]>,
    /// Number of subnets by family (IPv6 is `true`) and prefix length.
    lengths: BTreeMap<(bool, u8), usize>,
}

impl Subnets {
    /// Sets the port to which a subnet is connected, by an added route (`added`) or by a connected route.
    /// `None` removes the port.
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

    /// Returns the port of the most specific subnet that contains an address.
    fn port_of(&self, address: IpAddr) -> Option<PortId> {
        let family = (address.is_ipv6(), 0)..=(address.is_ipv6(), u8::MAX);
        let lengths = self.lengths.range(family).rev().filter(|(_, count)| **count > 0);
        lengths.into_iter().find_map(|((_, length), _)| {
            let [connected, added] = self.ports.get(&IpNet::new(address, *length).ok()?.trunc())?;
            added.or(*connected)
        })
    }
}

/// Returns the port that the prefix of a route is directly connected to; `None` if all next hops are
/// gateways.
fn subnet_of(route: &Route) -> Option<PortId> {
    match route {
        Route::Forward(hops) => hops.iter().find(|hop| hop.gateway.is_none()).map(|hop| hop.port),
        _ => None,
    }
}

impl OwnRoutes {
    /// Adds the connected routes of a port's address: to the address, to its subnet, and to the IPv4
    /// broadcast address of the subnet.
    pub fn add_address(&mut self, port: PortId, net: IpNet) {
        let host = IpNet::from(net.addr());
        self.connected.insert(host, Route::Local);
        // Every port has the link-local prefix, so this prefix leads to no particular port.
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

    pub fn connected(&self) -> &BTreeMap<IpNet, Route> {
        &self.connected
    }

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

    /// Returns the routes whose prefixes are in a range, in the order of their prefixes.
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
    fn address_adds_host_subnet_and_broadcast_routes() {
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
        // A blackhole route is connected to no port, so it adds no subnet.
        own.add(net, Route::Blackhole);
        assert_eq!(towards(&own, "10.1.7.9"), Some(PortId(3)));
        own.take_connected();
        assert_eq!([towards(&own, "10.1.7.9"), towards(&own, "fd00::9")], [None, None]);
    }

    #[test]
    fn hidden_route_returns_when_the_added_route_is_removed() {
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
