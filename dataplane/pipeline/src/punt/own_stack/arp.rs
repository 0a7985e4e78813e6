//! ARP for ports without a kernel stack (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

use millrace_forward::{Heard, NeighbourKey};
use millrace_packet::{DropReason, Packet};
use millrace_units::PortId;
use millrace_wire::arp::{self, Operation, Repr};
use millrace_wire::{EtherType, MacAddr};

use super::{Context, Outcome, Outgoing, OwnStack, has, is_of_prefix};
use crate::ports::PortEntry;

pub(super) fn handle(
    stack: &mut OwnStack,
    packet: &Packet,
    entry: &PortEntry,
    context: &mut Context<'_>,
) -> Outcome {
    let malformed = Outcome::Dropped(DropReason::NeighbourMessage);
    let Ok(view) = arp::Packet::new_checked(packet.network()) else { return malformed };
    let Ok(message) = Repr::parse(&view) else { return malformed };
    if !message.sender_mac.is_unicast()
        || message.sender_ip.is_multicast()
        || message.sender_ip.is_broadcast()
    {
        return malformed;
    }
    let for_us = has(entry, message.target_ip.into());
    let how = match message.operation {
        Operation::REQUEST if for_us => Heard::Solicitation,
        Operation::REQUEST | Operation::REPLY => Heard::Advertisement {
            solicited: for_us && message.operation == Operation::REPLY,
            overrides: true,
        },
        _ => return malformed,
    };
    let key = NeighbourKey { port: packet.port, address: message.sender_ip.into() };
    // A probe (RFC 5227, 1.1) has the unspecified address as sender, so it resolves no neighbour.
    if !message.sender_ip.is_unspecified() && is_of_prefix(entry, key.address) {
        stack.resolver.heard(key, message.sender_mac, how, context.now, &mut stack.actions);
    }
    if for_us && message.operation == Operation::REQUEST {
        let reply = Repr {
            operation: Operation::REPLY,
            sender_mac: entry.settings.mac,
            sender_ip: message.target_ip,
            target_mac: message.sender_mac,
            target_ip: message.sender_ip,
        };
        send(&reply, message.sender_mac, packet.port, context);
    }
    Outcome::Delivered
}

pub(super) fn request(
    target: Ipv4Addr,
    to: Option<MacAddr>,
    port: PortId,
    entry: &PortEntry,
    context: &mut Context<'_>,
) {
    let Some(std::net::IpAddr::V4(own)) = entry.address_towards(target.into()) else { return };
    ask(own, target, to.unwrap_or(MacAddr::BROADCAST), port, entry, context);
}

/// Sends an ARP announcement (RFC 5227, 3): a request for the port's own address.
pub(super) fn announce(address: Ipv4Addr, port: PortId, entry: &PortEntry, context: &mut Context<'_>) {
    ask(address, address, MacAddr::BROADCAST, port, entry, context);
}

fn ask(
    own: Ipv4Addr,
    target: Ipv4Addr,
    to: MacAddr,
    port: PortId,
    entry: &PortEntry,
    context: &mut Context<'_>,
) {
    let message = Repr {
        operation: Operation::REQUEST,
        sender_mac: entry.settings.mac,
        sender_ip: own,
        target_mac: MacAddr::ZERO,
        target_ip: target,
    };
    send(&message, to, port, context);
}

fn send(message: &Repr, destination: MacAddr, port: PortId, context: &mut Context<'_>) {
    let mut bytes = [0; arp::PACKET_LEN];
    message.emit(&mut arp::Packet::new_unchecked(&mut bytes[..]));
    if let Some(packet) = context.pool.packet_from(&bytes) {
        context.frames.push(Outgoing { port, destination, ether_type: EtherType::ARP, packet });
    }
}
