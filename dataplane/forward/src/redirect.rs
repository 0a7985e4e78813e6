//! When to tell a host of a better first hop: RFC 1812, 5.2.7.2; RFC 4861, 8.2.

use std::net::IpAddr;

use millrace_units::PortId;

use crate::{Fib, NextHop, Route};

/// A packet that is about to be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct RedirectQuery<'a> {
    /// The port it came by.
    pub arrival: PortId,
    /// Where it goes.
    pub next_hop: &'a NextHop,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Whether it carries a source route: its sender chose the way.
    pub source_routed: bool,
}

/// The first hop that the packet's sender should use instead of this router: the gateway, or the destination itself
/// when that is on the link. `None` when no redirect must be sent: the packet leaves by another port than it came by,
/// its source or the first hop is not on that port's subnet, or it is source-routed (RD-01, RD-02).
pub fn redirect_target(fib: &Fib, query: &RedirectQuery<'_>) -> Option<IpAddr> {
    if query.arrival != query.next_hop.port || query.source_routed {
        return None;
    }
    let target = query.next_hop.neighbour(query.destination);
    let (subnet, route) = fib.prefix_of(query.source)?;
    let Route::Forward(hops) = route else { return None };
    let on_link = hops.iter().any(|hop| hop.port == query.arrival && hop.gateway.is_none());
    // IPv6 gateways are link-local, and each of those is on its link (RFC 4861, 8.2).
    let target_near =
        subnet.contains(&target) || matches!(target, IpAddr::V6(a) if a.is_unicast_link_local());
    (on_link && target_near && target != query.source).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextHops;

    fn table() -> Fib {
        let mut fib = Fib::new();
        let connected = |port| Route::Forward(NextHops::single(NextHop::new(PortId(port), None)));
        fib.insert("10.1.0.0/24".parse().unwrap(), connected(1));
        fib.insert("10.2.0.0/24".parse().unwrap(), connected(2));
        fib.insert("2001:db8:1::/64".parse().unwrap(), connected(1));
        fib
    }

    fn target(source: &str, gateway: Option<&str>, out: u16, source_routed: bool) -> Option<IpAddr> {
        let source: IpAddr = source.parse().unwrap();
        let destination = if source.is_ipv4() { "10.1.0.77" } else { "2001:db8:9::1" }.parse().unwrap();
        let next_hop = NextHop::new(PortId(out), gateway.map(|gateway| gateway.parse().unwrap()));
        let query =
            RedirectQuery { arrival: PortId(1), next_hop: &next_hop, source, destination, source_routed };
        redirect_target(&table(), &query)
    }

    /// RD-01, ND-07.
    #[test]
    fn a_host_is_redirected_to_a_gateway_on_its_own_subnet() {
        assert_eq!(target("10.1.0.5", Some("10.1.0.254"), 1, false), Some("10.1.0.254".parse().unwrap()));
        assert_eq!(target("10.1.0.5", None, 1, false), Some("10.1.0.77".parse().unwrap()));
        assert_eq!(target("2001:db8:1::5", Some("fe80::9"), 1, false), Some("fe80::9".parse().unwrap()));
    }

    /// RD-02.
    #[test]
    fn nobody_else_is_redirected() {
        assert_eq!(target("10.1.0.5", Some("10.2.0.254"), 2, false), None, "leaves by another port");
        assert_eq!(target("10.2.0.5", Some("10.1.0.254"), 1, false), None, "source on another subnet");
        assert_eq!(target("10.9.0.5", Some("10.1.0.254"), 1, false), None, "source behind a router");
        assert_eq!(target("10.1.0.5", Some("10.1.0.254"), 1, true), None, "source-routed");
        assert_eq!(target("10.1.0.5", Some("10.3.0.1"), 1, false), None, "gateway not on the subnet");
        assert_eq!(target("10.1.0.254", Some("10.1.0.254"), 1, false), None, "the gateway itself");
    }
}
