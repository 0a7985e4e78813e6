//! Decoder exercises: one function per decoder calls every getter on arbitrary octets. The property tests and
//! the fuzz target share these functions. None may panic, whatever the octets are.

use std::fmt::Display;
use std::hint::black_box;
use std::net::Ipv6Addr;

use millrace_wire::checksum::Sum;
use millrace_wire::{
    EtherType, MacAddr, Protocol, arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, ndp, tcp,
    udp, vlan,
};

/// Decoder with its name.
pub type Decoder = (&'static str, fn(&[u8]));

/// All decoders, by name. An input of the fuzz target `decoders` selects a decoder by its index here.
pub const DECODERS: [Decoder; 13] = [
    ("arp", arp),
    ("checksum", checksum),
    ("ethernet", ethernet),
    ("icmpv4", icmpv4),
    ("icmpv6", icmpv6),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("ipv6_ext", ipv6_ext),
    ("mac_addr", mac_addr),
    ("ndp", ndp),
    ("tcp", tcp),
    ("udp", udp),
    ("vlan", vlan),
];

fn show(value: impl Display) {
    black_box(value.to_string());
}

/// Decodes ARP packets.
pub fn arp(data: &[u8]) {
    let Ok(packet) = arp::Packet::new_checked(data) else { return };
    show(packet);
    black_box((packet.hardware_type(), packet.protocol_type(), packet.hardware_len(), packet.protocol_len()));
    black_box((
        packet.operation(),
        packet.sender_mac(),
        packet.sender_ip(),
        packet.target_mac(),
        packet.target_ip(),
    ));
    if let Ok(repr) = arp::Repr::parse(&packet) {
        let mut out = arp::Packet::new_unchecked(vec![0; repr.buffer_len()]);
        repr.emit(&mut out);
        assert_eq!(out.into_inner(), data[..arp::PACKET_LEN], "what was read is what is written");
    }
}

/// Computes sums and sums of pieces, and completes partial checksums.
pub fn checksum(data: &[u8]) {
    let cut = data.first().map_or(0, |&octet| usize::from(octet).min(data.len()));
    let (front, back) = data.split_at(cut);
    assert_eq!(checksum::sum(data).folded(), checksum::sum_slices([front, back]).folded());
    for protocol in [Protocol::TCP, Protocol::UDP, Protocol::ICMPV6, Protocol::ESP] {
        black_box(checksum::complete_partial(protocol, Sum::new(), &mut data.to_vec()));
    }
}

/// Decodes Ethernet frames.
pub fn ethernet(data: &[u8]) {
    let Ok(frame) = ethernet::Frame::new_checked(data) else { return };
    show(frame);
    black_box((frame.source(), frame.destination(), frame.ether_type(), frame.payload()));
}

/// Decodes ICMP for IPv4, with a wrong and with a right checksum.
pub fn icmpv4(data: &[u8]) {
    let Ok(mut packet) = icmpv4::Packet::new_checked(data.to_vec()) else { return };
    show(&packet);
    black_box((
        packet.message_type().is_error(),
        packet.code(),
        packet.checksum(),
        packet.rest(),
        packet.payload(),
    ));
    black_box((packet.identifier(), packet.sequence(), packet.verify_checksum()));
    packet.fill_checksum();
    show(&packet);
    if let Ok(repr) = icmpv4::Repr::parse(&packet) {
        repr.emit(&mut icmpv4::Packet::new_unchecked(vec![0; repr.buffer_len()]));
    }
}

/// Decodes ICMP for IPv6, with a wrong and with a right checksum.
pub fn icmpv6(data: &[u8]) {
    let Ok(mut packet) = icmpv6::Packet::new_checked(data.to_vec()) else { return };
    show(&packet);
    black_box((
        packet.message_type().is_error(),
        packet.message_type().is_ndp(),
        packet.code(),
        packet.checksum(),
    ));
    black_box((packet.rest(), packet.payload(), packet.identifier(), packet.sequence()));
    packet.fill_checksum(Sum::new());
    if let Ok(repr) = icmpv6::Repr::parse(&packet, Sum::new()) {
        repr.emit(&mut icmpv6::Packet::new_unchecked(vec![0; repr.buffer_len()]), Sum::new());
    }
}

/// Decodes IPv4 headers: a sane packet passes `new_checked`, and a view can be read and changed.
pub fn ipv4(data: &[u8]) {
    let sane = ipv4::sanity(data, data.len());
    black_box(ipv4::sanity(data, usize::MAX)).ok();
    let Ok(mut packet) = ipv4::Packet::new_checked(data.to_vec()) else {
        assert!(sane.is_err(), "a sane packet is accepted");
        return;
    };
    show(&packet);
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
    black_box((packet.payload_mut().len(), packet.options_mut().len()));
}

/// Decodes IPv6 headers.
pub fn ipv6(data: &[u8]) {
    let sane = ipv6::sanity(data, data.len());
    let Ok(mut packet) = ipv6::Packet::new_checked(data.to_vec()) else {
        assert!(sane.is_err(), "a sane packet is accepted");
        return;
    };
    show(&packet);
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
    black_box(packet.payload_mut().len());
}

/// Walks over extension headers, and decodes their options.
pub fn ipv6_ext(data: &[u8]) {
    black_box(ipv6_ext::FragmentRepr::parse(data)).iter().for_each(show);
    if let Ok(header) = ipv6_ext::Header::new_checked(data) {
        extension(&header, 0);
    }
    let Ok(packet) = ipv6::Packet::new_checked(data) else { return };
    for limit in [0, 1, ipv6_ext::DEFAULT_LIMIT, usize::MAX] {
        let walk = ipv6_ext::walk_limited(&packet, limit);
        assert!(walk.headers <= limit && walk.offset <= data.len(), "a walk stays in its bounds");
        black_box((walk.is_cut(), walk.upper_layer()));
        for extent in [walk.hop_by_hop, walk.routing].into_iter().flatten() {
            let octets = &data[extent.offset..extent.offset + extent.len];
            extension(
                &ipv6_ext::Header::new_checked(octets).expect("passed headers are whole"),
                extent.offset,
            );
        }
    }
}

fn extension(header: &ipv6_ext::Header<&[u8]>, offset: usize) {
    show(header);
    black_box((header.next_header(), header.routing_type(), header.segments_left()));
    for option in header.options(offset) {
        match option {
            Ok(option) => drop(black_box((option.unknown_action(), option.may_change()))),
            Err(fault) => show(fault),
        }
    }
}

/// Parses link-layer addresses: a parsed address prints in one form.
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
    show(packet);
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
    if let Err(fault) = ndp::validate(ndp::HOP_LIMIT, src, dst, &intact) {
        show(fault);
    }
}

/// Decodes TCP headers and their options.
pub fn tcp(data: &[u8]) {
    let Ok(packet) = tcp::Packet::new_checked(data) else { return };
    show(packet);
    black_box((
        packet.src_port(),
        packet.dst_port(),
        packet.sequence(),
        packet.acknowledgment(),
        packet.window(),
    ));
    black_box((
        packet.flags(),
        packet.checksum(),
        packet.urgent_pointer(),
        packet.header_len(),
        packet.payload(),
    ));
    black_box(packet.verify_checksum(Sum::new()));
    for option in packet.options() {
        match option {
            Ok(option) => drop(black_box((option.kind(), option.data(), option.len()))),
            Err(fault) => show(fault),
        }
    }
}

/// Decodes UDP headers.
pub fn udp(data: &[u8]) {
    let Ok(mut packet) = udp::Packet::new_checked(data.to_vec()) else { return };
    show(&packet);
    black_box((packet.src_port(), packet.dst_port(), packet.len(), packet.is_empty(), packet.checksum()));
    black_box((packet.payload(), packet.verify_checksum(Sum::new())));
    packet.fill_checksum(Sum::new());
    assert!(packet.verify_checksum(Sum::new()), "a checksum filled in is right");
    udp::Repr::parse(&packet, Sum::new()).iter().for_each(show);
    black_box(packet.payload_mut().len());
}

/// Decodes single and stacked VLAN tags.
pub fn vlan(data: &[u8]) {
    if let Ok(tag) = vlan::Tag::new_checked(data) {
        show(tag);
        black_box((tag.control(), tag.ether_type(), tag.payload()));
    }
    for ether_type in [EtherType::VLAN, EtherType::SERVICE_VLAN, EtherType::IPV4] {
        if let Ok(stack) = vlan::Stack::parse(ether_type, data) {
            assert!(stack.len <= data.len(), "tags lie in the frame");
            black_box((stack.outer(), stack.inner()));
        }
    }
}
