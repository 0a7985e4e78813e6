//! Packets of a small network, and strategies that generate them.

use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, station};
use proptest::prelude::*;

/// Packet chosen by a strategy: one of a few flows with varying fields, or any other packet.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub port: &'static str,
    flow: prop::sample::Index,
    flags: u8,
    dscp: u8,
    ttl: u8,
    other: Option<Packet>,
}

impl Chosen {
    pub fn packet(&self, flows: &[Packet]) -> Packet {
        if let Some(other) = &self.other {
            return other.clone();
        }
        let flow = flows[self.flow.index(flows.len())].clone();
        let kind = match flow.kind {
            Kind::Tcp(from, to, _) => Kind::Tcp(from, to, self.flags),
            other => other,
        };
        Packet { kind, dscp: self.dscp, ttl: self.ttl, ..flow }
    }
}

/// Packet between the hosts of a small network.
#[derive(Clone, Debug)]
pub struct Packet {
    v6: bool,
    source: usize,
    destination: usize,
    kind: Kind,
    dscp: u8,
    ttl: u8,
}

#[derive(Clone, Debug)]
enum Kind {
    Udp(u16, u16),
    Tcp(u16, u16, u8),
    Echo,
    /// Protocol, and length in bytes of its header.
    Raw(u8, usize),
    /// Later fragment without a first fragment.
    Later(u8),
    /// Fragments of a TCP segment.
    Pieces(u16, u8),
}

impl Packet {
    /// Returns the packet's frames at a port. All fragments of the packet carry `identification`.
    pub fn frames(&self, port: &str, identification: u32) -> Vec<Vec<u8>> {
        let own = if port == "a" { station(0x0a) } else { station(0x0b) };
        if self.v6 {
            let frames = match self.kind {
                Kind::Udp(from, to) => vec![Ipv6Frame::udp().ports(from, to)],
                Kind::Tcp(from, to, flags) => vec![Ipv6Frame::tcp().ports(from, to).flags(flags)],
                Kind::Echo => vec![Ipv6Frame::echo()],
                // Destination options that are cut short, or complete without a header after them.
                Kind::Raw(60, length) => {
                    vec![Ipv6Frame::raw(60).payload(&[6, 0, 1, 4, 0, 0, 0, 0][..length.min(8)])]
                }
                Kind::Raw(protocol, length) => vec![Ipv6Frame::raw(protocol).payload(&[0; 40][..length])],
                Kind::Later(protocol) => vec![Ipv6Frame::raw(protocol).fragment(1480, false, identification)],
                Kind::Pieces(to, flags) => {
                    Ipv6Frame::tcp().ports(1000, to).flags(flags).length(120).pieces(24, identification)
                }
            };
            let (source, destination) = (SOURCES[self.source].1, DESTINATIONS[self.destination].1);
            let rest = |frame: Ipv6Frame| {
                let frame = frame.to(own).src(source).dst(destination);
                frame.traffic_class(self.dscp << 2).hop_limit(self.ttl).bytes()
            };
            return frames.into_iter().map(rest).collect();
        }
        let id = identification as u16;
        let frames = match self.kind {
            Kind::Udp(from, to) => vec![Ipv4Frame::udp().ports(from, to)],
            Kind::Tcp(from, to, flags) => vec![Ipv4Frame::tcp().ports(from, to).flags(flags)],
            Kind::Echo => vec![Ipv4Frame::echo()],
            Kind::Raw(protocol, length) => vec![Ipv4Frame::raw(protocol).payload(&[0; 40][..length])],
            Kind::Later(protocol) => vec![Ipv4Frame::raw(protocol).offset(1480).id(id)],
            Kind::Pieces(to, flags) => {
                Ipv4Frame::tcp().ports(1000, to).flags(flags).length(100).id(id).pieces(24)
            }
        };
        let (source, destination) = (SOURCES[self.source].0, DESTINATIONS[self.destination].0);
        let rest = |frame: Ipv4Frame| {
            frame.to(own).src(source).dst(destination).tos(self.dscp << 2).ttl(self.ttl).bytes()
        };
        frames.into_iter().map(rest).collect()
    }
}

const SOURCES: [(&str, &str); 4] = [
    ("10.1.0.2", "fd00:1::2"),
    ("10.1.0.3", "fd00:1::3"),
    ("10.2.0.2", "fd00:2::2"),
    ("203.0.113.1", "2001:db8::1"),
];
const DESTINATIONS: [(&str, &str); 6] = [
    ("10.9.0.1", "fd00:9::1"),
    ("10.9.1.1", "fd00:9:0:1::1"),
    ("10.3.0.2", "fd00:3::2"),
    ("10.1.0.1", "fd00:1::1"),
    ("10.1.0.3", "fd00:1::3"),
    ("198.51.100.1", "2001:db8:1::1"),
];
const PORTS: [u16; 4] = [0, 53, 80, 1000];

fn any_flags() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(2u8), 4 => Just(16), 1 => Just(18), 1 => Just(17)]
}

fn any_dscp() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(46)]
}

fn any_ttl() -> impl Strategy<Value = u8> {
    prop_oneof![16 => Just(64u8), 1 => Just(1)]
}

pub fn chosen() -> impl Strategy<Value = Chosen> {
    let other = prop_oneof![8 => Just(None), 1 => any_packet().prop_map(Some)];
    let port = prop_oneof![6 => Just("a"), 1 => Just("b")];
    (port, any::<prop::sample::Index>(), any_flags(), any_dscp(), any_ttl(), other)
        .prop_map(|(port, flow, flags, dscp, ttl, other)| Chosen { port, flow, flags, dscp, ttl, other })
}

pub fn any_packet() -> impl Strategy<Value = Packet> {
    let port = || prop::sample::select(&PORTS[..]);
    let kind = prop_oneof![
        4 => (port(), port()).prop_map(|(from, to)| Kind::Udp(from, to)),
        12 => (port(), port(), any_flags()).prop_map(|(from, to, flags)| Kind::Tcp(from, to, flags)),
        1 => Just(Kind::Echo),
        3 => (prop::sample::select(&[6u8, 17, 50, 60, 132][..]), prop::sample::select(&[0usize, 3, 8, 20][..]))
            .prop_map(|(protocol, length)| Kind::Raw(protocol, length)),
        2 => prop::sample::select(&[6u8, 17, 1, 60][..]).prop_map(Kind::Later),
        2 => (port(), any_flags()).prop_map(|(to, flags)| Kind::Pieces(to, flags)),
    ];
    let place = |count: usize| prop_oneof![6 => Just(0), 2 => 0..count];
    (any::<bool>(), place(SOURCES.len()), place(DESTINATIONS.len()), kind, any_dscp(), any_ttl()).prop_map(
        |(v6, source, destination, kind, dscp, ttl)| Packet { v6, source, destination, kind, dscp, ttl },
    )
}
