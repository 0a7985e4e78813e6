//! Decoded kernel messages about its state.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::forwarding::SwitchesUpdate;
use crate::{Family, HostAddress, HostLink, HostNeighbour, HostNextHop, RouteKind};

/// Kernel message about its state: a notification, or an entry of a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelMessage {
    /// New or changed device.
    Link(HostLink),
    /// Removed device.
    LinkGone(u32),
    /// New or changed address.
    Address(HostAddress),
    /// Removed address.
    AddressGone(HostAddress),
    /// New or changed route.
    Route(RouteEntry, Placement),
    /// Removed route, or removed next hops of an IPv6 route.
    RouteGone(RouteEntry),
    /// New or changed next-hop object.
    NextHop(NextHopObject),
    /// Removed next-hop object.
    NextHopGone(u32),
    /// New or changed neighbour entry.
    Neighbour(HostNeighbour),
    /// Removed neighbour entry.
    NeighbourGone(HostNeighbour),
    /// New, changed or removed queueing discipline of a device.
    Queueing(u32),
    /// Values of forwarding switches.
    Switches {
        /// Index of the device; `None` for the namespace.
        ifindex: Option<u32>,
        /// Address family.
        family: Family,
        /// Switches in the message.
        update: SwitchesUpdate,
    },
    /// End of IPv4 or IPv6 on a device, together with its switches.
    SwitchesGone {
        /// Index of the device.
        ifindex: u32,
        /// Address family.
        family: Family,
    },
}

/// Position of a new route among the routes of the same prefix, table and metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Before the other routes: the kernel uses the new route instead of them.
    Prepend,
    /// After the other routes. For IPv6, the new next hops join the next hops of these routes in a multipath
    /// route.
    Append,
    /// In place of the first of the other routes.
    Replace,
    /// In the order of a list, which is the kernel's order.
    Listed,
}

/// Route in one of the kernel's tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteEntry {
    /// Destination prefix, host bits zero.
    pub prefix: IpNet,
    /// Kind of the route.
    pub kind: RouteKind,
    /// Kernel table: 255 local, 254 main, 253 default.
    pub table: u32,
    /// `RTPROT_*` number of the installer.
    pub protocol: u8,
    /// Scope as the kernel numbers it (`RT_SCOPE_*`).
    pub scope: u8,
    /// Type of service that the route applies to (IPv4), 0 for any.
    pub service_type: u8,
    /// Whether the route applies to some sources only (IPv6).
    pub from_source: bool,
    /// Priority; the lowest wins.
    pub metric: u32,
    /// Source address of the host's own packets.
    pub preferred_source: Option<IpAddr>,
    /// Id of the next-hop object, if the route uses one.
    pub next_hop_id: Option<u32>,
    /// Next hops; with a next-hop object, its next hops at the time of the message.
    pub next_hops: Vec<HostNextHop>,
    /// Path MTU, in bytes.
    pub mtu: Option<u32>,
}

/// Next-hop object (`ip nexthop`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHopObject {
    /// Id of the object.
    pub id: u32,
    /// Ids and weights of the members, if the object is a group.
    pub group: Option<Vec<(u32, u32)>>,
    /// Whether the object discards packets.
    pub blackhole: bool,
    /// Next hop, if the object is neither group nor blackhole.
    pub hop: Option<HostNextHop>,
}
