//! ICMP errors and redirects: choice of the source address, rate limits, construction.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use millrace_forward::{
    ErrorLimiter, ErrorOptions, IcmpError, NeighbourKey, NeighbourState, NextHop, RedirectQuery, Route,
    build_error, build_redirect6, may_send_error, redirect_target,
};
use millrace_packet::{FlowKey, Packet, Pool};
use millrace_units::{Instant, PortId};

use crate::forward::tables::ForwardingTables;
use crate::options::Options;
use crate::parse::ROUTER;
use crate::ports::PortTable;
use crate::route_number::{NO_ROUTE, is_copy, is_filter};
use crate::subject::Subject;

/// Rate limiter of the router's own ICMP errors, and their IPv4 identification.
pub(crate) struct IcmpErrors {
    pub limiter: ErrorLimiter,
    /// IPv4 identification of the last error.
    identification: u16,
}

impl IcmpErrors {
    /// Returns the state with the default rate limit. `seed` determines the first identification.
    pub fn new(seed: u64) -> Self {
        Self { limiter: ErrorLimiter::default(), identification: seed as u16 }
    }

    fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }
}

/// Tables that decide whether the router, the kernel or nobody sends an ICMP error.
#[derive(Clone, Copy)]
pub(crate) struct ErrorTables<'a> {
    pub ports: &'a PortTable,
    pub forwarding: &'a ForwardingTables,
    pub options: &'a Options,
}

/// Sender of the ICMP error about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorSender {
    /// The router, with the given source address. The rate limit of ICMP errors may still suppress the error.
    Router(IpAddr),
    /// The kernel, which gets the packet.
    Kernel,
    /// Nobody: the ICMP rules forbid the error, or no route leads to the packet's source.
    Nobody,
}

impl ErrorTables<'_> {
    /// Returns the sender of an error about a packet.
    pub fn sender(&self, packet: &impl Subject, error: &IcmpError) -> ErrorSender {
        // The router sends no errors about copies.
        let is_unanswered = packet.port == ROUTER || is_copy(packet.next_hop);
        if is_unanswered || !may_send_error(packet.network(), error, packet.is_link_group()) {
            return ErrorSender::Nobody;
        }
        let Some(peer) = source_of(packet) else { return ErrorSender::Nobody };
        let kernel = self.ports.get(packet.port).is_some_and(|entry| entry.is_kernel());
        let link_local = matches!(peer, IpAddr::V6(peer) if peer.is_unicast_link_local());
        let source = match self.forwarding.fib.lookup(peer).map(|index| self.forwarding.fib.route(index)) {
            _ if link_local => self.source_towards(NextHop::new(packet.port, None), peer),
            Some(Route::Forward(hops)) => self.source_towards(*hops.select(packet.hash), peer),
            // The kernel's own route leads to the packet's source. So the kernel gets the packet, reaches the
            // same verdict, and sends the error. It knows no filters and plugins, and would forward what they reject.
            Some(Route::Kernel) if kernel && *error != IcmpError::AdminProhibited => {
                return ErrorSender::Kernel;
            }
            _ => return ErrorSender::Nobody,
        };
        let source = source.filter(|source| !source.is_unspecified());
        source.map_or(ErrorSender::Nobody, ErrorSender::Router)
    }

    /// Returns the router's address that an ICMP error to `peer` has as source: an address of the egress port
    /// of `hop`, of the same family as `peer`. If the port has none, returns the router id for IPv4. For
    /// IPv6, returns the address of any port, except link-local addresses. Only a link-local peer gets a link-local
    /// IPv6 address, since routers don't forward packets with one (RFC 4291, 2.5.6).
    fn source_towards(&self, hop: NextHop, peer: IpAddr) -> Option<IpAddr> {
        // An IPv4 route may have an IPv6 gateway (RFC 8950), but the source address has the family of `peer`.
        let near = Some(hop.neighbour(peer)).filter(|near| near.is_ipv4() == peer.is_ipv4()).unwrap_or(peer);
        let is_local = |address: IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let near = if is_local(near) { peer } else { near };
        let own = self.ports.get(hop.port).and_then(|entry| entry.address_towards(near));
        let own = own.filter(|own| is_local(peer) || !is_local(*own));
        let any = || {
            let mut addresses = self.ports.iter().flat_map(|(_, entry)| &entry.settings.addresses);
            addresses
                .find(|net| matches!(net.addr(), IpAddr::V6(v6) if !v6.is_unicast_link_local()))
                .map(|net| net.addr())
        };
        match peer {
            IpAddr::V4(_) => Some(own.unwrap_or(self.options.router_id.into())),
            IpAddr::V6(_) => own.or_else(any),
        }
    }
}

/// Maker of ICMP errors and redirects about packets, with the tables that it reads.
pub(super) struct ErrorMaker<'a> {
    pub errors: &'a mut IcmpErrors,
    pub pool: &'a Pool,
    pub tables: ErrorTables<'a>,
}

impl ErrorMaker<'_> {
    /// Makes the ICMP error about a packet, unless the ICMP rules or the rate limit forbid the error.
    pub fn error_for(&mut self, packet: &Packet, error: IcmpError, now: Instant) -> ErrorPath {
        let source = match self.tables.sender(packet, &error) {
            ErrorSender::Router(source) => source,
            ErrorSender::Kernel => return ErrorPath::Kernel,
            ErrorSender::Nobody => return ErrorPath::None,
        };
        if !self.errors.limiter.take(&error, now) {
            return ErrorPath::None;
        }
        let options = ErrorOptions {
            traffic_class: self.tables.options.icmp_dscp << 2,
            identification: self.errors.next_identification(),
            ..ErrorOptions::default()
        };
        made(build_error(self.pool, packet, error, source, &options), packet.port)
    }

    /// Makes the redirect for the source of a packet that leaves by its ingress port, if the source should
    /// use another first hop.
    pub fn redirect(&mut self, packet: &Packet, key: &FlowKey, now: Instant) -> ErrorPath {
        if packet.next_hop == NO_ROUTE || is_filter(packet.next_hop) {
            return ErrorPath::None;
        }
        let route = self.tables.forwarding.fib.route(packet.next_hop);
        let Route::Forward(hops) = route else { return ErrorPath::None };
        let hop = *hops.select(packet.hash);
        let query = RedirectQuery {
            arrival: packet.port,
            subnet: self.tables.ports.get(packet.port).and_then(|entry| entry.subnet_of(key.source())),
            next_hop: &hop,
            source: key.source(),
            destination: key.destination(),
            source_routed: false,
        };
        match (redirect_target(&query), key.destination()) {
            (Some(IpAddr::V4(gateway)), IpAddr::V4(_)) => {
                self.error_for(packet, IcmpError::Redirect { gateway }, now)
            }
            (Some(IpAddr::V6(target)), IpAddr::V6(_)) => self.redirect6(packet, target, now),
            _ => ErrorPath::None,
        }
    }

    /// Makes the IPv6 redirect to `target` for the sender of `packet`. Makes none if the port has no
    /// link-local address as source (RFC 4861, 8.1 and 8.2).
    fn redirect6(&mut self, packet: &Packet, target: Ipv6Addr, now: Instant) -> ErrorPath {
        let Some(entry) = self.tables.ports.get(packet.port) else { return ErrorPath::None };
        let link_local = |net: &IpNet| match net.addr() {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        };
        let Some(source) = entry.settings.addresses.iter().find_map(link_local) else {
            return ErrorPath::None;
        };
        // IPv6 redirects share the rate limit of IPv4 redirects. The limiter ignores the gateway in `kind`.
        let kind = IcmpError::Redirect { gateway: Ipv4Addr::UNSPECIFIED };
        if !may_send_error(packet.network(), &kind, false) || !self.errors.limiter.take(&kind, now) {
            return ErrorPath::None;
        }
        let key = NeighbourKey { port: packet.port, address: target.into() };
        let station = match self.tables.forwarding.neighbours.get(key) {
            Some(NeighbourState::Reachable(mac)) => Some(mac),
            _ => None,
        };
        made(build_redirect6(self.pool, packet, source, target, station), packet.port)
    }
}

/// Outcome of a request for an ICMP error or redirect.
pub(super) enum ErrorPath {
    /// The router sends the given packet.
    Made(Packet),
    /// The kernel makes the error.
    Kernel,
    /// No error is sent.
    None,
}

/// Returns the outcome for an error packet that leaves by `port`; no error is sent if there was no memory for
/// the packet.
fn made(error: Option<Packet>, port: PortId) -> ErrorPath {
    let Some(mut error) = error else { return ErrorPath::None };
    error.out_port = port;
    ErrorPath::Made(error)
}

pub(super) fn source_of(packet: &impl Subject) -> Option<IpAddr> {
    let network = packet.network();
    match network.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(network.get(12..16)?).ok()?)),
        6 => Some(IpAddr::from(<[u8; 16]>::try_from(network.get(8..24)?).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
