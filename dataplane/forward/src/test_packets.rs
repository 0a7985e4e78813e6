//! Test packets of this crate. They begin at the network header.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_wire::{Protocol, ipv4, ipv6};

/// Address 10.0.0.1.
pub const HOST_A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Address 192.0.2.9.
pub const HOST_B4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// Address 2001:db8:a::1.
pub const HOST_A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1);
/// Address 2001:db8:b::9.
pub const HOST_B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 9);

/// Returns an IPv4 packet with `options` (padded with zeros to whole words), DF clear, TTL 64.
pub fn ip4(protocol: Protocol, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len().next_multiple_of(4);
    let mut bytes = vec![0; header_len + payload.len()];
    let repr = ipv4::Repr {
        src: HOST_A4,
        dst: HOST_B4,
        protocol,
        payload_len: payload.len() as u16,
        ttl: 64,
        tos: 0x28,
        identification: 0x1234,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
    };
    repr.emit(&mut ipv4::Packet::new_unchecked(&mut bytes[..]));
    bytes[20..20 + options.len()].copy_from_slice(options);
    bytes[header_len..].copy_from_slice(payload);
    change4(&mut bytes, |header| {
        header.set_header_len(header_len);
        header.set_total_len((header_len + payload.len()) as u16);
    });
    bytes
}

/// Applies `change` to an IPv4 header and corrects its checksum.
pub fn change4(bytes: &mut [u8], change: impl FnOnce(&mut ipv4::Packet<&mut [u8]>)) {
    let mut header = ipv4::Packet::new_unchecked(bytes);
    change(&mut header);
    header.fill_checksum();
}

/// Returns a UDP datagram without a checksum, ports 1000 to 2000.
fn udp(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x03, 0xe8, 0x07, 0xd0];
    bytes.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a UDP packet over IPv4.
pub fn udp4(payload: &[u8]) -> Vec<u8> {
    ip4(Protocol::UDP, &[], &udp(payload))
}

/// Returns an IPv6 packet, hop limit 64, traffic class 0x28, flow label 0x12345.
pub fn ip6(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let repr = ipv6::Repr {
        src: HOST_A6,
        dst: HOST_B6,
        next_header,
        payload_len: payload.len() as u16,
        hop_limit: 64,
        traffic_class: 0x28,
        flow_label: 0x12345,
    };
    repr.emit(&mut ipv6::Packet::new_unchecked(&mut bytes[..]));
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a UDP packet over IPv6.
pub fn udp6(payload: &[u8]) -> Vec<u8> {
    ip6(Protocol::UDP, &udp(payload))
}
