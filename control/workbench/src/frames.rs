//! Built-in frames for trials without a capture: one of each kind that a plugin has to handle.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use millrace_wire::Protocol;
use millrace_wire::checksum::{Sum, checksum, pseudo_header_v4, pseudo_header_v6, sum};

/// Ethernet frame with its arrival time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Time since the first frame.
    pub at: Duration,
    /// Bytes of the frame.
    pub bytes: Vec<u8>,
}

const HOST_V4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2);

/// Returns frames at intervals of a millisecond: TCP, UDP and ICMP over IPv4 and IPv6, two fragments of one
/// packet, a truncated UDP header, a packet without data, and a packet of maximum size.
pub fn built_in() -> Vec<Frame> {
    let packets = [
        v4(Protocol::TCP, &tcp(V4, 43210, 443, 0x02, b"")),
        v4(Protocol::TCP, &tcp(V4, 43210, 443, 0x18, b"GET / HTTP/1.1\r\n\r\n")),
        v4(Protocol::UDP, &udp(V4, 5353, 53, &[0x42; 64])),
        v4(Protocol::ICMP, &echo(None)),
        v6(Protocol::TCP, &tcp(V6, 43210, 443, 0x02, b"")),
        v6(Protocol::UDP, &udp(V6, 5353, 53, &[0x42; 64])),
        v6(Protocol::ICMPV6, &echo(Some(V6))),
        fragment(&udp(V4, 1000, 2000, &[0x66; 120]), 0..64, true),
        fragment(&udp(V4, 1000, 2000, &[0x66; 120]), 64..128, false),
        v4(Protocol::UDP, &[0x12, 0x34, 0x00, 0x35]),
        v4(Protocol::UDP, &udp(V4, 9, 9, b"")),
        v4(Protocol::UDP, &udp(V4, 5201, 5201, &[0x77; 1472])),
    ];
    let frame = |(number, bytes)| Frame { at: Duration::from_millis(number), bytes };
    (0..).zip(packets).map(frame).collect()
}

/// Returns a UDP packet over IPv4 in a frame of `bytes` bytes; `flow` is its source port.
pub(crate) fn sized(bytes: usize, flow: u16) -> Vec<u8> {
    v4(Protocol::UDP, &udp(V4, flow, 5201, &vec![0x77; bytes.saturating_sub(42)]))
}

/// Function that computes the checksum of a pseudo-header from protocol and length.
type PseudoHeader = fn(Protocol, usize) -> Sum;
const V4: PseudoHeader = |protocol, bytes| pseudo_header_v4(HOST_V4, SERVER_V4, protocol, bytes as u16);
const V6: PseudoHeader = |protocol, bytes| pseudo_header_v6(HOST_V6, SERVER_V6, protocol, bytes as u32);

fn ethernet(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

fn v4(protocol: Protocol, transport: &[u8]) -> Vec<u8> {
    v4_with(protocol, transport, 0x4000)
}

/// Returns an IPv4 packet. `fragment` is the header field with flags and fragment offset.
fn v4_with(protocol: Protocol, transport: &[u8], fragment: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + transport.len() as u16).to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol.0, 0, 0]);
    packet.extend(HOST_V4.octets());
    packet.extend(SERVER_V4.octets());
    let sum = checksum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet.extend(transport);
    ethernet(0x0800, &packet)
}

/// Returns an IPv4 fragment with the bytes `part` of a UDP packet. The bounds of `part` are multiples of 8;
/// `more` sets the flag for more fragments.
fn fragment(transport: &[u8], part: std::ops::Range<usize>, more: bool) -> Vec<u8> {
    let flags = if more { 0x2000 } else { 0 };
    let offset = (part.start / 8) as u16;
    v4_with(Protocol::UDP, &transport[part], flags | offset)
}

fn v6(protocol: Protocol, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((transport.len() as u16).to_be_bytes());
    packet.extend([protocol.0, 64]);
    packet.extend(HOST_V6.octets());
    packet.extend(SERVER_V6.octets());
    packet.extend(transport);
    ethernet(0x86dd, &packet)
}

fn tcp(pseudo: PseudoHeader, source: u16, destination: u16, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut segment = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(data);
    with_checksum(segment, 16, Protocol::TCP, Some(pseudo))
}

fn udp(pseudo: PseudoHeader, source: u16, destination: u16, data: &[u8]) -> Vec<u8> {
    let mut datagram = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    datagram.extend((8 + data.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(data);
    with_checksum(datagram, 6, Protocol::UDP, Some(pseudo))
}

/// Returns an echo request; `pseudo` is the pseudo-header of ICMPv6, `None` for ICMP.
fn echo(pseudo: Option<PseudoHeader>) -> Vec<u8> {
    let kind = if pseudo.is_some() { 128 } else { 8 };
    let mut message = vec![kind, 0, 0, 0, 0, 7, 0, 1];
    message.extend(0_u8..32);
    with_checksum(message, 2, Protocol::ICMPV6, pseudo)
}

fn with_checksum(mut bytes: Vec<u8>, at: usize, protocol: Protocol, pseudo: Option<PseudoHeader>) -> Vec<u8> {
    let whole = match pseudo {
        Some(pseudo) => pseudo(protocol, bytes.len()).bytes(&bytes),
        None => sum(&bytes),
    };
    bytes[at..at + 2].copy_from_slice(&whole.checksum().to_be_bytes());
    bytes
}
