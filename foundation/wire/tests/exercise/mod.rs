//! Decoder exercises, shared by the property tests and the fuzz target. One function per decoder calls every
//! getter on arbitrary octets. None may panic, whatever the octets are.

use std::fmt::Display;
use std::hint::black_box;
use std::net::Ipv6Addr;

use millrace_wire::checksum::Sum;
use millrace_wire::{
    EtherType, MacAddr, Protocol, arp, checksum, ethernet, icmpv6, ipv4, ipv6, ipv6_ext, ndp, tcp, vlan,
};

/// Decoder with its name.
pub type Decoder = (&'static str, fn(&[u8]));

/// All decoders, by name. An input of the fuzz target `decoders` selects a decoder by its index here.
pub const DECODERS: [Decoder; 11] = [
    ("arp", arp),
    ("checksum", checksum),
    ("ethernet", ethernet),
    ("icmpv6", icmpv6),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("ipv6_ext", ipv6_ext),
    ("mac_addr", mac_addr),
    ("ndp", ndp),
    ("tcp", tcp),
    ("vlan", vlan),
];

fn show(value: impl Display) {
    black_box(value.to_string());
}

/// Decodes ARP packets.
pub fn arp(data: &[u8]) {
    let Ok(packet) = arp::Packet::new_checked(data) else { return };
    black_box((
        packet.operation(),
        packet.sender_mac(),
        packet.sender_ip(),
        packet.target_mac(),
        packet.target_ip(),
    ));
    match arp::Repr::parse(&packet) {
        Ok(repr) => {
            let mut out = arp::Packet::new_unchecked(vec![0; arp::PACKET_LEN]);
            repr.emit(&mut out);
            assert_eq!(out.into_inner(), data[..arp::PACKET_LEN], "what was read is what is written");
        }
        Err(error) => show(error),
    }
}

/// Computes checksums of all octets at once and in pieces.
pub fn checksum(data: &[u8]) {
    let cut = data.first().map_or(0, |&octet| usize::from(octet).min(data.len()));
    let (front, back) = data.split_at(cut);
    assert_eq!(checksum::sum(data).folded(), checksum::sum_slices([front, back]).folded());
}

/// Decodes Ethernet frames.
pub fn ethernet(data: &[u8]) {
    let Ok(frame) = ethernet::Frame::new_checked(data) else { return };
    show(frame.ether_type());
    black_box((frame.source(), frame.destination(), frame.ether_type(), frame.payload()));
}

/// Decodes ICMPv6 messages, with a wrong and with a right checksum.
pub fn icmpv6(data: &[u8]) {
    let Ok(mut packet) = icmpv6::Packet::new_checked(data.to_vec()) else { return };
    black_box((packet.code(), packet.checksum(), packet.verify_checksum(Sum::new())));
    packet.fill_checksum(Sum::new());
}

/// Decodes IPv4 headers. A packet that passes the sanity check must pass `new_checked`, and its view can be
/// read and changed.
pub fn ipv4(data: &[u8]) {
    let sane = ipv4::sanity(data, data.len());
    black_box(ipv4::sanity(data, usize::MAX)).ok();
    let Ok(mut packet) = ipv4::Packet::new_checked(data.to_vec()) else {
        assert!(sane.is_err(), "a sane packet is accepted");
        return;
    };
    show(packet.protocol());
    black_box((packet.version(), packet.header_len(), packet.dscp(), packet.ecn(), packet.total_len()));
    black_box((
        packet.identification(),
        packet.reserved_flag(),
        packet.is_fragment(),
        packet.fragment_offset(),
    ));
    black_box((packet.ttl(), packet.protocol(), packet.checksum(), packet.verify_checksum(), packet.src()));
    black_box((packet.dst(), packet.header(), packet.payload(), packet.pseudo_header()));
    for option in packet.options().flatten() {
        black_box((ipv4::option::is_copied(&option), ipv4::option::pointer(&option), option.data()));
    }
    if packet.decrement_ttl() && sane.is_ok() {
        assert_eq!(
            ipv4::sanity(&packet.clone().into_inner(), data.len()),
            Ok(()),
            "a decremented packet stays sane"
        );
    }
}

/// Decodes IPv6 headers.
pub fn ipv6(data: &[u8]) {
    let sane = ipv6::sanity(data, data.len());
    let Ok(mut packet) = ipv6::Packet::new_checked(data.to_vec()) else {
        assert!(sane.is_err(), "a sane packet is accepted");
        return;
    };
    black_box((packet.version(), packet.dscp(), packet.ecn(), packet.flow_label(), packet.payload_len()));
    black_box((packet.total_len(), packet.next_header(), packet.hop_limit(), packet.src(), packet.dst()));
    black_box((packet.payload(), packet.pseudo_header(Protocol::TCP, 20)));
    if packet.decrement_hop_limit() && sane.is_ok() {
        assert_eq!(
            ipv6::sanity(&packet.clone().into_inner(), data.len()),
            Ok(()),
            "a decremented packet stays sane"
        );
    }
}

/// Walks over extension headers.
pub fn ipv6_ext(data: &[u8]) {
    black_box(ipv6_ext::FragmentRepr::parse(data)).ok();
    let Ok(packet) = ipv6::Packet::new_checked(data) else { return };
    let walk = ipv6_ext::walk(&packet);
    assert!(
        walk.headers <= ipv6_ext::DEFAULT_LIMIT && walk.offset <= data.len(),
        "a walk stays in its bounds"
    );
    black_box(walk.upper_layer());
}

/// Parses MAC addresses. A parsed address must always be written in the same form.
pub fn mac_addr(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<MacAddr>() {
        Ok(address) => assert_eq!(address.to_string(), text.to_lowercase().replace('-', ":")),
        Err(error) => show(error),
    }
}

/// Decodes neighbour discovery messages, whether `validate` accepts them or not.
pub fn ndp(data: &[u8]) {
    let (src, dst) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST);
    let Ok(packet) = ndp::Packet::new_checked(data) else { return };
    black_box((packet.flags(), packet.target(), packet.destination(), packet.icmp().checksum()));
    for kind in [ndp::option::SOURCE_LINK_ADDRESS, ndp::option::TARGET_LINK_ADDRESS] {
        black_box(packet.link_address(kind));
    }
    let pseudo = checksum::pseudo_header_v6(src, dst, Protocol::ICMPV6, data.len() as u32);
    if let Ok(repr) = ndp::Repr::parse(&packet) {
        repr.emit(&mut ndp::Packet::new_unchecked(vec![0; repr.buffer_len()]), pseudo);
    }
    let mut intact = data.to_vec();
    icmpv6::Packet::new_unchecked(&mut intact[..]).fill_checksum(pseudo);
    black_box(ndp::validate(ndp::HOP_LIMIT, src, dst, &intact)).ok();
}

/// Decodes TCP headers.
pub fn tcp(data: &[u8]) {
    let Ok(packet) = tcp::Packet::new_checked(data) else { return };
    black_box((packet.acknowledgment(), packet.flags(), packet.window()));
    black_box((packet.header_len(), packet.payload()));
}

/// Decodes single and stacked VLAN tags.
pub fn vlan(data: &[u8]) {
    if let Ok(tag) = vlan::Tag::new_checked(data) {
        black_box((tag.control(), tag.ether_type()));
    }
    for ether_type in [EtherType::VLAN, EtherType::SERVICE_VLAN, EtherType::IPV4] {
        if let Ok(stack) = vlan::Stack::parse(ether_type, data) {
            assert!(stack.len <= data.len(), "tags lie in the frame");
            black_box((stack.outer(), stack.inner()));
        }
    }
}
