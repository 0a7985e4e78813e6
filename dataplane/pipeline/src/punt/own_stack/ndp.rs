//! Neighbour discovery for ports without a kernel stack (RFC 4861, 7).

use std::net::{IpAddr, Ipv6Addr};

use millrace_forward::{Heard, NeighbourKey};
use millrace_packet::{DropReason, Packet};
use millrace_units::PortId;
use millrace_wire::icmpv6::Type;
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::ndp::{self, Flags, Repr};
use millrace_wire::{EtherType, MacAddr, Protocol, ipv6};

use super::{Context, Outcome, Outgoing, OwnStack, has, is_of_prefix, sender};
use crate::ports::PortEntry;

/// Returns the offset of a neighbour or router discovery message from the start of the IPv6 header, in bytes;
/// `None` for other packets.
pub(super) fn message(network: &[u8]) -> Option<usize> {
    let header = ipv6::Packet::new_checked(network).ok()?;
    let walk = ipv6_ext::walk(&header);
    let is_icmp = walk.end == End::UpperLayer && walk.protocol == Protocol::ICMPV6;
    // RFC 6980: discovery messages in fragmented packets are ignored.
    if !is_icmp || walk.fragment.is_some() {
        return None;
    }
    let kind = Type(*network.get(walk.offset)?);
    kind.is_ndp().then_some(walk.offset)
}

pub(super) fn handle(
    stack: &mut OwnStack,
    packet: &Packet,
    offset: usize,
    entry: &PortEntry,
    context: &mut Context<'_>,
) -> Outcome {
    let ignored = Outcome::Dropped(DropReason::NeighbourMessage);
    let Ok(header) = ipv6::Packet::new_checked(packet.network()) else { return ignored };
    let (source, destination) = (header.src(), header.dst());
    let end = header.total_len().min(packet.network().len());
    let Some(bytes) = packet.network().get(offset..end) else { return ignored };
    let Ok(view) = ndp::validate(header.hop_limit(), source, destination, bytes) else { return ignored };
    match Repr::parse(&view) {
        Ok(Repr::NeighbourSolicitation { target, source_link }) => {
            if !has(entry, target.into()) {
                return Outcome::Delivered;
            }
            if let Some(mac) = source_link
                && is_on_link(entry, source)
            {
                let key = NeighbourKey { port: packet.port, address: source.into() };
                stack.resolver.heard(key, mac, Heard::Solicitation, context.now, &mut stack.actions);
            }
            advertise(
                target,
                source,
                source_link.unwrap_or_else(|| sender(packet)),
                packet.port,
                entry,
                context,
            );
            Outcome::Delivered
        }
        Ok(Repr::NeighbourAdvertisement { flags, target, target_link }) => {
            let how = Heard::Advertisement {
                solicited: flags.contains(Flags::SOLICITED),
                overrides: flags.contains(Flags::OVERRIDE),
            };
            let key = NeighbourKey { port: packet.port, address: target.into() };
            let mac = target_link.unwrap_or_else(|| sender(packet));
            stack.resolver.heard(key, mac, how, context.now, &mut stack.actions);
            Outcome::Delivered
        }
        // A router ignores redirects addressed to itself (RFC 4861, 8.2).
        Ok(Repr::Redirect { .. }) | Err(_) => ignored,
    }
}

/// Returns whether a source is on the port's link: in one of its prefixes, or link-local. Other sources get
/// answers, but their MAC addresses are not recorded.
fn is_on_link(entry: &PortEntry, source: Ipv6Addr) -> bool {
    source.is_unicast_link_local() || is_of_prefix(entry, source.into())
}

/// Sends an advertisement for a solicitation: to its source, or to all nodes if its source is the unspecified
/// address (RFC 4861, 7.2.4).
fn advertise(
    target: Ipv6Addr,
    source: Ipv6Addr,
    station: MacAddr,
    port: PortId,
    entry: &PortEntry,
    context: &mut Context<'_>,
) {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let (to, station, solicited) = match source.is_unspecified() {
        true => (all_nodes, MacAddr::from_ipv6_multicast(all_nodes), 0),
        false => (source, station, Flags::SOLICITED.0),
    };
    let flags = Flags(Flags::ROUTER.0 | Flags::OVERRIDE.0 | solicited);
    let message = Repr::NeighbourAdvertisement { flags, target, target_link: Some(entry.settings.mac) };
    send(&message, target, to, station, port, context);
}

pub(super) fn solicit(
    target: Ipv6Addr,
    to: Option<MacAddr>,
    port: PortId,
    entry: &PortEntry,
    context: &mut Context<'_>,
) {
    let Some(IpAddr::V6(own)) = entry.address_towards(target.into()) else { return };
    let group = ndp::solicited_node(target);
    let message = Repr::NeighbourSolicitation { target, source_link: Some(entry.settings.mac) };
    match to {
        Some(station) => send(&message, own, target, station, port, context),
        None => send(&message, own, group, MacAddr::from_ipv6_multicast(group), port, context),
    }
}

/// Announces an address of the router to all nodes.
pub(super) fn announce(address: Ipv6Addr, port: PortId, entry: &PortEntry, context: &mut Context<'_>) {
    advertise(address, Ipv6Addr::UNSPECIFIED, MacAddr::ZERO, port, entry, context);
}

fn send(
    message: &Repr<'_>,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    station: MacAddr,
    port: PortId,
    context: &mut Context<'_>,
) {
    let mut bytes = [0; ipv6::HEADER_LEN + 64];
    let length = message.buffer_len();
    let header = ipv6::Repr {
        src: source,
        dst: destination,
        next_header: Protocol::ICMPV6,
        payload_len: length as u16,
        hop_limit: ndp::HOP_LIMIT,
        traffic_class: 0xc0,
        flow_label: 0,
    };
    header.emit(&mut ipv6::Packet::new_unchecked(&mut bytes[..]));
    let pseudo =
        millrace_wire::checksum::pseudo_header_v6(source, destination, Protocol::ICMPV6, length as u32);
    let end = ipv6::HEADER_LEN + length;
    let Some(body) = bytes.get_mut(ipv6::HEADER_LEN..end) else { return };
    message.emit(&mut ndp::Packet::new_unchecked(body), pseudo);
    if let Some(packet) = bytes.get(..end).and_then(|bytes| context.pool.packet_from(bytes)) {
        context.frames.push(Outgoing { port, destination: station, ether_type: EtherType::IPV6, packet });
    }
}
