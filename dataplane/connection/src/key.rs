//! Connection key: equal for the packets of both directions.

use std::fmt;
use std::net::IpAddr;

use millrace_memory::zeroable;
use millrace_packet::{Family, FlowKey};
use millrace_wire::Protocol;

use crate::query::Query;

/// Direction of a packet as its connection key shows it, whatever side opened the connection.
/// [`Direction`](crate::Direction) is relative to the originator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Orientation {
    /// From the key's first endpoint to its second.
    Forward,
    /// From the key's second endpoint to its first.
    Backward,
}

zeroable! {
    /// Key of a connection: two endpoints and the protocol.
    ///
    /// The first endpoint has the lower address and port. In ICMP queries, the first endpoint sends the
    /// requests, and the ports are the identifier and the type of the request. So two hosts can ping each
    /// other with the same identifier. IPv4 addresses are in the first four bytes, followed by zeros.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(C)]
    pub struct ConnectionKey {
        first: [u8; 16],
        second: [u8; 16],
        first_port: u16,
        second_port: u16,
        protocol: u8,
        family: u8,
        unused: u16,
    }
}

impl ConnectionKey {
    /// Returns the connection key of a packet, and the packet's orientation. `transport` is the packet from
    /// its transport header on.
    ///
    /// Returns `None` for an ICMP message that is no query: it belongs to no connection of its own.
    #[inline]
    pub fn of(key: &FlowKey, transport: &[u8]) -> Option<(Self, Orientation)> {
        match Protocol(key.protocol) {
            Protocol::ICMP | Protocol::ICMPV6 => Self::of_query(key, Query::read(key.protocol, transport)?),
            _ => Some(Self::of_endpoints(key, (key.source_port, key.destination_port))),
        }
    }

    /// Returns whether the packets of a flow are ICMP messages.
    #[inline]
    pub(crate) fn is_of_messages(key: &FlowKey) -> bool {
        matches!(Protocol(key.protocol), Protocol::ICMP | Protocol::ICMPV6)
    }

    /// Returns the orientation of the packets of a flow in this connection; `None` if it is no ICMP query between the
    /// endpoints of the flow.
    pub(crate) fn query_of(&self, key: &FlowKey) -> Option<Orientation> {
        let is_made = |forward| Self::new(key, (self.first_port, self.second_port), forward) == *self;
        match self.is_query() {
            true if is_made(true) => Some(Orientation::Forward),
            true if is_made(false) => Some(Orientation::Backward),
            _ => None,
        }
    }

    fn of_query(key: &FlowKey, query: Query) -> Option<(Self, Orientation)> {
        let made = |forward| Self::new(key, (query.identifier, query.request.into()), forward);
        Some(match query.is_request {
            true => (made(true), Orientation::Forward),
            false => (made(false), Orientation::Backward),
        })
    }

    #[inline]
    fn of_endpoints(key: &FlowKey, (source, destination): (u16, u16)) -> (Self, Orientation) {
        let forward = (key.source_bytes(), source) <= (key.destination_bytes(), destination);
        match forward {
            true => (Self::new(key, (source, destination), true), Orientation::Forward),
            false => (Self::new(key, (destination, source), false), Orientation::Backward),
        }
    }

    #[inline]
    fn new(key: &FlowKey, (first_port, second_port): (u16, u16), forward: bool) -> Self {
        let (source, destination) = (*key.source_bytes(), *key.destination_bytes());
        let (first, second) = if forward { (source, destination) } else { (destination, source) };
        let family = key.family() as u8;
        Self { first, second, first_port, second_port, protocol: key.protocol, family, unused: 0 }
    }

    /// Returns the protocol.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// Returns the source and the destination of packets of an orientation: address and port of each. For ICMP queries, the ports are the identifier and the type of the request, in either orientation.
    pub fn endpoints(&self, orientation: Orientation) -> [(IpAddr, u16); 2] {
        let first = (address(self.family, &self.first), self.first_port);
        let second = (address(self.family, &self.second), self.second_port);
        match orientation {
            Orientation::Forward => [first, second],
            Orientation::Backward if self.is_query() => [(second.0, first.1), (first.0, second.1)],
            Orientation::Backward => [second, first],
        }
    }

    /// Returns the bytes of the address from which packets of an orientation come.
    #[inline]
    pub(crate) fn source(&self, orientation: Orientation) -> &[u8; 16] {
        match orientation {
            Orientation::Forward => &self.first,
            Orientation::Backward => &self.second,
        }
    }

    /// Returns all fields as words, for a hash.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 5] {
        let [first, second] = [self.first, self.second].map(u128::from_le_bytes);
        let last = u64::from(self.first_port)
            | u64::from(self.second_port) << 16
            | u64::from(self.protocol) << 32
            | u64::from(self.family) << 40;
        [first as u64, (first >> 64) as u64, second as u64, (second >> 64) as u64, last]
    }

    /// Returns whether the connection is an ICMP query.
    #[inline]
    pub(crate) fn is_query(&self) -> bool {
        matches!(self.protocol(), Protocol::ICMP | Protocol::ICMPV6)
    }
}

fn address(family: u8, bytes: &[u8; 16]) -> IpAddr {
    match (family == Family::V6 as u8, bytes) {
        (true, bytes) => IpAddr::from(*bytes),
        (false, [a, b, c, d, ..]) => IpAddr::from([*a, *b, *c, *d]),
    }
}

impl fmt::Display for ConnectionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.endpoints(Orientation::Forward);
        let protocol = self.protocol();
        if self.is_query() {
            return write!(f, "{protocol} {} to {} id {} type {}", first.0, second.0, first.1, second.1);
        }
        write!(f, "{protocol} {} port {} and {} port {}", first.0, first.1, second.0, second.1)
    }
}

impl fmt::Debug for ConnectionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{self}>")
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_units::PortId;

    use super::*;

    fn flow(source: [u8; 4], destination: [u8; 4], protocol: u8, ports: (u16, u16)) -> FlowKey {
        FlowKey::v4(Ipv4Addr::from(source), Ipv4Addr::from(destination), protocol, ports, PortId(3))
    }

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];

    #[test]
    fn both_directions_have_one_key() {
        let (there, forward) = ConnectionKey::of(&flow(A, B, 6, (40_000, 80)), &[]).unwrap();
        let (back, backward) = ConnectionKey::of(&flow(B, A, 6, (80, 40_000)), &[]).unwrap();
        assert_eq!(there, back);
        assert_eq!((forward, backward), (Orientation::Forward, Orientation::Backward));
        let ends = [(IpAddr::from(B), 80), (IpAddr::from(A), 40_000)];
        assert_eq!(there.endpoints(Orientation::Backward), ends);
    }

    #[test]
    fn ports_order_the_endpoints_of_one_address() {
        let (there, forward) = ConnectionKey::of(&flow(A, A, 17, (9, 5)), &[]).unwrap();
        let (back, backward) = ConnectionKey::of(&flow(A, A, 17, (5, 9)), &[]).unwrap();
        assert_eq!((there, forward, backward), (back, Orientation::Backward, Orientation::Forward));
    }

    #[test]
    fn swapped_ports_or_addresses_are_other_connections() {
        let key = |source, destination, ports| {
            ConnectionKey::of(&flow(source, destination, 6, ports), &[]).unwrap().0
        };
        assert_ne!(key(A, B, (1, 2)), key(A, B, (2, 1)));
        assert_ne!(key(A, B, (1, 2)), key(B, A, (1, 2)));
        let (udp, _) = ConnectionKey::of(&flow(A, B, 17, (1, 2)), &[]).unwrap();
        assert_ne!(key(A, B, (1, 2)), udp);
    }

    #[test]
    fn reply_to_a_ping_has_the_key_of_the_request() {
        let (request, reply) = ([8, 0, 0, 0, 0, 77, 0, 1], [0, 0, 0, 0, 0, 77, 0, 1]);
        let (there, forward) = ConnectionKey::of(&flow(B, A, 1, (0, 0)), &request).unwrap();
        let (back, backward) = ConnectionKey::of(&flow(A, B, 1, (0, 0)), &reply).unwrap();
        assert_eq!((there, forward, backward), (back, Orientation::Forward, Orientation::Backward));
        let (crossing, _) = ConnectionKey::of(&flow(A, B, 1, (0, 0)), &request).unwrap();
        assert_ne!(crossing, there);
        let error = [3, 1, 0, 0, 0, 77, 0, 1];
        assert_eq!(ConnectionKey::of(&flow(A, B, 1, (0, 0)), &error), None);
    }
}
