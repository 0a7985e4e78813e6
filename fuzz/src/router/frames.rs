//! Frames made of input bytes: valid frames of a small network that are overwritten, cut or lengthened, with
//! their checksums corrected afterwards.

use millrace_tests::{
    ArpFrame, Frame, Ipv4Frame, Ipv6Frame, NdFrame, RawFrame, checksum, station, transport_checksum4,
    transport_checksum6,
};

use crate::input::Input;

const SOURCES: [(&str, &str); 6] = [
    ("10.1.0.2", "fd00:1::2"),
    ("10.1.0.3", "fd00:1::3"),
    ("10.2.0.2", "fd00:2::2"),
    ("203.0.113.1", "2001:db8::1"),
    ("10.1.0.1", "fe80::2"),
    ("0.0.0.0", "::"),
];
const DESTINATIONS: [(&str, &str); 13] = [
    ("10.9.0.1", "fd00:9::1"),
    ("10.9.1.1", "fd00:9:0:1::1"),
    ("10.3.0.2", "fd00:3::2"),
    ("10.1.0.1", "fd00:1::1"),
    ("10.1.0.3", "fd00:1::3"),
    ("10.2.0.77", "fd00:2::77"),
    ("198.51.100.1", "2001:db8:1::1"),
    ("224.0.0.5", "ff02::1"),
    ("255.255.255.255", "ff02::1:ff00:1"),
    ("10.1.0.255", "::1"),
    ("10.10.0.2", "fd00:11::1"),
    ("10.11.0.2", "fd00:11::2"),
    ("10.4.0.2", "fd00:4::1"),
];
const PORTS: [u16; 6] = [0, 53, 80, 1000, 2000, 65535];
/// Lengths of packets, in bytes. All headers fit into the shortest packet.
const LENGTHS: [usize; 6] = [200, 576, 1480, 1500, 1600, 6000];
/// Wrong values for lengths, versions and offsets.
const WRONG: [u8; 14] = [0, 1, 2, 4, 5, 6, 8, 0x40, 0x45, 0x4f, 0x60, 0x80, 0xfe, 0xff];

/// Returns the frames of one packet at a port. If `lies` is set, the input may leave wrong checksums in
/// overwritten frames.
pub fn next_frames(input: &mut Input<'_>, port: &str, number: u32, lies: bool) -> Vec<Vec<u8>> {
    let kind = input.byte();
    let mut frames = match kind % 8 {
        0..=2 => ipv4(input, port, number),
        3..=5 => ipv6(input, port, number),
        6 => vec![link_local(input)],
        _ if kind & 16 != 0 => vec![captured(input, port)],
        _ => {
            let ether_type = input.pick(&[0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88cc]);
            let length = input.below(200);
            vec![RawFrame::new(ether_type, input.take(length)).bytes()]
        }
    };
    tag(port, &mut frames);
    for _ in 0..kind >> 6 {
        for frame in &mut frames {
            mutate(input, frame);
        }
    }
    if kind & 32 != 0 || !lies {
        frames.iter_mut().for_each(|frame| repair(frame));
    }
    frames
}

fn own_station(port: &str) -> millrace_wire::MacAddr {
    station(match port {
        "a" => 0x0a,
        "b" => 0x0b,
        "v" => 0x1a,
        "q" => 0x1b,
        "p" => 0x0f,
        _ => 0x0c,
    })
}

/// Inserts the VLAN tags of the sub-interface at which the frames arrive.
fn tag(port: &str, frames: &mut [Vec<u8>]) {
    let tags: &[u8] = match port {
        "v" => &[0x81, 0, 0, 10],
        "q" => &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 10],
        _ => return,
    };
    for frame in frames.iter_mut().filter(|frame| frame.len() >= 12) {
        frame.splice(12..12, tags.iter().copied());
    }
}

/// Returns a whole frame from the input; the seeds of the corpus are captured frames. The input may replace
/// the frame's destination MAC address and IP addresses by those of this network.
fn captured(input: &mut Input<'_>, port: &str) -> Vec<u8> {
    let (length, moves) = (usize::from(input.word() % 2048), input.byte());
    let (source, destination) = (input.pick(&SOURCES), input.pick(&DESTINATIONS));
    let mut frame = input.take(length).to_vec();
    if moves & 1 != 0
        && let Some(to) = frame.get_mut(..6)
    {
        to.copy_from_slice(&own_station(port).0);
    }
    let (from4, from6, to4, to6) = match frame.get(12..14) {
        Some([8, 0]) => (Some(26..30), None, Some(30..34), None),
        Some([0x86, 0xdd]) => (None, Some(22..38), None, Some(38..54)),
        _ => return frame,
    };
    for (moves, range4, range6, (v4, v6)) in
        [(moves & 2, from4, from6, source), (moves & 4, to4, to6, destination)]
    {
        let v4 = v4.parse::<std::net::Ipv4Addr>().expect("an address").octets();
        let v6 = v6.parse::<std::net::Ipv6Addr>().expect("an address").octets();
        for (range, octets) in [(range4, &v4[..]), (range6, &v6[..])] {
            if moves != 0
                && let Some(place) = range.and_then(|range| frame.get_mut(range))
            {
                place.copy_from_slice(octets);
            }
        }
    }
    frame
}

fn ipv4(input: &mut Input<'_>, port: &str, number: u32) -> Vec<Vec<u8>> {
    let kind = input.below(10);
    let id = number as u16;
    let ports = |input: &mut Input<'_>, frame: Ipv4Frame| frame.ports(input.pick(&PORTS), input.pick(&PORTS));
    let frames = match kind {
        0 | 1 => vec![ports(input, Ipv4Frame::udp())],
        2 | 3 => vec![ports(input, Ipv4Frame::tcp()).flags(input.byte())],
        4 => vec![Ipv4Frame::echo()],
        5 => {
            let length = input.below(40);
            vec![Ipv4Frame::raw(input.byte()).payload(input.take(length))]
        }
        6 => vec![Ipv4Frame::raw(input.pick(&[6, 17, 1])).offset(u16::from(input.byte()) * 8).id(id)],
        7 => ports(input, Ipv4Frame::tcp()).length(100).id(id).pieces(24),
        8 => {
            let length = input.below(11) * 4;
            vec![ports(input, Ipv4Frame::udp()).options(input.take(length).get(..length).unwrap_or(&[]))]
        }
        _ => vec![Ipv4Frame::icmp(input.byte(), input.byte())],
    };
    let (source, destination) = (input.pick(&SOURCES).0, input.pick(&DESTINATIONS).0);
    let (tos, ttl) = (input.pick(&[0, 0xb8, 0xff]), input.pick(&[64, 1, 0, 2, 255]));
    let length = (kind != 7 && input.one_in(4)).then(|| input.pick(&LENGTHS));
    let keep = input.one_in(4);
    let whole = |frame: Ipv4Frame| {
        let frame = frame.to(own_station(port)).src(source).dst(destination).tos(tos).ttl(ttl);
        let frame = if keep { frame.dont_fragment() } else { frame };
        length.map_or(frame.clone(), |length| frame.length(length)).bytes()
    };
    frames.into_iter().map(whole).collect()
}

fn ipv6(input: &mut Input<'_>, port: &str, number: u32) -> Vec<Vec<u8>> {
    let kind = input.below(10);
    let ports = |input: &mut Input<'_>, frame: Ipv6Frame| frame.ports(input.pick(&PORTS), input.pick(&PORTS));
    let frames = match kind {
        0 | 1 => vec![ports(input, Ipv6Frame::udp())],
        2 | 3 => vec![ports(input, Ipv6Frame::tcp()).flags(input.byte())],
        4 => vec![Ipv6Frame::echo()],
        5 => {
            let length = input.below(40);
            vec![Ipv6Frame::raw(input.byte()).payload(input.take(length))]
        }
        6 => {
            vec![Ipv6Frame::raw(input.pick(&[6, 17, 58, 60])).fragment(
                u16::from(input.byte()) * 8,
                false,
                number,
            )]
        }
        7 => ports(input, Ipv6Frame::tcp()).length(120).pieces(24, number),
        8 => {
            let mut frame = ports(input, Ipv6Frame::udp());
            for _ in 0..input.below(11) {
                let header = input.pick(&[0u8, 60, 43]);
                let mut bytes = [0, 1, 4, 0, 0, 0, 0];
                let given = input.take(3);
                bytes[1..=given.len()].copy_from_slice(given);
                frame = frame.extension(header, &bytes);
            }
            vec![frame]
        }
        _ => vec![Ipv6Frame::icmp(input.byte(), input.byte())],
    };
    let (source, destination) = (input.pick(&SOURCES).1, input.pick(&DESTINATIONS).1);
    let (class, hops) = (input.pick(&[0, 0xb8, 0xff]), input.pick(&[64, 1, 0, 2, 255]));
    let length = (kind != 7 && input.one_in(4)).then(|| input.pick(&LENGTHS));
    let whole = |frame: Ipv6Frame| {
        let frame =
            frame.to(own_station(port)).src(source).dst(destination).traffic_class(class).hop_limit(hops);
        length.map_or(frame.clone(), |length| frame.length(length)).bytes()
    };
    frames.into_iter().map(whole).collect()
}

/// Returns a message of ARP or neighbour discovery.
fn link_local(input: &mut Input<'_>) -> Vec<u8> {
    let from = input.pick(&["10.1.0.2", "10.1.0.3", "10.2.0.77", "203.0.113.1"]);
    let from6 = input.pick(&["fd00:1::2", "fd00:1::3", "fe80::2", "2001:db8::1"]);
    match input.below(7) {
        0 => ArpFrame::request(from, "10.1.0.1").bytes(),
        1 => ArpFrame::reply(from, "10.1.0.1").bytes(),
        2 => NdFrame::solicitation(from6, "fd00:1::1").source_link(station(0xa2)).bytes(),
        3 => NdFrame::advertisement(from6, "fd00:1::1").dst("fd00:1::1").target_link(station(0xa2)).bytes(),
        4 => NdFrame::router_solicitation(from6).bytes(),
        5 => NdFrame::router_advertisement(from6).bytes(),
        _ => NdFrame::redirect("fe80::2", "fd00:1::1", "fe80::3", "fd00:9::1").bytes(),
    }
}

fn mutate(input: &mut Input<'_>, frame: &mut Vec<u8>) {
    // Mostly overwrites bytes after the MAC addresses, so that the router reads the frame at all.
    let at = usize::from(input.byte());
    match input.below(8) {
        0 => frame.truncate(at),
        1 => frame.extend(input.take(at % 64)),
        2 => {
            let bytes = input.take(4);
            let at = at.min(frame.len());
            frame.splice(at..at, bytes.iter().copied());
        }
        3 => {
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= input.byte();
            }
        }
        4 => {
            if let Some(byte) = frame.get_mut(12 + at % 64) {
                *byte = input.byte();
            }
        }
        _ => {
            if let Some(byte) = frame.get_mut(12 + at % 64) {
                *byte = input.pick(&WRONG);
            }
        }
    }
}

/// Corrects the IPv4 header, TCP, UDP and ICMP checksums of a frame, so that they cause no drop.
pub fn repair(frame: &mut [u8]) {
    let mut at = 12;
    while matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8])) {
        at += 4;
    }
    let Some((ether_type, packet)) = frame.get_mut(at..).and_then(|rest| rest.split_first_chunk_mut::<2>())
    else {
        return;
    };
    match *ether_type {
        [8, 0] => repair4(packet),
        [0x86, 0xdd] => repair6(packet),
        _ => {}
    }
}

fn repair4(packet: &mut [u8]) {
    let Some(first) = packet.first() else { return };
    let header = usize::from(first & 15) * 4;
    if header < 20 || packet.len() < header {
        return;
    }
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).expect("four bytes").into();
    let (source, destination, protocol) = (address(12), address(16), packet[9]);
    let end = usize::from(u16::from_be_bytes([packet[2], packet[3]])).clamp(header, packet.len());
    let transport = &mut packet[header..end];
    set_checksum(transport, protocol, |bytes| match protocol {
        1 => checksum(bytes),
        _ => transport_checksum4(source, destination, protocol, bytes),
    });
}

fn repair6(packet: &mut [u8]) {
    if packet.len() < 40 {
        return;
    }
    let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("sixteen bytes").into();
    let (source, destination, protocol) = (address(8), address(24), packet[6]);
    let end = (40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))).clamp(40, packet.len());
    let transport = &mut packet[40..end];
    set_checksum(transport, protocol, |bytes| transport_checksum6(source, destination, protocol, bytes));
}

/// Whether the transport checksum of a network packet is correct. Returns true if there is none to check: for
/// fragments, and packets with IPv6 extension headers.
pub fn transport_is_right(ether_type: u16, packet: &[u8]) -> bool {
    match (ether_type, packet) {
        (0x0800, [first, _, _, _, _, _, high, low, ..]) => {
            let fragment = u16::from_be_bytes([*high, *low]) & 0x3fff;
            let header = usize::from(first & 15) * 4;
            let (Some(transport), true) = (packet.get(header..), fragment == 0) else { return true };
            let (source, destination, protocol) = (octets(packet, 12), octets(packet, 16), packet[9]);
            let unset = protocol == 17 && transport.get(6..8) == Some(&[0, 0]);
            !has_checksum(transport, protocol)
                || unset
                || match protocol {
                    1 => checksum(transport) == 0,
                    _ => transport_checksum4(source.into(), destination.into(), protocol, transport) == 0,
                }
        }
        (0x86dd, _) => {
            let Some(transport) = packet.get(40..) else { return true };
            let (source, destination) = (octets::<16>(packet, 8), octets::<16>(packet, 24));
            !has_checksum(transport, packet[6])
                || transport_checksum6(source.into(), destination.into(), packet[6], transport) == 0
        }
        _ => true,
    }
}

fn octets<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
    packet[at..at + N].try_into().expect("a checked header")
}

fn has_checksum(transport: &[u8], protocol: u8) -> bool {
    checksum_place(protocol).is_some_and(|at| transport.len() >= at + 2)
}

/// Returns the offset of the checksum in a transport header, in bytes; `None` for a protocol without a known
/// checksum.
fn checksum_place(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 => Some(6),
        1 | 58 => Some(2),
        _ => None,
    }
}

fn set_checksum(transport: &mut [u8], protocol: u8, sum: impl Fn(&[u8]) -> u16) {
    let Some(at) = checksum_place(protocol).filter(|at| transport.len() >= at + 2) else { return };
    transport[at..at + 2].fill(0);
    let sum = sum(transport).to_be_bytes();
    transport[at..at + 2].copy_from_slice(&sum);
}
