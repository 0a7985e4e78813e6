//! Frames of neighbour and router discovery, correct or wrong in any field (RFC 4861).

use std::net::Ipv6Addr;

use millrace_wire::MacAddr;

use crate::checksum::transport_checksum6;
use crate::link::{Frame, Link, link_setters, station};

/// Frame with a neighbour or router discovery message. Fields that a test doesn't set are correct.
#[derive(Clone, Debug)]
pub struct NdFrame {
    link: Link,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    kind: u8,
    code: u8,
    flags: u8,
    /// Content after the flags: addresses, or the fields of a router advertisement.
    body: Vec<u8>,
    options: Vec<u8>,
    checksum_xor: u16,
    fragmented: bool,
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

impl NdFrame {
    fn new(kind: u8, source: &str, destination: Ipv6Addr, body: Vec<u8>) -> Self {
        let mut link = Link::new(0x86dd);
        if destination.is_multicast() {
            link.to = MacAddr::from_ipv6_multicast(destination);
        }
        Self {
            link,
            source: address(source),
            destination,
            hop_limit: 255,
            kind,
            code: 0,
            flags: 0,
            body,
            options: Vec::new(),
            checksum_xor: 0,
            fragmented: false,
        }
    }

    /// Returns a neighbour solicitation for `target` by `source`, sent to the solicited-node group of
    /// `target`.
    pub fn solicitation(source: &str, target: &str) -> Self {
        let target = address(target);
        let octets = target.octets();
        let low = u16::from_be_bytes([octets[14], octets[15]]);
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(octets[13]), low);
        Self::new(135, source, group, target.octets().into())
    }

    /// Returns a neighbour advertisement of `target`, sent to `destination`.
    pub fn advertisement(target: &str, destination: &str) -> Self {
        Self::new(136, target, address(destination), address(target).octets().into())
    }

    /// Returns a router solicitation by a host.
    pub fn router_solicitation(source: &str) -> Self {
        Self::new(133, source, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2), Vec::new())
    }

    /// Returns a router advertisement.
    pub fn router_advertisement(source: &str) -> Self {
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        Self { flags: 64, ..Self::new(134, source, all_nodes, vec![0; 8]) }
    }

    /// Returns a redirect from the router `source` to the host `to`: `target` is the better first hop to
    /// `destination`.
    pub fn redirect(source: &str, to: &str, target: &str, destination: &str) -> Self {
        let body = [address(target).octets(), address(destination).octets()].concat();
        Self::new(137, source, address(to), body)
    }

    link_setters!();

    /// Sets the destination address. A frame with a unicast destination address goes to the MAC address of
    /// port a.
    pub fn dst(mut self, destination: &str) -> Self {
        self.destination = address(destination);
        self.link.to = if self.destination.is_multicast() {
            MacAddr::from_ipv6_multicast(self.destination)
        } else {
            station(0x0a)
        };
        self
    }

    /// Sets the hop limit.
    pub fn hop_limit(mut self, hops: u8) -> Self {
        self.hop_limit = hops;
        self
    }

    /// Sets the ICMPv6 code.
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Sets the flags of an advertisement: 0x80 router, 0x40 solicited, 0x20 override.
    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// Adds an option of any bytes, its type and length included.
    pub fn option(mut self, bytes: &[u8]) -> Self {
        self.options.extend(bytes);
        self
    }

    /// Adds the source link-layer address option.
    pub fn source_link(self, mac: MacAddr) -> Self {
        self.option(&[&[1, 1][..], &mac.0].concat())
    }

    /// Adds the target link-layer address option.
    pub fn target_link(self, mac: MacAddr) -> Self {
        self.option(&[&[2, 1][..], &mac.0].concat())
    }

    /// Flips these bits of the correct checksum.
    pub fn checksum_xor(mut self, bits: u16) -> Self {
        self.checksum_xor = bits;
        self
    }

    /// Inserts a fragment header before the message, which stays whole (an atomic fragment).
    pub fn fragmented(mut self) -> Self {
        self.fragmented = true;
        self
    }
}

impl Frame for NdFrame {
    fn bytes(&self) -> Vec<u8> {
        let mut message = vec![self.kind, self.code, 0, 0, self.flags, 0, 0, 0];
        message.extend(&self.body);
        message.extend(&self.options);
        let sum = transport_checksum6(self.source, self.destination, 58, &message) ^ self.checksum_xor;
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut next = 58;
        if self.fragmented {
            message.splice(0..0, [58, 0, 0, 0, 0, 0, 0, 9]);
            next = 44;
        }
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((message.len() as u16).to_be_bytes());
        packet.extend([next, self.hop_limit]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(message);
        self.link.frame(&packet)
    }
}
