//! Route of a packet, as traces and lookups report it.

use millrace_packet::FlowKey;
use millrace_wire::MacAddr;

use super::event::{RouteEnd, RouteTaken};
use crate::forward::filter_route::FilterRoute;
use crate::forward::routing::{RouteOf, Routing};
use crate::route_number::is_filter;
use crate::subject::Subject;

impl RouteTaken {
    /// Returns the route in a packet's annotations, with the neighbour's MAC address, if known. `noted`
    /// states whether the packet took the fast path.
    pub(crate) fn of(
        routing: &Routing<'_>,
        packet: &impl Subject,
        key: &FlowKey,
        (mac, noted): (Option<MacAddr>, bool),
    ) -> Self {
        if let Some((hops, hop)) = routing.next_hop(packet.next_hop, packet.hash) {
            let neighbour = hop.neighbour(key.destination());
            let by_filter = is_filter(packet.next_hop);
            return Self::Sent { by_filter, hops: hops.len() as u8, port: hop.port, neighbour, mac, noted };
        }
        match routing.route(packet.next_hop) {
            RouteOf::None => Self::None,
            RouteOf::Fib(route) => Self::Ends(RouteEnd::Fib(route.kind())),
            RouteOf::Filter(FilterRoute::Drop) => Self::Ends(RouteEnd::FilterDrop),
            RouteOf::Filter(FilterRoute::Reject) => Self::Ends(RouteEnd::FilterReject),
            RouteOf::Filter(_) => Self::Ends(RouteEnd::FilterHost),
        }
    }
}
