//! Dry runs of the three programs in the kernel, compared with a table of frames and with the twin.

use std::net::Ipv6Addr;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::dry_runs::{OWN, Programs};
use super::twin::{Verdict, classify};
use crate::test_support::{can_load, frame_to, ipv4_packet, ipv6_packet, with_tags};

const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

fn v4(to: &str) -> Vec<u8> {
    frame_to(OWN, 0x0800, &ipv4_packet("192.0.2.1", to, 30))
}

fn v6(to: &str) -> Vec<u8> {
    frame_to(OWN, 0x86dd, &ipv6_packet("2001:db8:9::1", to, 30))
}

/// Changes one byte, counted from the network header.
fn patched(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[14 + at] = byte;
    frame
}

fn table() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    use Verdict::{Local, Multicast, NotOurs, OtherEthertype, UserSpace, Vlan};
    let transit = v4("198.51.100.1");
    let tagged = |tags: &[(u16, u16)]| with_tags(&transit, tags);
    let to = |mac: [u8; 6], frame: &[u8]| [&mac[..], &frame[6..]].concat();
    vec![
        ("transit IPv4", transit.clone(), UserSpace),
        ("transit IPv6", v6("2001:db8:2::1"), UserSpace),
        ("own IPv4 address", v4("10.0.0.1"), Local),
        ("subnet broadcast", v4("10.0.0.255"), Local),
        ("own IPv6 address", v6("2001:db8::1"), Local),
        ("IPv6 link-local", v6("fe80::1"), Local),
        ("end of IPv6 link-local", v6("febf::1"), Local),
        ("beyond IPv6 link-local", v6("fec0::1"), UserSpace),
        ("unspecified IPv6", v6("::"), Local),
        ("IPv6 loopback", v6("::1"), UserSpace),
        ("IPv6 multicast", v6("ff02::5"), Multicast),
        ("IPv4 multicast", v4("224.0.0.5"), Multicast),
        ("end of IPv4 multicast", v4("239.255.255.255"), Multicast),
        ("class E", v4("240.0.0.1"), UserSpace),
        ("limited broadcast", v4("255.255.255.255"), Multicast),
        ("0.0.0.0", v4("0.0.0.0"), Multicast),
        ("martian 127/8", v4("127.0.0.1"), UserSpace),
        ("IPv4 options", patched(transit.clone(), 0, 0x46), UserSpace),
        ("own address with IPv4 options", patched(v4("10.0.0.1"), 0, 0x46), Local),
        ("TTL 1", patched(transit.clone(), 8, 1), UserSpace),
        ("IPv4 of version 6", patched(v4("10.0.0.1"), 0, 0x65), UserSpace),
        ("IHL below 5", patched(v4("10.0.0.1"), 0, 0x44), UserSpace),
        ("IPv6 of version 4", patched(v6("2001:db8::1"), 0, 0x45), UserSpace),
        ("short IPv4", v4("10.0.0.1")[..33].to_vec(), UserSpace),
        ("short IPv6", v6("2001:db8::1")[..53].to_vec(), UserSpace),
        ("ARP", frame_to([255; 6], 0x0806, &[0; 46]), OtherEthertype),
        ("unicast ARP", frame_to(OWN, 0x0806, &[0; 46]), OtherEthertype),
        ("LLC", frame_to([1, 0x80, 0xc2, 0, 0, 0], 38, &[0x42; 46]), OtherEthertype),
        ("MPLS", frame_to(OWN, 0x8847, &[0; 46]), OtherEthertype),
        ("unicast IPv4 in a broadcast frame", to([255; 6], &transit), Multicast),
        ("unicast IPv6 in a multicast frame", to(GROUP, &v6("2001:db8:2::1")), Multicast),
        ("another station's", to(OTHER, &transit), NotOurs),
        ("own VLAN", tagged(&[(0x8100, 10)]), UserSpace),
        ("own VLAN with a priority", tagged(&[(0x8100, 0xe00a)]), UserSpace),
        ("own VLAN, broadcast", to([255; 6], &tagged(&[(0x8100, 10)])), UserSpace),
        ("own VLAN, another station's", to(OTHER, &tagged(&[(0x8100, 10)])), NotOurs),
        ("own VLAN, ARP", with_tags(&frame_to([255; 6], 0x0806, &[0; 46]), &[(0x8100, 10)]), UserSpace),
        ("own VLAN id, other TPID", tagged(&[(0x88a8, 10)]), Vlan),
        ("another VLAN", tagged(&[(0x8100, 11)]), Vlan),
        ("own QinQ", tagged(&[(0x88a8, 7), (0x8100, 10)]), UserSpace),
        ("QinQ with another inner tag", tagged(&[(0x88a8, 7), (0x8100, 11)]), Vlan),
        ("only the outer tag of a QinQ", tagged(&[(0x88a8, 7)]), Vlan),
        ("priority tag", tagged(&[(0x8100, 0x6000)]), UserSpace),
        ("priority tag on another station's", to(OTHER, &tagged(&[(0x8100, 0)])), NotOurs),
        ("priority tag around own VLAN", tagged(&[(0x8100, 0), (0x8100, 10)]), UserSpace),
        ("three tags", tagged(&[(0x8100, 0), (0x8100, 10), (0x8100, 10)]), Vlan),
        ("cut inside the tag", tagged(&[(0x8100, 10)])[..17].to_vec(), Vlan),
    ]
}

#[test]
fn each_class_of_frames_gets_its_verdict() {
    if !can_load() {
        return;
    }
    let programs = Programs::load();
    for (what, frame, expected) in table() {
        assert_eq!(programs.verdict(&frame), expected, "{what}: program");
        assert_eq!(classify(&frame, &programs.knowledge), expected, "{what}: twin");
    }
}

/// Returns an address that the classifier knows, mostly with one bit flipped: mistakes are likeliest near
/// known addresses.
fn near<const N: usize>(known: Vec<[u8; N]>) -> impl Strategy<Value = [u8; N]> {
    (prop::sample::select(known), prop::option::weighted(0.7, 0..8 * N)).prop_map(|(mut address, flip)| {
        flip.into_iter().for_each(|bit| address[bit / 8] ^= 0x80 >> (bit % 8));
        address
    })
}

fn any_packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let first = prop_oneof![3 => Just(0x45_u8), 2 => 0x40..0x50_u8];
    let v4 = vec![[10, 0, 0, 1], [10, 0, 0, 255], [0; 4], [255; 4], [224, 0, 0, 5], [127, 0, 0, 1]];
    let v6 = ["2001:db8::1", "fd00::1", "::", "::1", "fe80::9", "ff02::1"]
        .map(|text| text.parse::<Ipv6Addr>().unwrap());
    let v6 = v6.iter().map(Ipv6Addr::octets).collect();
    let at = |first: u8, offset: usize, address: &[u8]| {
        let mut packet = vec![0_u8; 100];
        packet[0] = first;
        packet[offset..offset + address.len()].copy_from_slice(address);
        packet
    };
    prop_oneof![
        4 => (first, near(v4)).prop_map(move |(first, to)| (0x0800, at(first, 16, &to))),
        4 => near(v6).prop_map(move |to| (0x86dd, at(0x60, 24, &to))),
        1 => (any::<u8>(), any::<[u8; 4]>()).prop_map(move |(first, to)| (0x0800, at(first, 16, &to))),
        1 => (any::<u8>(), any::<[u8; 16]>()).prop_map(move |(first, to)| (0x86dd, at(first, 24, &to))),
        1 => any::<u16>().prop_map(move |ethertype| (ethertype, at(0, 0, &[]))),
    ]
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let mac = prop_oneof![6 => Just(OWN), 1 => Just(OTHER), 1 => Just(GROUP), 1 => near(vec![OWN])];
    let tpid = prop_oneof![Just(0x8100_u16), Just(0x88a8)];
    let vid = prop_oneof![
        Just(0_u16),
        Just(7),
        Just(10),
        Just(11),
        Just(4094),
        Just(0xe00a),
        Just(0x6000),
        any::<u16>()
    ];
    let tags = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec((tpid, vid), 1..4)];
    let length = prop_oneof![3 => Just(114), 1 => 15..114_usize];
    (mac, tags, any_packet(), length).prop_map(|(mac, tags, (ethertype, packet), length)| {
        let mut frame = with_tags(&frame_to(mac, ethertype, &packet), &tags);
        frame.truncate(length);
        frame
    })
}

#[test]
fn programs_agree_with_their_twin_on_any_frame() {
    if !can_load() {
        return;
    }
    let programs = Programs::load();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 4_000, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&any_frame(), |frame| {
        prop_assert_eq!(programs.verdict(&frame), classify(&frame, &programs.knowledge));
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn programs_agree_with_their_twin_on_noise() {
    if !can_load() {
        return;
    }
    let programs = Programs::load();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&prop::collection::vec(any::<u8>(), 15..200), |frame| {
        prop_assert_eq!(programs.verdict(&frame), classify(&frame, &programs.knowledge));
        Ok(())
    });
    outcome.unwrap();
}
