//! Packets with unusual addresses, lengths and ports, as frames.

use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, station};
use proptest::prelude::*;

use crate::flows::flow_table::packets::{Packet, any_packet};

/// Frame at a port, with its VLAN tag if it has one.
#[derive(Clone, Debug)]
pub struct Sent {
    pub port: &'static str,
    pub frame: Vec<u8>,
}

/// Packet chosen by a strategy, and the port at which it arrives.
#[derive(Clone, Debug)]
pub struct Chosen {
    port: &'static str,
    packet: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Packet of a few flows.
    Usual(Packet),
    /// Packet with unusual fields.
    Odd(Odd),
}

/// Packet with unusual fields.
#[derive(Clone, Debug)]
struct Odd {
    v6: bool,
    source: usize,
    destination: usize,
    content: Content,
    ttl: u8,
    dont_fragment: bool,
    length: Option<usize>,
    options: bool,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Udp,
    Tcp,
    Echo,
    Other,
}

/// Source addresses: of neighbours, of the router, and addresses that must not be forwarded.
const SOURCES: [(&str, &str); 9] = [
    ("10.1.0.2", "fd00:1::2"),
    ("10.1.0.3", "fd00:1::3"),
    ("10.2.0.2", "fd00:2::2"),
    ("10.2.0.1", "fd00:2::1"),
    ("127.0.0.1", "::1"),
    ("0.0.0.0", "::"),
    ("224.1.1.1", "ff05::9"),
    ("169.254.1.1", "fe80::9"),
    ("203.0.113.1", "2001:db8::1"),
];
/// Destination addresses: behind gateways, of neighbours with and without a MAC address, of the router,
/// groups and broadcasts, and addresses that must not be forwarded.
const DESTINATIONS: [(&str, &str); 16] = [
    ("10.9.0.1", "fd00:9::1"),
    ("10.9.1.1", "fd00:9:0:1::1"),
    ("10.2.0.2", "fd00:2::2"),
    ("10.4.0.2", "fd00:4::2"),
    ("10.1.0.3", "fd00:1::3"),
    ("10.3.0.77", "fd00:3::77"),
    ("10.1.0.1", "fd00:1::1"),
    ("10.4.0.1", "fd00:4::1"),
    ("10.2.0.255", "fd00:2::"),
    ("255.255.255.255", "ff02::1"),
    ("224.0.0.5", "ff02::5"),
    ("239.1.1.1", "ff05::2"),
    ("127.0.0.1", "::1"),
    ("169.254.7.7", "fe80::7"),
    ("0.0.0.0", "::"),
    ("198.51.100.1", "2001:db8:1::1"),
];

impl Chosen {
    /// Returns the packet's frame; `None` for a packet in several fragments. Fragments carry
    /// `identification`.
    pub fn sent(&self, identification: u32) -> Option<Sent> {
        let frames = match &self.packet {
            Kind::Usual(packet) => packet.frames(self.port, identification),
            Kind::Odd(odd) => vec![odd.frame()],
        };
        let [frame] = <[Vec<u8>; 1]>::try_from(frames).ok()?;
        Some(at_port(self.port, frame))
    }
}

/// Returns a frame addressed to a port. A frame of the sub-interface `v` arrives tagged at the device of `t`.
fn at_port(port: &'static str, mut frame: Vec<u8>) -> Sent {
    let own = match port {
        "a" => station(0x0a),
        "b" => station(0x0b),
        _ => station(0x0d),
    };
    frame[..6].copy_from_slice(&own.0);
    if port == "v" {
        frame.splice(12..12, [0x81, 0, 0, 10]);
    }
    Sent { port, frame }
}

impl Odd {
    fn frame(&self) -> Vec<u8> {
        if self.v6 {
            return self.frame6();
        }
        let frame = match self.content {
            Content::Udp => Ipv4Frame::udp(),
            Content::Tcp => Ipv4Frame::tcp(),
            Content::Echo => Ipv4Frame::echo(),
            Content::Other => Ipv4Frame::raw(47),
        };
        let frame = match self.length {
            Some(length) => frame.length(length),
            None => frame,
        };
        let frame = if self.dont_fragment { frame.dont_fragment() } else { frame };
        let frame = if self.options { frame.options(&[1, 1, 1, 1]) } else { frame };
        frame.src(SOURCES[self.source].0).dst(DESTINATIONS[self.destination].0).ttl(self.ttl).bytes()
    }

    fn frame6(&self) -> Vec<u8> {
        let frame = match self.content {
            Content::Udp => Ipv6Frame::udp(),
            Content::Tcp => Ipv6Frame::tcp(),
            Content::Echo => Ipv6Frame::echo(),
            Content::Other => Ipv6Frame::raw(47),
        };
        let frame = match self.length {
            Some(length) => frame.length(length),
            None => frame,
        };
        let frame = if self.options { frame.extension(0, &[0, 1, 4, 0, 0, 0, 0]) } else { frame };
        frame.src(SOURCES[self.source].1).dst(DESTINATIONS[self.destination].1).hop_limit(self.ttl).bytes()
    }
}

fn any_odd() -> impl Strategy<Value = Odd> {
    let source = prop_oneof![6 => Just(0), 4 => 0..SOURCES.len()];
    let destination = prop_oneof![3 => Just(0), 8 => 0..DESTINATIONS.len()];
    let content = prop_oneof![
        6 => Just(Content::Udp),
        2 => Just(Content::Tcp),
        3 => Just(Content::Echo),
        1 => Just(Content::Other),
    ];
    let ttl = prop_oneof![12 => Just(64u8), 1 => Just(1), 1 => Just(0), 1 => Just(2)];
    let length =
        prop_oneof![4 => Just(None), 1 => Just(Some(1280)), 2 => Just(Some(1400)), 1 => Just(Some(1500))];
    let options = prop_oneof![8 => Just(false), 1 => Just(true)];
    (any::<bool>(), source, destination, content, ttl, any::<bool>(), length, options).prop_map(
        |(v6, source, destination, content, ttl, dont_fragment, length, options)| Odd {
            v6,
            source,
            destination,
            content,
            ttl,
            dont_fragment,
            length,
            options,
        },
    )
}

/// Returns a strategy for packets at any port.
pub fn any_chosen() -> impl Strategy<Value = Chosen> {
    let port = prop_oneof![8 => Just("a"), 2 => Just("b"), 2 => Just("v")];
    let packet = prop_oneof![any_packet().prop_map(Kind::Usual), any_odd().prop_map(Kind::Odd)];
    (port, packet).prop_map(|(port, packet)| Chosen { port, packet })
}
