//! Route stage: checks of addresses that must not be forwarded, and the longest prefix match.

use std::net::{IpAddr, Ipv6Addr};

use millrace_forward::{MartianPolicy, check_destination4, check_destination6, check_source4, check_source6};
use millrace_packet::{DropReason, FlowKey, Packet};

use crate::forward::fib::Fib;
use crate::ports::PortTable;
use crate::route_number::NO_ROUTE;
use crate::subject::Subject;
use crate::work::Fate;

/// Returns the fate that the address checks give a received packet: open if it may be forwarded. Packets to
/// link-local, multicast or broadcast addresses go to the port's stack: the kernel, or the router's own
/// stack.
#[inline]
pub(crate) fn admit(ports: &PortTable, packet: &impl Subject, key: &FlowKey, policy: MartianPolicy) -> Fate {
    let is_link_group = packet.is_link_group();
    let refused = admit_addresses(ports, key, policy);
    match refused {
        None if !is_link_group => Fate::Forward,
        None => Fate::Drop(DropReason::LinkBroadcast),
        Some(fate) => fate,
    }
}

/// Returns the fate of a packet whose addresses forbid forwarding; `None` if they permit it.
#[inline]
pub(crate) fn admit_addresses(ports: &PortTable, key: &FlowKey, policy: MartianPolicy) -> Option<Fate> {
    let (source_fault, destination_fault) = match (key.source(), key.destination()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            (check_source4(source, policy), check_destination4(destination, policy))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            (check_source6(source), check_destination6(destination))
        }
        _ => (None, None),
    };
    let kernel = || ports.get(key.port).is_some_and(|entry| entry.is_kernel());
    match destination_fault {
        Some(reason) => Some(local_destination(key, kernel(), reason)),
        None => source_fault.map(Fate::Drop),
    }
}

/// Returns the fate of a packet to a multicast, broadcast or link-local address, which must not be forwarded.
fn local_destination(key: &FlowKey, kernel: bool, reason: DropReason) -> Fate {
    let local = match key.destination() {
        IpAddr::V4(address) => {
            reason != DropReason::MartianDestination && (address.is_multicast() || address.is_broadcast())
        }
        IpAddr::V6(address) => is_link_scope(address),
    };
    match (local, kernel) {
        (true, true) => Fate::Host,
        (true, false) if key.destination().is_ipv6() => Fate::Own,
        _ => Fate::Drop(reason),
    }
}

fn is_link_scope(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local() || (address.is_multicast() && address.segments()[0] & 0xf == 2)
}

/// Sets the route of a packet by a lookup of its destination.
#[inline]
pub(crate) fn look_up(fib: &Fib, packet: &mut Packet, key: &FlowKey) {
    packet.next_hop = fib.lookup(key.destination()).unwrap_or(NO_ROUTE);
}
