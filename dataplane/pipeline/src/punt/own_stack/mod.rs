//! Own stack of the router, for ports without a kernel stack: ARP, neighbour discovery, echo.
//!
//! Packets for the router received at such a port end here. Answers leave as router-made packets.

mod arp;
mod echo;
mod ndp;

use std::net::IpAddr;

use millrace_forward::{Action, NeighbourKey, Resolver, ResolverSettings};
use millrace_packet::{DropReason, Packet, Pool};
use millrace_units::{Instant, PortId};
use millrace_wire::{EtherType, MacAddr, Protocol, ethernet, ipv6};

use crate::ports::{PortEntry, PortTable};

/// Result of a packet delivered to the own stack.
pub(crate) enum Outcome {
    /// Packet consumed by the stack.
    Delivered,
    /// Packet dropped, with the reason.
    Dropped(DropReason),
    /// Packet dropped and answered with an ICMP error.
    Refused(millrace_forward::IcmpError),
}

/// Protocol by which the stack handles a packet.
pub(crate) enum Service {
    /// ARP.
    Arp,
    /// Neighbour discovery, with the offset of the message from the start of the network header.
    Discovery(usize),
    /// ICMPv4 echo, with the offset of the request from the start of the network header.
    Echo4(usize),
    /// ICMPv6 echo, with the offset of the request from the start of the network header.
    Echo6(usize),
}

/// Frame that the stack sends, stored without link header and VLAN tags.
pub(crate) struct Outgoing {
    /// Egress port.
    pub port: PortId,
    /// Destination MAC address.
    pub destination: MacAddr,
    /// EtherType of the packet.
    pub ether_type: EtherType,
    /// Packet to send; it starts at the network header.
    pub packet: Packet,
}

/// State of the own stack.
#[derive(Debug)]
pub(crate) struct OwnStack {
    pub resolver: Resolver,
    pub actions: Vec<Action>,
}

/// Tables, memory and outputs of the stack while it handles a packet.
pub(crate) struct Context<'a> {
    pub pool: &'a Pool,
    pub ports: &'a PortTable,
    pub now: Instant,
    /// Frames that go straight to the queue of their port.
    pub frames: &'a mut Vec<Outgoing>,
    /// Packets that still have to pass the stages, as router-made packets.
    pub packets: &'a mut Vec<Packet>,
}

impl OwnStack {
    pub fn new(seed: u64) -> Self {
        Self { resolver: Resolver::new(ResolverSettings::default(), seed), actions: Vec::new() }
    }

    /// Handles a packet for the router, received by a port.
    pub fn handle(&mut self, packet: &Packet, context: &mut Context<'_>) -> Outcome {
        let Some(entry) = context.ports.get(packet.port) else {
            return Outcome::Dropped(DropReason::PortDown);
        };
        match service_for(ether_type(packet), packet.network(), entry) {
            Ok(Service::Arp) => arp::handle(self, packet, entry, context),
            Ok(Service::Discovery(offset)) => ndp::handle(self, packet, offset, entry, context),
            Ok(Service::Echo4(offset)) => echo::answer4(packet, offset, context),
            Ok(Service::Echo6(offset)) => echo::answer6(packet, offset, context),
            Err(outcome) => outcome,
        }
    }

    /// Sends a request for the MAC address of a neighbour.
    pub fn request(&self, key: NeighbourKey, to: Option<MacAddr>, context: &mut Context<'_>) {
        let Some(entry) = context.ports.get(key.port) else { return };
        match key.address {
            IpAddr::V4(target) => arp::request(target, to, key.port, entry, context),
            IpAddr::V6(target) => ndp::solicit(target, to, key.port, entry, context),
        }
    }

    /// Announces an address of the router on the link of a port.
    pub fn announce(&self, key: NeighbourKey, context: &mut Context<'_>) {
        let Some(entry) = context.ports.get(key.port) else { return };
        match key.address {
            IpAddr::V4(address) => arp::announce(address, key.port, entry, context),
            IpAddr::V6(address) => ndp::announce(address, key.port, entry, context),
        }
    }
}

/// Returns the service for a packet that a port has received. `network`: first bytes of the packet from the
/// network header on.
///
/// # Errors
/// The outcome of a packet for which the stack has no service.
pub(crate) fn service_for(
    ether_type: EtherType,
    network: &[u8],
    entry: &PortEntry,
) -> Result<Service, Outcome> {
    match ether_type {
        EtherType::ARP => Ok(Service::Arp),
        EtherType::IPV4 => echo::request4(network).map(Service::Echo4),
        _ => match ndp::message(network) {
            Some(offset) => Ok(Service::Discovery(offset)),
            None if is_of_another(network, entry) => Err(Outcome::Dropped(DropReason::MartianDestination)),
            None => echo::request6(network).map(Service::Echo6),
        },
    }
}

/// Returns whether the port has the address.
fn has(entry: &PortEntry, address: IpAddr) -> bool {
    entry.settings.addresses.iter().any(|net| net.addr() == address)
}

/// Returns whether the address is in one of the port's prefixes.
fn is_of_prefix(entry: &PortEntry, address: IpAddr) -> bool {
    entry.settings.addresses.iter().any(|net| net.contains(&address))
}

/// Returns whether the packet is for a link-local address that the port doesn't have. Routes can't decide
/// that, because they don't distinguish links.
fn is_of_another(network: &[u8], entry: &PortEntry) -> bool {
    let destination = ipv6::Packet::new_checked(network).map(|header| header.dst());
    destination.is_ok_and(|address| address.is_unicast_link_local() && !has(entry, address.into()))
}

/// Returns the EtherType of a packet whose network offset is set.
pub(crate) fn ether_type(packet: &Packet) -> EtherType {
    let network = packet.network_offset();
    match packet.data().get(network.saturating_sub(2)..network) {
        Some(&[high, low]) if network >= ethernet::HEADER_LEN => EtherType(u16::from_be_bytes([high, low])),
        _ => EtherType(0),
    }
}

/// Returns the source MAC address of a frame.
fn sender(packet: &Packet) -> MacAddr {
    packet.data().get(6..12).and_then(|bytes| bytes.try_into().ok()).map_or(MacAddr::ZERO, MacAddr)
}

/// Returns whether the protocol is ICMP for IPv4 or IPv6. Of both, the own stack answers only echo requests.
fn is_icmp(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::ICMP | Protocol::ICMPV6)
}
