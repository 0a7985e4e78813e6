//! Requests to the kernel: neighbour resolution, and installation of the router's own routes.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::netlink::decode::decode;
use crate::netlink::request::{ACK, DUMP, Request};
use crate::netlink::rtm;
use crate::netlink::socket::Socket;
use crate::state::message::{KernelMessage, RouteEntry};
use crate::{Family, HostError, HostNextHop, RouteKind};

/// The `proto` number of routes that Millrace installs; iproute2 has no name for it.
pub const PROTOCOL_MILLRACE: u8 = 213;

const MAIN: u8 = 254;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_NOWHERE: u8 = 255;
const ONLINK: u32 = 4;
const RTA_VIA: u16 = 18;
const CREATE: u16 = libc::NLM_F_CREATE as u16;
const REPLACE: u16 = libc::NLM_F_REPLACE as u16;
const EXCLUSIVE: u16 = libc::NLM_F_EXCL as u16;
/// Metric that the kernel gives to IPv6 routes without a priority.
const IPV6_DEFAULT_METRIC: u32 = 1024;

/// Configured route to install in the kernel's main table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnRoute {
    /// Prefix of the destinations, host bits zero.
    pub prefix: IpNet,
    /// Kind of the route: `Unicast`, `Blackhole`, `Unreachable` or `Prohibit`.
    pub kind: RouteKind,
    /// Priority; the lowest wins. 0 means 1024 for IPv6, as in the kernel.
    pub metric: u32,
    /// Next hops of a `Unicast` route, with weights from 1 to 256. Their flag `onlink` is passed to the
    /// kernel; their other flags are ignored.
    pub next_hops: Vec<HostNextHop>,
}

/// Netlink socket for requests, in the network namespace of the thread that opened it.
///
/// Calls block until the kernel has answered, which takes some microseconds.
#[derive(Debug)]
pub struct Actions {
    socket: Socket,
    known: Option<HashSet<(IpNet, u32)>>,
}

impl Actions {
    /// Opens the netlink socket.
    pub fn open() -> Result<Self, HostError> {
        Ok(Self { socket: Socket::open(libc::NETLINK_ROUTE as isize)?, known: None })
    }

    /// Asks the kernel to resolve a neighbour. The result arrives as a [`crate::HostChange::Neighbour`]. If
    /// the kernel knows the neighbour already, it confirms the neighbour's entry before the entry expires.
    pub fn resolve(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), HostError> {
        const NTF_USE: u8 = 1;
        const DST: u16 = 1;
        let mut header = [0; 12];
        header[0] = Family::of(ip).number();
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        header[10] = NTF_USE;
        let request = Request::new(rtm::NEWNEIGH, ACK | CREATE, &header).ip(DST, ip);
        self.socket.request(request, || format!("resolve neighbour {ip} on device {ifindex}"))
    }

    /// Installs a route with `proto` [`PROTOCOL_MILLRACE`]. Replaces Millrace's own route of the same prefix
    /// and metric. Idempotent.
    ///
    /// A foreign route of the same prefix and metric stays untouched.
    ///
    /// # Errors
    /// The kernel refuses the route. The error names the route, and is `EEXIST` if a foreign route has the
    /// prefix and metric.
    pub fn install_route(&mut self, route: &OwnRoute) -> Result<(), HostError> {
        let key = (route.prefix, kernel_metric(route.prefix, route.metric));
        let what = || format!("install route {} metric {}", route.prefix, key.1);
        let added = self.socket.request(install_request(route, EXCLUSIVE), what);
        if errno(&added) == Some(libc::EEXIST) && self.known()?.contains(&key) {
            self.socket.request(install_request(route, REPLACE), what)?;
        } else {
            added?;
        }
        if let Some(known) = &mut self.known {
            known.insert(key);
        }
        Ok(())
    }

    /// Removes Millrace's own route of a prefix and metric. A missing route is no error.
    pub fn remove_route(&mut self, prefix: IpNet, metric: u32) -> Result<(), HostError> {
        let header = route_header(prefix, 0, SCOPE_NOWHERE);
        let request = with_destination(Request::new(rtm::DELROUTE, ACK, &header), prefix);
        let request = request.number(libc::RTA_PRIORITY, kernel_metric(prefix, metric));
        let answer = self.socket.request(request, || format!("remove route {prefix} metric {metric}"));
        if errno(&answer) != Some(libc::ESRCH) {
            answer?;
        }
        self.forget_route(prefix, metric);
        Ok(())
    }

    /// Notes that Millrace's own route of a prefix and metric is no longer in the kernel. From now on, a
    /// route with this prefix and metric counts as foreign.
    pub fn forget_route(&mut self, prefix: IpNet, metric: u32) {
        if let Some(known) = &mut self.known {
            known.remove(&(prefix, kernel_metric(prefix, metric)));
        }
    }

    /// Removes the routes of an earlier run of Millrace whose prefix and metric are not in `keep`. Returns
    /// the number of removed routes. Routes through a device of another router (`is_others`, by index) stay,
    /// and count as foreign.
    pub fn sweep_routes(
        &mut self,
        keep: &[(IpNet, u32)],
        mut is_others: impl FnMut(u32) -> bool,
    ) -> Result<usize, HostError> {
        let keep: HashSet<(IpNet, u32)> =
            keep.iter().map(|(prefix, metric)| (*prefix, kernel_metric(*prefix, *metric))).collect();
        let mut earlier = self.routes_of_millrace()?;
        earlier.retain(|route| !route.next_hops.iter().any(|hop| is_others(hop.ifindex)));
        let earlier = earlier.iter().map(|route| (route.prefix, route.metric));
        let (own, stale): (HashSet<_>, HashSet<_>) = earlier.partition(|route| keep.contains(route));
        for (prefix, metric) in &stale {
            self.remove_route(*prefix, *metric)?;
        }
        self.known = Some(own);
        Ok(stale.len())
    }

    /// Returns prefix and metric of the routes in the main table that Millrace has installed.
    pub fn own_routes(&mut self) -> Result<Vec<(IpNet, u32)>, HostError> {
        let routes = self.routes_of_millrace()?;
        Ok(routes.into_iter().map(|route| (route.prefix, route.metric)).collect())
    }

    fn routes_of_millrace(&mut self) -> Result<Vec<RouteEntry>, HostError> {
        let mut own = Vec::new();
        for family in [Family::Ipv4, Family::Ipv6] {
            let mut header = [0; 12];
            header[0] = family.number();
            header[5] = PROTOCOL_MILLRACE;
            let request = Request::new(rtm::GETROUTE, DUMP, &header);
            self.socket.dump(request, "routes", |kind, payload| {
                if let Some(KernelMessage::Route(route, _)) = decode(kind, 0, payload)
                    && (route.table, route.protocol) == (u32::from(MAIN), PROTOCOL_MILLRACE)
                {
                    own.push(route);
                }
            })?;
        }
        Ok(own)
    }

    /// Returns prefix and metric of Millrace's own routes. The first call reads them from the kernel; later
    /// calls use the stored set.
    fn known(&mut self) -> Result<&HashSet<(IpNet, u32)>, HostError> {
        let known = match self.known.take() {
            Some(known) => known,
            None => self.own_routes()?.into_iter().collect(),
        };
        Ok(self.known.insert(known))
    }
}

fn errno(answer: &Result<(), HostError>) -> Option<i32> {
    match answer {
        Err(HostError::Refused { source, .. }) => source.raw_os_error(),
        _ => None,
    }
}

fn kernel_metric(prefix: IpNet, metric: u32) -> u32 {
    if metric == 0 && prefix.addr().is_ipv6() { IPV6_DEFAULT_METRIC } else { metric }
}

/// `struct rtmsg`: family, destination length, source length, TOS, table, protocol, scope, type, flags.
fn route_header(prefix: IpNet, kind: u8, scope: u8) -> [u8; 12] {
    let family = Family::of(prefix.addr()).number();
    [family, prefix.prefix_len(), 0, 0, MAIN, PROTOCOL_MILLRACE, scope, kind, 0, 0, 0, 0]
}

fn with_destination(request: Request, prefix: IpNet) -> Request {
    if prefix.prefix_len() == 0 { request } else { request.ip(libc::RTA_DST, prefix.network()) }
}

fn install_request(route: &OwnRoute, flags: u16) -> Request {
    let kind = match route.kind {
        RouteKind::Blackhole => libc::RTN_BLACKHOLE,
        RouteKind::Unreachable => libc::RTN_UNREACHABLE,
        RouteKind::Prohibit => libc::RTN_PROHIBIT,
        _ => libc::RTN_UNICAST,
    };
    let on_link = kind == libc::RTN_UNICAST && route.next_hops.iter().all(|hop| hop.gateway.is_none());
    let scope = if on_link && route.prefix.addr().is_ipv4() { SCOPE_LINK } else { SCOPE_UNIVERSE };
    let mut header = route_header(route.prefix, kind, scope);
    let hops = if kind == libc::RTN_UNICAST { route.next_hops.as_slice() } else { &[] };
    if let [hop] = hops {
        let flags = if hop.onlink { ONLINK } else { 0 };
        header[8..12].copy_from_slice(&flags.to_ne_bytes());
    }
    let request = Request::new(rtm::NEWROUTE, ACK | CREATE | flags, &header);
    let request = with_destination(request, route.prefix)
        .number(libc::RTA_PRIORITY, kernel_metric(route.prefix, route.metric));
    match hops {
        [] => request,
        [hop] => with_gateway(request.number(libc::RTA_OIF, hop.ifindex), route.prefix, hop),
        hops => request.attribute(libc::RTA_MULTIPATH, &multipath(route.prefix, hops)),
    }
}

fn with_gateway(request: Request, prefix: IpNet, hop: &HostNextHop) -> Request {
    match hop.gateway {
        None => request,
        Some(gateway) if gateway.is_ipv6() && prefix.addr().is_ipv4() => {
            request.attribute(RTA_VIA, &via(gateway))
        }
        Some(gateway) => request.ip(libc::RTA_GATEWAY, gateway),
    }
}

fn via(gateway: IpAddr) -> Vec<u8> {
    let mut value = u16::from(Family::of(gateway).number()).to_ne_bytes().to_vec();
    match gateway {
        IpAddr::V4(ip) => value.extend(ip.octets()),
        IpAddr::V6(ip) => value.extend(ip.octets()),
    }
    value
}

fn multipath(prefix: IpNet, hops: &[HostNextHop]) -> Vec<u8> {
    const HEADER: usize = 16;
    let mut bytes = Vec::new();
    for hop in hops {
        // Build the attributes of a next hop as a request without a fixed header, and cut off the netlink
        // header.
        let attributes = with_gateway(Request::new(0, 0, &[]), prefix, hop).finish(0).split_off(HEADER);
        bytes.extend(((attributes.len() + 8) as u16).to_ne_bytes());
        bytes.push(if hop.onlink { ONLINK as u8 } else { 0 });
        bytes.push((hop.weight.clamp(1, 256) - 1) as u8);
        bytes.extend(hop.ifindex.to_ne_bytes());
        bytes.extend(attributes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_namespace::{in_namespace, ip, veth_pair};

    fn lan() -> u32 {
        nix::net::if_::if_nametoindex("lan").unwrap()
    }

    fn unicast(prefix: &str, gateways: &[&str]) -> OwnRoute {
        let hop = |gateway: &&str| HostNextHop {
            ifindex: lan(),
            gateway: Some(gateway.parse().unwrap()),
            weight: 2,
            onlink: false,
            dead: false,
            encap: false,
        };
        OwnRoute {
            prefix: prefix.parse().unwrap(),
            kind: RouteKind::Unicast,
            metric: 20,
            next_hops: gateways.iter().map(hop).collect(),
        }
    }

    #[test]
    fn own_routes_are_installed_replaced_and_removed_idempotently() {
        in_namespace(|| async {
            veth_pair();
            let mut actions = Actions::open().unwrap();
            for (prefix, first, then) in [
                ("10.1.0.0/16", ["10.0.0.2", "10.0.0.3"], "10.0.0.4"),
                ("fd01::/64", ["fd00::2", "fd00::3"], "fd00::4"),
                ("0.0.0.0/0", ["10.0.0.2", "10.0.0.3"], "fe80::4"),
            ] {
                let show = || {
                    let family = if prefix.contains("::/6") { "-6 " } else { "" };
                    ip(&format!("{family}route show {prefix} proto {PROTOCOL_MILLRACE}"))
                };
                actions.install_route(&unicast(prefix, &first)).unwrap();
                actions.install_route(&unicast(prefix, &first)).unwrap();
                let shown = show();
                assert!(first.iter().all(|gateway| shown.contains(gateway)), "{shown}");
                actions.install_route(&unicast(prefix, &[then])).unwrap();
                let shown = show();
                assert!(shown.contains(then) && !shown.contains(first[0]), "{shown}");
                actions.remove_route(prefix.parse().unwrap(), 20).unwrap();
                actions.remove_route(prefix.parse().unwrap(), 20).unwrap();
                assert_eq!(show(), "");
            }
        });
    }

    #[test]
    fn the_route_of_another_is_neither_replaced_nor_removed() {
        in_namespace(|| async {
            veth_pair();
            ip("route add 10.1.0.0/16 via 10.0.0.9 metric 20 proto static");
            let mut actions = Actions::open().unwrap();
            let error = actions.install_route(&unicast("10.1.0.0/16", &["10.0.0.2"])).unwrap_err();
            assert!(error.to_string().contains("10.1.0.0/16 metric 20"), "{error}");
            actions.remove_route("10.1.0.0/16".parse().unwrap(), 20).unwrap();
            assert!(ip("route show 10.1.0.0/16").contains("10.0.0.9"));
        });
    }

    #[test]
    fn sweep_removes_leftovers_of_an_earlier_run_and_keeps_other_routes() {
        in_namespace(|| async {
            veth_pair();
            ip("route add 10.5.0.0/16 via 10.0.0.9 proto static");
            let mut earlier = Actions::open().unwrap();
            let mut discard = unicast("10.3.0.0/16", &[]);
            discard.kind = RouteKind::Unreachable;
            for route in [unicast("10.1.0.0/16", &["10.0.0.2"]), discard, unicast("fd01::/64", &["fd00::2"])]
            {
                earlier.install_route(&route).unwrap();
            }
            let mut actions = Actions::open().unwrap();
            let keep = [("10.1.0.0/16".parse().unwrap(), 20)];
            assert_eq!(actions.sweep_routes(&keep, |_| false).unwrap(), 2);
            assert_eq!(actions.own_routes().unwrap(), [("10.1.0.0/16".parse().unwrap(), 20)]);
            assert!(ip("route show 10.5.0.0/16").contains("static"));
        });
    }

    #[test]
    fn sweep_keeps_the_routes_of_another_router() {
        in_namespace(|| async {
            veth_pair();
            ip("addr add 10.9.0.1/24 dev far");
            let far = nix::net::if_::if_nametoindex("far").unwrap();
            let mut theirs = unicast("10.2.0.0/16", &["10.9.0.2"]);
            theirs.next_hops[0].ifindex = far;
            let mut others = Actions::open().unwrap();
            others.install_route(&theirs).unwrap();
            others.install_route(&unicast("10.1.0.0/16", &["10.0.0.2"])).unwrap();
            let mut actions = Actions::open().unwrap();
            assert_eq!(actions.sweep_routes(&[], |index| index == far).unwrap(), 1);
            actions.install_route(&unicast("10.2.0.0/16", &["10.0.0.2"])).unwrap_err();
            assert_eq!(actions.own_routes().unwrap(), [("10.2.0.0/16".parse().unwrap(), 20)]);
            assert!(ip("route show 10.2.0.0/16").contains("10.9.0.2"));
        });
    }

    #[test]
    fn kernel_refusal_is_reported_with_the_route() {
        in_namespace(|| async {
            veth_pair();
            let mut actions = Actions::open().unwrap();
            let error = actions.install_route(&unicast("10.1.0.0/16", &["192.0.2.1"])).unwrap_err();
            assert!(error.to_string().contains("the gateway is not on a connected prefix"), "{error}");
        });
    }
}
