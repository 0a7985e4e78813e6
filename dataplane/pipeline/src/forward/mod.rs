//! Forward stage: route type, TTL, MTU and link address of the next hop.

pub(crate) mod addresses;
#[expect(clippy::indexing_slicing, reason = "adjacencies by the number of a route that was made room for")]
pub(crate) mod bare;
pub(crate) mod changes;
pub(crate) mod fib;
pub(crate) mod filter_route;
pub(crate) mod known;
pub(crate) mod own_addresses;
pub(crate) mod queue_backlog;
pub(crate) mod route;
mod stage;
pub(crate) mod tables;

use std::net::IpAddr;

use millrace_forward::{
    IcmpError, NeighbourTable, NextHop, NextHops, OptionsVerdict, Resolution, Route, SourceRoutePolicy,
    check_options4, decrement_hop_limit, decrement_ttl, leaves_scope6,
};
use millrace_packet::{DropReason, Exceptions, Family, FlowKey, Packet};
use millrace_units::NextHopIndex;
use millrace_wire::MacAddr;

use crate::forward::fib::Fib;
use crate::forward::filter_route::{FilterRoute, FilterRoutes};
use crate::parse::ROUTER;
use crate::ports::PortTable;
use crate::route_number::{NO_ROUTE, is_copy};
use crate::work::Fate;

/// Tables that the forward stage reads.
pub(crate) struct Forwarder<'a> {
    pub fib: &'a Fib,
    pub filter_routes: &'a FilterRoutes,
    pub neighbours: &'a mut NeighbourTable,
    pub ports: &'a PortTable,
}

/// Result of the forward stage for a packet.
pub(crate) struct Decision {
    pub fate: Fate,
    /// Link address of the next hop, if the packet is forwarded.
    pub destination: MacAddr,
}

impl Decision {
    fn end(fate: Fate) -> Self {
        Self { fate, destination: MacAddr::ZERO }
    }
}

impl Forwarder<'_> {
    /// Decides the fate of a packet by the route in its annotations. For a forwarded packet, sets the egress
    /// port and decrements the TTL.
    #[inline]
    pub fn decide(&mut self, packet: &mut Packet, key: &FlowKey) -> Decision {
        if packet.is_framed {
            if !is_copy(packet.next_hop) {
                return Decision::end(self.framed(packet.next_hop));
            }
            // A copy that a filter sends out of another port gets the link header of that port.
            packet.is_framed = false;
        }
        if packet.port != ROUTER
            && let Some(arrival) = self.ports.get(packet.port)
            && !arrival.forwards(key.family())
        {
            return Decision::end(self.not_forwarded(packet));
        }
        // A link-local address is ambiguous without its link, so the packet's maker has set the egress port.
        if packet.port == ROUTER
            && let IpAddr::V6(destination) = key.destination()
            && destination.is_unicast_link_local()
        {
            return self.send_by(packet, key, NextHop::new(packet.out_port, None));
        }
        if packet.next_hop == NO_ROUTE {
            return Decision::end(Fate::Refuse(IcmpError::NetUnreachable, DropReason::NoRoute));
        }
        let hop = match self.filter_routes.route(packet.next_hop) {
            None => match self.fib.route(packet.next_hop) {
                Route::Forward(hops) => alive(hops, packet.hash, self.ports),
                other => return Decision::end(self.stays(packet, other)),
            },
            Some(FilterRoute::Forward(hops)) => *hops.select(0),
            Some(FilterRoute::Drop) => return Decision::end(Fate::Drop(DropReason::Filter)),
            Some(FilterRoute::Reject) => {
                return Decision::end(Fate::Refuse(IcmpError::AdminProhibited, DropReason::Filter));
            }
            Some(FilterRoute::Host) => return Decision::end(self.stays(packet, &Route::Local)),
        };
        if packet.port != ROUTER
            && packet.exceptions != Exceptions::NONE
            && let Some(fate) = exceptional(packet, key)
        {
            return Decision::end(fate);
        }
        self.send_by(packet, key, hop)
    }

    /// Decides the fate of a packet received by a port where forwarding is off: packets for this host go to
    /// the kernel, all others are dropped.
    #[cold]
    fn not_forwarded(&self, packet: &Packet) -> Fate {
        let index = packet.next_hop;
        let is_route = index != NO_ROUTE && self.filter_routes.route(index).is_none();
        match is_route.then(|| self.fib.route(index)) {
            Some(route @ (Route::Local | Route::Broadcast)) => self.stays(packet, route),
            _ => Fate::Drop(DropReason::ForwardingOff),
        }
    }

    /// Returns the fate of a frame that leaves unchanged. Filters may drop it, but not send it out of another
    /// port.
    fn framed(&self, next_hop: NextHopIndex) -> Fate {
        match self.filter_routes.route(next_hop) {
            Some(FilterRoute::Drop | FilterRoute::Reject) => Fate::Drop(DropReason::Filter),
            _ => Fate::Forward,
        }
    }

    fn stays(&self, packet: &Packet, route: &Route) -> Fate {
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

    #[inline]
    fn send_by(&mut self, packet: &mut Packet, key: &FlowKey, hop: NextHop) -> Decision {
        let Some(out) = self.ports.get(hop.port).filter(|entry| entry.settings.up) else {
            return Decision::end(Fate::Refuse(IcmpError::HostUnreachable, DropReason::PortDown));
        };
        if packet.port != ROUTER
            && let (IpAddr::V6(source), IpAddr::V6(destination)) = (key.source(), key.destination())
            && leaves_scope6(source, destination)
        {
            return Decision::end(Fate::Refuse(IcmpError::BeyondScope, DropReason::MartianSource));
        }
        let mtu = out.settings.mtu;
        if packet.network_len() > usize::from(mtu)
            && let Some(error) = too_big(packet, key, mtu)
        {
            return Decision::end(Fate::Refuse(error, DropReason::TooBig));
        }
        packet.out_port = hop.port;
        let neighbour = hop.neighbour(key.destination());
        match self.neighbours.lookup(hop.port, neighbour) {
            Resolution::Reachable(destination) => {
                if packet.port != ROUTER {
                    decrement(packet, key);
                }
                Decision { fate: Fate::Forward, destination }
            }
            Resolution::Failed => {
                Decision::end(Fate::Refuse(IcmpError::HostUnreachable, DropReason::NeighbourFailed))
            }
            Resolution::Incomplete | Resolution::Unknown => Decision::end(Fate::Hold(neighbour)),
        }
    }
}

/// Returns the next hop of a flow. If the port of that next hop is down, returns another one whose port is
/// up, if the route has one.
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
fn exceptional(packet: &Packet, key: &FlowKey) -> Option<Fate> {
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
fn too_big(packet: &Packet, key: &FlowKey, mtu: u16) -> Option<IcmpError> {
    const DONT_FRAGMENT: u8 = 0x40;
    match key.family() {
        Family::V4 if packet.network().get(6).is_some_and(|flags| flags & DONT_FRAGMENT == 0) => None,
        Family::V4 | Family::V6 => Some(IcmpError::TooBig { mtu: mtu.into() }),
    }
}

#[inline]
fn decrement(packet: &mut Packet, key: &FlowKey) {
    // Packets whose TTL ends were refused before.
    let _ = match key.family() {
        Family::V4 => decrement_ttl(packet),
        Family::V6 => decrement_hop_limit(packet),
    };
}
