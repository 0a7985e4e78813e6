//! Headers of a frame that may be truncated. They serve one-line summaries and comparisons.

use std::net::IpAddr;

use millrace_wire::{EtherType, MacAddr, Protocol, ethernet, ipv4, ipv6, ipv6_ext, vlan};

/// Link, network and transport headers, as far as the frame contains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    /// Destination and source MAC address; `None` without a link header.
    link: Option<(MacAddr, MacAddr)>,
    vlans: Vec<u16>,
    ether_type: u16,
    /// Source and destination IP address; `None` if the frame contains none.
    addresses: Option<(IpAddr, IpAddr)>,
    protocol: u8,
    /// TTL or hop limit.
    ttl: u8,
    /// Traffic class: DSCP and ECN.
    class: u8,
    ports: Option<(u16, u16)>,
}

impl Headers {
    /// Reads the headers of a frame with a link header.
    pub fn of_frame(bytes: &[u8]) -> Self {
        let mut headers = Self::default();
        let Ok(frame) = ethernet::Frame::new_checked(bytes) else { return headers };
        headers.link = Some((frame.destination(), frame.source()));
        headers.ether_type = frame.ether_type().0;
        let mut rest = &bytes[ethernet::HEADER_LEN..];
        while EtherType(headers.ether_type).is_vlan()
            && let Ok(tag) = vlan::Tag::new_checked(rest)
        {
            headers.vlans.push(tag.control().id());
            headers.ether_type = tag.ether_type().0;
            rest = &rest[vlan::TAG_LEN..];
        }
        headers.read_network(rest);
        headers
    }

    /// Reads the headers of a packet that begins with its network header.
    pub fn of_packet(packet: &[u8]) -> Self {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ether_type = if v6 { EtherType::IPV6.0 } else { EtherType::IPV4.0 };
        let mut headers = Self { ether_type, ..Self::default() };
        headers.read_network(packet);
        headers
    }

    pub fn ether_type(&self) -> u16 {
        self.ether_type
    }

    fn read_network(&mut self, packet: &[u8]) {
        let transport = match EtherType(self.ether_type) {
            EtherType::IPV4 => self.read_v4(packet),
            EtherType::IPV6 => self.read_v6(packet),
            _ => None,
        };
        if let Some(transport) = transport.filter(|_| Protocol(self.protocol).has_ports()) {
            self.ports = half(transport, 0).zip(half(transport, 2));
        }
    }

    fn read_v4<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let packet = ipv4::Packet::new_checked(bytes).ok()?;
        self.addresses = Some((packet.src().into(), packet.dst().into()));
        (self.class, self.ttl, self.protocol) = (packet.tos(), packet.ttl(), packet.protocol().0);
        bytes.get(packet.header_len()..).filter(|_| packet.fragment_offset() == 0)
    }

    fn read_v6<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let packet = ipv6::Packet::new_checked(bytes).ok()?;
        self.addresses = Some((packet.src().into(), packet.dst().into()));
        (self.class, self.ttl) = (packet.traffic_class(), packet.hop_limit());
        let walk = ipv6_ext::walk(&packet);
        self.protocol = walk.protocol.0;
        walk.upper_layer().and_then(|(_, at)| bytes.get(at..))
    }

    /// Returns the headers as one line.
    pub fn line(&self) -> String {
        let tags: String = self.vlans.iter().map(|id| format!("vlan {id} ")).collect();
        let Some((source, destination)) = self.addresses else {
            let link = self.link.map(|(to, from)| format!("{from} to {to}, "));
            return format!("{tags}{}ethertype {:#06x}", link.unwrap_or_default(), self.ether_type);
        };
        let with_port = |address: IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(v4), Some(port)) => format!("{v4}:{port}"),
            (IpAddr::V6(v6), Some(port)) => format!("[{v6}]:{port}"),
        };
        let source = with_port(source, self.ports.map(|(source, _)| source));
        let destination = with_port(destination, self.ports.map(|(_, destination)| destination));
        format!("{tags}{source} to {destination}, {}, ttl {}", Protocol(self.protocol), self.ttl)
    }

    /// Returns the header fields that differ in `later`, the headers of the same packet at a later stage.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut note = |what: &str, old: String, new: String| {
            if old != new {
                changes.push(format!("{what} {old} to {new}"));
            }
        };
        note("ttl", self.ttl.to_string(), later.ttl.to_string());
        note("dscp", (self.class >> 2).to_string(), (later.class >> 2).to_string());
        note("ecn", (self.class & 3).to_string(), (later.class & 3).to_string());
        if let (Some(old), Some(new)) = (self.addresses, later.addresses) {
            note("source", old.0.to_string(), new.0.to_string());
            note("destination", old.1.to_string(), new.1.to_string());
        }
        if let (Some(old), Some(new)) = (self.ports, later.ports) {
            note("source port", old.0.to_string(), new.0.to_string());
            note("destination port", old.1.to_string(), new.1.to_string());
        }
        note("vlans", format!("{:?}", self.vlans), format!("{:?}", later.vlans));
        if let (Some(old), Some(new)) = (self.link, later.link)
            && old != new
        {
            changes.push(format!("link header {} to {}", new.1, new.0));
        }
        changes
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a UDP frame from 10.1.0.2:1000 to 10.2.0.2:53.
    fn frame(ttl: u8, tag: bool) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if tag {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2]);
        frame.extend([3, 232, 0, 53, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn headers_are_formatted_in_one_line() {
        let headers = Headers::of_frame(&frame(64, false));
        assert_eq!(headers.line(), "10.1.0.2:1000 to 10.2.0.2:53, udp, ttl 64");
        assert_eq!(Headers::of_packet(&frame(64, false)[14..]).line(), headers.line());
        assert!(Headers::of_frame(&frame(64, true)).line().starts_with("vlan 7 10.1.0.2"));
        let arp = [&frame(0, false)[..12], &[8, 6]].concat();
        assert_eq!(
            Headers::of_frame(&arp).line(),
            "02:00:00:00:00:02 to 02:00:00:00:00:01, ethertype 0x0806"
        );
    }

    #[test]
    fn extension_headers_are_passed() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, 0, 9];
        packet.extend([0; 15].iter().chain(&[1]).chain(&[0; 15]).chain(&[2]));
        // A hop-by-hop options header with padding, then UDP.
        packet.extend([17, 0, 1, 4, 0, 0, 0, 0, 3, 232, 0, 53, 0, 8, 0, 0]);
        assert_eq!(Headers::of_packet(&packet).line(), "[::1]:1000 to [::2]:53, udp, ttl 9");
    }

    #[test]
    fn truncated_headers_are_omitted() {
        let whole = frame(64, true);
        for length in 0..whole.len() {
            let _ = Headers::of_frame(&whole[..length]).line();
            let _ = Headers::of_packet(&whole[..length]).line();
        }
    }

    #[test]
    fn changes_are_named() {
        let before = Headers::of_frame(&frame(64, false));
        let mut later = frame(63, true);
        later[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
        assert_eq!(
            before.changes(&Headers::of_frame(&later)),
            ["ttl 64 to 63", "vlans [] to [7]", "link header 02:00:00:00:00:08 to 02:00:00:00:00:09"]
        );
        assert!(before.changes(&before).is_empty());
    }
}
