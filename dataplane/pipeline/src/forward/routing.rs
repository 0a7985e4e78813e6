//! Decisions of the forward stage without side effects: the route, the next hop, and the egress of a packet.

use std::net::IpAddr;

use millrace_forward::{
    IcmpError, NextHop, NextHops, OptionsVerdict, Resolution, Route, SourceRoutePolicy, check_options4,
    leaves_scope6,
};
use millrace_packet::{DropReason, Exceptions, Family, FlowKey};
use millrace_units::NextHopIndex;
use millrace_wire::MacAddr;

use crate::forward::fib::Fib;
use crate::forward::filter_route::{FilterRoute, FilterRoutes};
use crate::parse::ROUTER;
use crate::ports::PortTable;
use crate::route_number::NO_ROUTE;
use crate::subject::Subject;
use crate::work::Fate;

/// Tables that determine a packet's route, next hop and egress port.
#[derive(Clone, Copy)]
pub(crate) struct Routing<'a> {
    pub fib: &'a Fib,
    pub filter_routes: &'a FilterRoutes,
    pub ports: &'a PortTable,
}

/// Route that belongs to a route number.
#[derive(Clone, Copy)]
pub(crate) enum RouteOf<'a> {
    /// No route.
    None,
    /// Route of the FIB.
    Fib(&'a Route),
    /// Route that a filter prescribes.
    Filter(FilterRoute<'a>),
}

impl<'a> Routing<'a> {
    /// Returns the route of a number.
    #[inline(always)]
    pub fn route(&self, index: NextHopIndex) -> RouteOf<'a> {
        if index == NO_ROUTE {
            return RouteOf::None;
        }
        match self.filter_routes.route(index) {
            None => RouteOf::Fib(self.fib.route(index)),
            Some(route) => RouteOf::Filter(route),
        }
    }

    /// Whether packets with this route number are for the router itself.
    pub fn is_local(&self, index: NextHopIndex) -> bool {
        match self.route(index) {
            RouteOf::Fib(Route::Local | Route::Kernel | Route::Broadcast) => true,
            RouteOf::Filter(FilterRoute::Host) => true,
            RouteOf::None | RouteOf::Fib(_) | RouteOf::Filter(_) => false,
        }
    }

    /// Returns all next hops of a route number, and the next hop for a flow hash; `None` if the route does
    /// not forward.
    #[inline]
    pub fn next_hop(&self, index: NextHopIndex, hash: u32) -> Option<(&'a NextHops, NextHop)> {
        match self.route(index) {
            RouteOf::Fib(Route::Forward(hops)) => Some((hops, alive(hops, hash, self.ports))),
            RouteOf::Filter(FilterRoute::Forward(hops)) => Some((hops, *hops.select(0))),
            RouteOf::None | RouteOf::Fib(_) | RouteOf::Filter(_) => None,
        }
    }

    /// Returns the next hop of a packet for the route number in its annotations, or the fate of a packet that
    /// is not forwarded.
    #[inline(always)]
    pub fn hop(&self, packet: &impl Subject, key: &FlowKey) -> Result<NextHop, Fate> {
        if packet.port != ROUTER
            && let Some(arrival) = self.ports.get(packet.port)
            && !arrival.forwards(key.family())
        {
            return Err(self.not_forwarded(packet));
        }
        // A link-local address is ambiguous without its link. So the creator of the packet has set the egress
        // port.
        if packet.port == ROUTER
            && let IpAddr::V6(destination) = key.destination()
            && destination.is_unicast_link_local()
        {
            return Ok(NextHop::new(packet.out_port, None));
        }
        let hop = match self.route(packet.next_hop) {
            RouteOf::None => return Err(Fate::Refuse(IcmpError::NetUnreachable, DropReason::NoRoute)),
            RouteOf::Fib(Route::Forward(hops)) => alive(hops, packet.hash, self.ports),
            RouteOf::Fib(other) => return Err(self.stays(packet, other)),
            RouteOf::Filter(FilterRoute::Forward(hops)) => *hops.select(0),
            RouteOf::Filter(FilterRoute::Drop) => return Err(Fate::Drop(DropReason::Filter)),
            RouteOf::Filter(FilterRoute::Reject) => {
                return Err(Fate::Refuse(IcmpError::AdminProhibited, DropReason::Filter));
            }
            RouteOf::Filter(FilterRoute::Host) => return Err(self.stays(packet, &Route::Local)),
        };
        if packet.port != ROUTER
            && packet.exceptions != Exceptions::NONE
            && let Some(fate) = exceptional(packet, key)
        {
            return Err(fate);
        }
        Ok(hop)
    }

    /// Decides the fate of a packet from a port where forwarding is off. The kernel gets packets to this
    /// host; all others are dropped.
    #[cold]
    fn not_forwarded(&self, packet: &impl Subject) -> Fate {
        match self.route(packet.next_hop) {
            RouteOf::Fib(route @ (Route::Local | Route::Broadcast)) => self.stays(packet, route),
            _ => Fate::Drop(DropReason::ForwardingOff),
        }
    }

    /// Returns the fate of a packet whose route does not forward.
    fn stays(&self, packet: &impl Subject, route: &Route) -> Fate {
        let kernel = self.ports.get(packet.port).is_some_and(|entry| entry.is_kernel());
        match route {
            Route::Local | Route::Kernel if kernel => Fate::Host,
            Route::Local if packet.port != ROUTER => Fate::Own,
            Route::Local => Fate::Drop(DropReason::LocalUnknown),
            Route::Kernel => Fate::Refuse(IcmpError::NetUnreachable, DropReason::NoRoute),
            Route::Broadcast if kernel => Fate::Host,
            Route::Broadcast => Fate::Drop(DropReason::Broadcast),
            Route::Blackhole => Fate::Drop(DropReason::Blackhole),
            Route::Unreachable => Fate::Refuse(IcmpError::RejectRoute, DropReason::Unreachable),
            Route::Prohibit => Fate::Refuse(IcmpError::AdminProhibited, DropReason::Prohibited),
            Route::Forward(_) => Fate::Drop(DropReason::NoRoute),
        }
    }

    /// Returns the fate of a packet that can't leave by a next hop; `None` if it can.
    #[inline(always)]
    pub fn refusal_at(&self, hop: &NextHop, packet: &impl Subject, key: &FlowKey) -> Option<Fate> {
        let Some(out) = self.ports.get(hop.port).filter(|entry| entry.settings.up) else {
            return Some(Fate::Refuse(IcmpError::HostUnreachable, DropReason::PortDown));
        };
        if packet.port != ROUTER
            && let (IpAddr::V6(source), IpAddr::V6(destination)) = (key.source(), key.destination())
            && leaves_scope6(source, destination)
        {
            return Some(Fate::Refuse(IcmpError::BeyondScope, DropReason::MartianSource));
        }
        let mtu = out.settings.mtu;
        if packet.network_len() > usize::from(mtu)
            && let Some(error) = too_big(packet, key, mtu)
        {
            return Some(Fate::Refuse(error, DropReason::TooBig));
        }
        None
    }
}

/// Returns the MAC address of a neighbour, or the fate of packets to a neighbour without one.
#[inline(always)]
pub(crate) fn link_address(resolution: Resolution, neighbour: IpAddr) -> Result<MacAddr, Fate> {
    match resolution {
        Resolution::Reachable(destination) => Ok(destination),
        Resolution::Failed => Err(Fate::Refuse(IcmpError::HostUnreachable, DropReason::NeighbourFailed)),
        Resolution::Incomplete | Resolution::Unknown => Err(Fate::Hold(neighbour)),
    }
}

/// Returns the next hop of a flow. If the port of that next hop is down, and another next hop of the route
/// has a port that is up, returns the other next hop.
#[inline]
pub(crate) fn alive(hops: &NextHops, hash: u32, ports: &PortTable) -> NextHop {
    let chosen = *hops.select(hash);
    let is_up = |hop: &NextHop| ports.get(hop.port).is_some_and(|entry| entry.settings.up);
    if hops.len() == 1 || is_up(&chosen) {
        return chosen;
    }
    hops.select_among(hash, is_up).copied().unwrap_or(chosen)
}

/// Returns the fate of a packet whose exceptions prevent forwarding; `None` if they don't.
#[cold]
fn exceptional(packet: &impl Subject, key: &FlowKey) -> Option<Fate> {
    if packet.exceptions.contains(Exceptions::TTL) {
        return Some(Fate::Refuse(IcmpError::TtlExpired, DropReason::TtlExpired));
    }
    if packet.exceptions.contains(Exceptions::OPTIONS) && key.family() == Family::V4 {
        return match check_options4(packet.network(), SourceRoutePolicy::Drop) {
            OptionsVerdict::Pass => None,
            OptionsVerdict::SourceRoute => Some(Fate::Drop(DropReason::Ip4SourceRoute)),
            OptionsVerdict::Malformed { pointer } => Some(Fate::Refuse(
                IcmpError::ParameterProblem { code: 0, pointer: pointer.into() },
                DropReason::Ip4Option,
            )),
        };
    }
    None
}

/// Returns the error for a packet that is longer than `mtu` and must not be fragmented.
fn too_big(packet: &impl Subject, key: &FlowKey, mtu: u16) -> Option<IcmpError> {
    const DONT_FRAGMENT: u8 = 0x40;
    match key.family() {
        Family::V4 if packet.network().get(6).is_some_and(|flags| flags & DONT_FRAGMENT == 0) => None,
        Family::V4 | Family::V6 => Some(IcmpError::TooBig { mtu: mtu.into() }),
    }
}
