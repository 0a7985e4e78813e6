//! A route as the kernel would use it.

use std::net::IpAddr;

use ipnet::IpNet;

/// What a route says to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteKind {
    /// Send to a next hop.
    Unicast,
    /// Deliver to this host.
    Local,
    /// Deliver to this host, and it was a link broadcast.
    Broadcast,
    /// A multicast destination.
    Multicast,
    /// IPv6 anycast: deliver to this host.
    Anycast,
    /// Drop silently.
    Blackhole,
    /// Drop, and answer host unreachable.
    Unreachable,
    /// Drop, and answer communication administratively prohibited.
    Prohibit,
    /// Behave as if there were no route; less specific routes are not consulted.
    Throw,
    /// Something only the kernel can do: NAT routes, or entries that hold for some service types or sources only.
    Other,
}

/// One way to send the packets of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostNextHop {
    /// The device to leave by.
    pub ifindex: u32,
    /// The router to send to; `None` when the destination itself is on the link. May be IPv6 for an IPv4 route.
    pub gateway: Option<IpAddr>,
    /// Share of the flows relative to the other next hops, 1 to 65536.
    pub weight: u32,
    /// The gateway is taken to be on the link though no connected prefix covers it.
    pub onlink: bool,
    /// The device is down; never set in an effective route.
    pub dead: bool,
    /// The device has no carrier; never set in an effective route.
    pub linkdown: bool,
    /// The route wants an encapsulation (MPLS, SRv6, tunnel): only the kernel can do it.
    pub encap: bool,
}

/// The route that holds for a prefix.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostRoute {
    /// Destinations.
    pub prefix: IpNet,
    /// What to do with them.
    pub kind: RouteKind,
    /// The kernel's table: 255 local, 254 main, 253 default.
    pub table: u32,
    /// Who installed it, the kernel's `RTPROT_*` (2 kernel, 3 boot, 4 static, 186 BGP…).
    pub protocol: u8,
    /// Priority; the lowest wins among routes to the same prefix.
    pub metric: u32,
    /// The kernel's scope: 0 universe, 253 link, 254 host, 255 nowhere.
    pub scope: u8,
    /// Usable next hops; empty for kinds that send nothing.
    pub next_hops: Vec<HostNextHop>,
    /// Path MTU that the route imposes, in bytes.
    pub mtu_metric: Option<u32>,
}
