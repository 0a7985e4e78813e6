//! Forward stage: decides each packet's fate by its route, TTL, MTU and the MAC address of its next hop.

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
pub(crate) mod routing;
mod stage;
pub(crate) mod tables;

use millrace_forward::{IcmpError, NeighbourTable, NextHop, decrement_hop_limit, decrement_ttl};
use millrace_packet::{DropReason, Family, FlowKey, Packet};
use millrace_units::NextHopIndex;
use millrace_wire::MacAddr;

use crate::forward::filter_route::FilterRoute;
use crate::forward::routing::{Routing, link_address};
use crate::parse::ROUTER;
use crate::route_number::is_copy;
use crate::work::Fate;

/// Tables that the forward stage reads.
pub(crate) struct Forwarder<'a> {
    pub routing: Routing<'a>,
    pub neighbours: &'a mut NeighbourTable,
}

/// Result of the forward stage for a packet.
pub(crate) struct Decision {
    pub fate: Fate,
    /// MAC address of the next hop, if the packet is forwarded.
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
        match self.routing.hop(packet, key) {
            Ok(hop) => self.send_by(packet, key, hop),
            Err(fate) => Decision::end(fate),
        }
    }

    /// Returns the fate of a frame from the kernel, which leaves unchanged by the port that the kernel chose.
    /// Filters may drop it, but not redirect it to another port.
    fn framed(&self, next_hop: NextHopIndex) -> Fate {
        match self.routing.filter_routes.route(next_hop) {
            Some(FilterRoute::Drop | FilterRoute::Reject) => Fate::Drop(DropReason::Filter),
            _ => Fate::Forward,
        }
    }

    #[inline]
    fn send_by(&mut self, packet: &mut Packet, key: &FlowKey, hop: NextHop) -> Decision {
        if let Some(fate) = self.routing.refusal_at(&hop, packet, key) {
            return Decision::end(fate);
        }
        packet.out_port = hop.port;
        let neighbour = hop.neighbour(key.destination());
        match link_address(self.neighbours.lookup(hop.port, neighbour), neighbour) {
            Ok(destination) => {
                if packet.port != ROUTER && !decrement(packet, key) {
                    // A plugin has lowered the TTL since the packet was parsed.
                    let fate = Fate::Refuse(IcmpError::TtlExpired, DropReason::TtlExpired);
                    return Decision::end(fate);
                }
                Decision { fate: Fate::Forward, destination }
            }
            Err(fate) => Decision::end(fate),
        }
    }
}

/// Decrements TTL or hop limit. Returns false if no hop is left.
#[inline]
fn decrement(packet: &mut Packet, key: &FlowKey) -> bool {
    match key.family() {
        Family::V4 => decrement_ttl(packet),
        Family::V6 => decrement_hop_limit(packet),
    }
}
