//! Control-plane classes of packets for the router itself: dry runs of the programs in the kernel.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;

use super::control_plane::set;
use crate::bpf::object::{self, write_config};
use crate::bpf::syscall;
use crate::counters::read_counters;
use crate::test_support::{can_load, frame_to, ipv4_packet, ipv6_packet, with_tags};
use crate::{CONTROL_CLASSES, ClassRate};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 5];
const ESTABLISHED: usize = 0;
const BGP: usize = 1;
const OSPF: usize = 2;
const ROUTING: usize = 3;
const ICMP: usize = 4;
const OPTIONS: usize = 5;
const NEIGHBOURS: usize = 6;
const OTHER: usize = 7;
const NONE: usize = CONTROL_CLASSES;

struct Programs {
    object: Ebpf,
    programs: Vec<(OwnedFd, u32)>,
}

impl Programs {
    fn load() -> Self {
        let mut object = object::level0().unwrap();
        let mut load = |name, dropped| (object::load(&mut object, name).unwrap(), dropped);
        let programs = vec![load("millrace_xdp", 1), load("millrace_xdp_sg", 1), load("millrace_tcx", 2)];
        write_config(&mut object, |config| *config = [2, 0, 0, 0, 0, 1, 2, 0]).unwrap();
        for address in [[10, 0, 0, 1], [127, 0, 0, 1]] {
            let map = object.map_mut("local4").unwrap();
            let mut map = aya::maps::HashMap::<_, u32, u8>::try_from(map).unwrap();
            map.insert(u32::from_ne_bytes(address), 1, 0).unwrap();
        }
        Self { object, programs }
    }

    /// Returns the class that each program counts a frame in, and whether the frame passed.
    fn classes(&self, frame: &[u8]) -> Vec<(usize, bool)> {
        let run = |(program, dropped): &(OwnedFd, u32)| {
            let before = read_counters(&self.object).unwrap();
            let answer = match syscall::run_dry(program.as_fd(), frame) {
                // A dry run needs whole network headers for a tcx program; a real device does not.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && frame.len() < 74 && *dropped == 2 =>
                {
                    return None;
                }
                answer => answer.unwrap(),
            };
            let after = read_counters(&self.object).unwrap();
            let more = |after: &[u64], before: &[u64]| after.iter().zip(before).position(|(a, b)| a != b);
            let entered = more(&after.control.passed, &before.control.passed);
            let refused = more(&after.control.dropped, &before.control.dropped);
            assert_eq!(refused.is_some(), answer == *dropped, "{refused:?} is counted, {answer} answered");
            assert_eq!(after.passed() - before.passed(), u64::from(refused.is_none()));
            assert!(entered.is_none() || refused.is_none());
            Some((entered.or(refused).unwrap_or(NONE), refused.is_none()))
        };
        self.programs.iter().filter_map(run).collect()
    }

    fn set(&mut self, class: usize, rate: ClassRate) {
        let mut rates = [None; CONTROL_CLASSES];
        rates[class] = Some(rate);
        set(&mut self.object, &rates).unwrap();
    }
}

fn v4(to: &str, protocol: u8, ports: (u16, u16)) -> Vec<u8> {
    let mut packet = ipv4_packet("10.0.0.2", to, 60);
    packet[9] = protocol;
    packet[20..22].copy_from_slice(&ports.0.to_be_bytes());
    packet[22..24].copy_from_slice(&ports.1.to_be_bytes());
    frame_to(OWN, 0x0800, &packet)
}

fn v6(to: &str, next: u8, hop_limit: u8, first: [u8; 4]) -> Vec<u8> {
    let mut packet = ipv6_packet("fe80::2", to, 60);
    (packet[6], packet[7]) = (next, hop_limit);
    packet[40..44].copy_from_slice(&first);
    frame_to(OWN, 0x86dd, &packet)
}

fn patched(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[14 + at] = byte;
    frame
}

fn to_other(frame: Vec<u8>) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 9], &frame[6..]].concat()
}

fn to_group(frame: Vec<u8>) -> Vec<u8> {
    [&GROUP[..], &frame[6..]].concat()
}

/// Name of a test frame, the frame, and its class.
type Row = (&'static str, Vec<u8>, usize);

fn arp() -> Vec<u8> {
    frame_to([255; 6], 0x0806, &[0; 80])
}

/// Returns frames of routing protocols, ICMP and neighbour discovery, with their classes.
fn routing_and_icmp() -> Vec<Row> {
    let own = "10.0.0.1";
    vec![
        ("BGP", v4(own, 6, (40_000, 179)), BGP),
        ("BGP's answer", v4(own, 6, (179, 40_000)), BGP),
        ("SSH", v4(own, 6, (40_000, 22)), OTHER),
        ("UDP to 179", v4(own, 17, (40_000, 179)), OTHER),
        ("BGP over IPv6", v6("fe80::1", 6, 255, [0x9c, 0x40, 0, 179]), BGP),
        ("OSPF's group", to_group(v4("224.0.0.5", 89, (0, 0))), OSPF),
        ("OSPF to us", v4(own, 89, (0, 0)), OSPF),
        ("OSPFv3", to_group(v6("ff02::5", 89, 1, [3; 4])), OSPF),
        ("BFD", v4(own, 17, (50_000, 3784)), ROUTING),
        ("VRRP", to_group(v4("224.0.0.18", 112, (0, 0))), ROUTING),
        ("RIPng", to_group(v6("ff02::9", 17, 255, [2, 9, 2, 9])), ROUTING),
        ("IS-IS", frame_to([1, 0x80, 0xc2, 0, 0, 0x14], 60, &[0xfe; 80]), ROUTING),
        ("echo", v4(own, 1, (0x0800, 0)), ICMP),
        ("a later fragment of an echo", patched(v4(own, 1, (0, 0)), 7, 9), ICMP),
        ("a later fragment to port 179", patched(v4(own, 6, (40_000, 179)), 7, 9), OTHER),
        ("echo over IPv6", v6("fe80::1", 58, 64, [128, 0, 0, 0]), ICMP),
        ("a solicitation", to_group(v6("ff02::1:ff00:1", 58, 255, [135, 0, 0, 0])), NEIGHBOURS),
        ("a solicitation from elsewhere", v6("fe80::1", 58, 254, [135, 0, 0, 0]), ICMP),
    ]
}

/// Returns frames of other protocols, with their classes.
fn other_protocols() -> Vec<Row> {
    let own = "10.0.0.1";
    vec![
        ("ARP", arp(), NEIGHBOURS),
        ("ARP with a priority", with_tags(&arp(), &[(0x8100, 0x6000)]), NEIGHBOURS),
        ("Router Alert", patched(v4(own, 46, (0, 0)), 0, 0x46), OPTIONS),
        ("IGMP", to_group(v4("224.0.0.1", 2, (0, 0))), OPTIONS),
        ("MLD", to_group(v6("ff02::16", 0, 1, [58, 0, 5, 2])), OPTIONS),
        ("DHCP", to_group(v4("255.255.255.255", 17, (68, 67))), OTHER),
        ("LLDP", frame_to(GROUP, 0x88cc, &[0; 80]), OTHER),
        ("MPLS", frame_to(OWN, 0x8847, &[0; 80]), NONE),
        ("a stream to a group", to_group(v4("239.1.1.1", 17, (5, 5))), NONE),
        ("a stream to a group of IPv6", to_group(v6("ff0e::1", 17, 9, [1; 4])), NONE),
    ]
}

/// Returns frames to other MAC addresses than the port's, with their classes.
fn other_stations() -> Vec<Row> {
    let own = "10.0.0.1";
    vec![
        ("a bridge's behind the port", to_other(v4(own, 6, (4, 179))), BGP),
        ("another station's", to_other(v4("10.0.0.9", 6, (4, 179))), NONE),
        ("another station's of the link", to_other(v6("fe80::9", 6, 64, [0, 4, 0, 179])), NONE),
        ("OSPF's group to a bridge's MAC address", to_other(v4("224.0.0.5", 89, (0, 0))), OSPF),
        ("a broadcast to a bridge's MAC address", to_other(v4("255.255.255.255", 17, (68, 67))), OTHER),
        (
            "a solicitation to a bridge's MAC address",
            to_other(v6("ff02::1:ff00:1", 58, 255, [135, 0, 0, 0])),
            NEIGHBOURS,
        ),
        ("a stream to a group to a bridge's MAC address", to_other(v6("ff0e::1", 17, 9, [1; 4])), NONE),
    ]
}

/// Returns frames in VLANs that are no sub-interface, with their classes.
fn tagged() -> Vec<Row> {
    let own = "10.0.0.1";
    vec![
        ("for the router in another VLAN", with_tags(&v4(own, 6, (4, 179)), &[(0x8100, 77)]), BGP),
        ("for another in another VLAN", with_tags(&v4("10.0.0.9", 6, (4, 179)), &[(0x8100, 77)]), NONE),
        ("ARP in another VLAN", with_tags(&arp(), &[(0x8100, 77)]), NEIGHBOURS),
        (
            "OSPF's group in two tags",
            with_tags(&to_group(v4("224.0.0.5", 89, (0, 0))), &[(0x88a8, 7), (0x8100, 7)]),
            OSPF,
        ),
        ("ARP to one station in another VLAN", with_tags(&to_other(arp()), &[(0x8100, 77)]), NEIGHBOURS),
        ("LLDP in another VLAN", with_tags(&frame_to(OWN, 0x88cc, &[0; 80]), &[(0x8100, 77)]), OTHER),
        (
            "OSPF's group to the router's MAC address in another VLAN",
            with_tags(&v4("224.0.0.5", 89, (0, 0)), &[(0x8100, 77)]),
            OSPF,
        ),
        (
            "a broadcast to the router's MAC address in another VLAN",
            with_tags(&v4("255.255.255.255", 17, (68, 67)), &[(0x8100, 77)]),
            OTHER,
        ),
        (
            "OSPFv3 to the router's MAC address in another VLAN",
            with_tags(&v6("ff02::5", 89, 1, [3; 4]), &[(0x8100, 77)]),
            OSPF,
        ),
        (
            "a stream to a group in another VLAN",
            with_tags(&v4("239.1.1.1", 17, (5, 5)), &[(0x8100, 77)]),
            NONE,
        ),
        ("in three tags", with_tags(&v4(own, 6, (4, 179)), &[(0x88a8, 7), (0x8100, 8), (0x8100, 9)]), OTHER),
        ("MPLS in another VLAN", with_tags(&frame_to(OWN, 0x8847, &[0; 80]), &[(0x8100, 77)]), NONE),
    ]
}

fn table() -> Vec<Row> {
    [routing_and_icmp(), other_protocols(), other_stations(), tagged()].concat()
}

#[test]
fn classes_of_packets_to_the_router_are_distinguished() {
    if !can_load() {
        return;
    }
    let programs = Programs::load();
    for (what, frame, expected) in table() {
        assert_eq!(programs.classes(&frame), [(expected, true); 3], "{what}");
    }
}

/// Cuts frames: a program never reads the missing bytes from older memory contents. All programs classify a
/// cut frame by the headers that it has.
#[test]
fn truncated_frame_is_classified_by_its_present_bytes() {
    if !can_load() {
        return;
    }
    let programs = Programs::load();
    let cut = |frame: &[u8], length: usize| programs.classes(&frame[..length]);
    let (bgp, bgp6) = (v4("10.0.0.1", 6, (40_000, 179)), v6("fe80::1", 6, 255, [0x9c, 0x40, 0, 179]));
    let solicitation = to_group(v6("ff02::1:ff00:1", 58, 255, [135, 0, 0, 0]));
    let ospf = to_group(v4("224.0.0.5", 89, (0, 0)));
    let table = [
        ("the ports of IPv4", &bgp, 38, BGP),
        ("a port and a half", &bgp, 37, OTHER),
        ("an IPv4 header alone", &bgp, 34, OTHER),
        ("the ports of IPv6", &bgp6, 58, BGP),
        ("an IPv6 header alone", &bgp6, 54, OTHER),
        ("a solicitation's type", &solicitation, 55, NEIGHBOURS),
        ("a solicitation without its type", &solicitation, 54, ICMP),
        ("a part of a solicitation's header", &solicitation, 53, OTHER),
        ("OSPF's header", &ospf, 34, OSPF),
        ("a part of OSPF's header", &ospf, 33, OTHER),
    ];
    for (what, frame, length, expected) in table {
        let classes = cut(frame, length);
        assert!(
            classes.len() >= 2 && classes.iter().all(|class| *class == (expected, true)),
            "{what}: {classes:?}"
        );
    }
    for (what, frame, _) in self::table() {
        // Shorter frames go to workers, which count them.
        let least = match (frame[..6] == OWN, [frame[12], frame[13]]) {
            (true, [0x08, 0x00]) => 34,
            (true, [0x86, 0xdd]) => 54,
            _ => 15,
        };
        for length in least..frame.len() {
            let classes = cut(&frame, length);
            assert!(classes.len() >= 2, "{what}, {length} bytes");
            assert!(classes.iter().all(|class| *class == classes[0]), "{what}, {length} bytes: {classes:?}");
        }
    }
}

#[test]
fn flood_loses_packets_in_its_class_only() {
    if !can_load() {
        return;
    }
    let mut programs = Programs::load();
    programs.set(ICMP, ClassRate { rate: 1, burst: 6 });
    let echo = v4("10.0.0.1", 1, (0x0800, 0));
    let passed = (0..10).flat_map(|_| programs.classes(&echo)).filter(|(_, passed)| *passed).count();
    assert_eq!(passed, 6, "a burst of six gets through, of all programs together");
    for (what, frame, class) in table().into_iter().filter(|(_, _, class)| *class != ICMP) {
        assert_eq!(programs.classes(&frame), [(class, true); 3], "{what}");
    }
    programs.set(BGP, ClassRate { rate: 1, burst: 1 });
    assert_eq!(programs.classes(&echo), [(ICMP, true); 3], "what is not policed gets through");
}

#[test]
fn established_connection_is_no_part_of_a_flood_to_its_port() {
    if !can_load() {
        return;
    }
    let mut programs = Programs::load();
    programs.set(OTHER, ClassRate { rate: 1, burst: 3 });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let _server = listener.accept().unwrap();
    let to_server = |source: u16| {
        let mut frame = v4("127.0.0.1", 6, (source, address.port()));
        frame[26..30].copy_from_slice(&[127, 0, 0, 1]);
        frame
    };
    let own = client.local_addr().unwrap().port();
    let flood = to_server(own.wrapping_add(1));
    assert_eq!(programs.classes(&flood), [(OTHER, true); 3]);
    assert_eq!(programs.classes(&flood), [(OTHER, false); 3]);
    assert_eq!(programs.classes(&to_server(own)), [(ESTABLISHED, true); 3]);
}
