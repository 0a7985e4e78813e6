//! What the kernel says about its state, decoded.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::forwarding::SwitchesUpdate;
use crate::{Family, HostAddress, HostLink, HostNeighbour, HostNextHop, RouteKind};

/// One statement of the kernel about its state: a notification, or an entry of a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelMessage {
    /// A device is new or changed.
    Link(HostLink),
    /// A device is gone.
    LinkGone(u32),
    /// An address is new or changed.
    Address(HostAddress),
    /// An address is gone.
    AddressGone(HostAddress),
    /// A route is new or changed.
    Route(RouteEntry, Placement),
    /// A route, or some next hops of an IPv6 route, are gone.
    RouteGone(RouteEntry),
    /// A next-hop object is new or changed.
    NextHop(NextHopObject),
    /// A next-hop object is gone.
    NextHopGone(u32),
    /// A neighbour entry is new or changed.
    Neighbour(HostNeighbour),
    /// A neighbour entry is gone.
    NeighbourGone(HostNeighbour),
    /// A queueing discipline of a device is new, changed or gone.
    Queueing(u32),
    /// Some forwarding switches have these values.
    Switches {
        /// The device; `None` for the namespace.
        ifindex: Option<u32>,
        /// Which protocol.
        family: Family,
        /// The switches that were said.
        update: SwitchesUpdate,
    },
    /// A device lost the protocol, and the switches with it.
    SwitchesGone {
        /// The device.
        ifindex: u32,
        /// Which protocol.
        family: Family,
    },
}

/// Where a new route goes among those of the same prefix and metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Before them: it is used instead of them.
    Prepend,
    /// Behind them; for IPv6 its next hops join theirs.
    Append,
    /// In place of the first of them.
    Replace,
    /// As a list of all routes names it, in the kernel's order.
    Listed,
}

/// A route as it stands in one of the kernel's tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteEntry {
    /// Destinations, host bits zero.
    pub prefix: IpNet,
    /// What to do with them.
    pub kind: RouteKind,
    /// 255 local, 254 main, 253 default.
    pub table: u32,
    /// Who installed it.
    pub protocol: u8,
    /// Scope.
    pub scope: u8,
    /// IPv4: type of service the route is for, 0 for any.
    pub service_type: u8,
    /// IPv6: the route is for some sources only.
    pub from_source: bool,
    /// Priority; the lowest wins.
    pub metric: u32,
    /// Source address for the host's own packets.
    pub preferred_source: Option<IpAddr>,
    /// The next-hop object used, if any.
    pub next_hop_id: Option<u32>,
    /// Next hops; those of the object at the time, when one is used.
    pub next_hops: Vec<HostNextHop>,
    /// Path MTU, in bytes.
    pub mtu: Option<u32>,
}

/// A next-hop object (`ip nexthop`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHopObject {
    /// Its id.
    pub id: u32,
    /// A group: ids of the members with their weights.
    pub group: Option<Vec<(u32, u32)>>,
    /// It discards.
    pub blackhole: bool,
    /// The next hop, when it is neither group nor blackhole.
    pub hop: Option<HostNextHop>,
}
