//! Effective route: the route by which the kernel would forward packets to a prefix.

use std::net::IpAddr;

use ipnet::IpNet;

/// Kind of a route: the treatment of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteKind {
    /// Sends to a next hop.
    Unicast,
    /// Delivers to this host.
    Local,
    /// Delivers to this host, as a link broadcast.
    Broadcast,
    /// Multicast destination.
    Multicast,
    /// IPv6 anycast: delivers to this host.
    Anycast,
    /// Drops silently.
    Blackhole,
    /// Drops and answers with ICMP host unreachable.
    Unreachable,
    /// Drops and answers with ICMP communication administratively prohibited.
    Prohibit,
    /// Acts as if there were no route; less specific routes are not consulted.
    Throw,
    /// Route that only the kernel can apply: a NAT route, or a route for certain service types or sources
    /// only.
    Other,
}

/// Next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostNextHop {
    /// Index of the outgoing device.
    pub ifindex: u32,
    /// Address of the next router; `None` if the destination itself is on the link. May be IPv6 for an IPv4
    /// route.
    pub gateway: Option<IpAddr>,
    /// Share of the flows relative to the other next hops, 1 to 65536.
    pub weight: u32,
    /// Whether the gateway counts as on-link although no connected prefix covers it.
    pub onlink: bool,
    /// Whether the device is down; never set in an effective route.
    pub dead: bool,
    /// Whether the route needs an encapsulation (MPLS, SRv6, tunnel), which only the kernel can do.
    pub encap: bool,
}

/// Effective route of a prefix: the route by which the kernel would forward.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostRoute {
    /// Destination prefix.
    pub prefix: IpNet,
    /// Kind of the route.
    pub kind: RouteKind,
    /// The kernel's table: 255 local, 254 main, 253 default.
    pub table: u32,
    /// Kernel's `RTPROT_*` number of the installer (2 kernel, 3 boot, 4 static, 186 BGP…).
    pub protocol: u8,
    /// Priority; the lowest wins among routes to the same prefix.
    pub metric: u32,
    /// Usable next hops; empty for kinds that send no packets.
    pub next_hops: Vec<HostNextHop>,
    /// Path MTU that the route imposes, in bytes; `None` for the device's MTU.
    pub mtu_metric: Option<u32>,
}
