//! The program redirects host output while a reader exists, and never the router's own output.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use millrace_units::QueueId;
use millrace_wire::MacAddr;

use crate::bpf::{object, syscall};
use crate::host_output::write_settings;
use crate::test_support::{
    Wire, can_load, frame_to, ip, ipv4_packet, ipv6_packet, packet_socket, receive_all,
};
use crate::{HostCatch, HostRedirect};

/// Creates a TAP device without a reader.
fn make_tap(wire: &Wire) -> u32 {
    ip(&format!("-n {} tuntap add catcher mode tap", wire.near));
    ip(&format!("-n {} link set catcher up", wire.near));
    wire.near(|| nix::net::if_::if_nametoindex("catcher").unwrap())
}

const MARK: [u8; 4] = [2, 0xaa, 0xbb, 0xcc];

fn to(catcher: u32) -> HostRedirect {
    HostRedirect { catcher, mac: MacAddr([2, 0, 0, 0, 0, 1]), mark: MARK }
}

#[test]
fn packets_of_a_control_group_carry_the_number_of_its_queue() {
    let Some(wire) = Wire::loadable() else { return };
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    if !group.lines().any(|line| line == "0::/") {
        return println!("skipped: this process is not in the root group of version 2");
    }
    // The root group has the id 1.
    const ROOT: u64 = 1;
    ip(&format!("-n {} link add catcher type veth peer name caught", wire.near));
    ["catcher", "caught"].iter().for_each(|device| ip(&format!("-n {} link set {device} up", wire.near)));
    let index = |device: &'static str| wire.near(|| nix::net::if_::if_nametoindex(device).unwrap());
    let mut catch = wire.near(|| HostCatch::attach(wire.port(), to(index("catcher")), &[0, 1, 2]).unwrap());
    let source = |text: &[u8]| {
        let socket = wire.near(|| packet_socket(index("caught")));
        wire.near(|| {
            let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
            socket.send_to(text, "10.0.0.2:9").unwrap();
        });
        let frames = receive_all(&socket);
        let frame = frames.iter().find(|frame| frame.ends_with(text)).expect("the packet is redirected");
        frame[6..12].to_vec()
    };
    assert_eq!(source(b"no queue"), [2, 0, 0, 0, 0, 1]);
    catch.set_queues(&BTreeMap::from([(ROOT, QueueId(0x1234)), (99, QueueId(1))])).unwrap();
    assert_eq!(source(b"a queue"), [&MARK[..], &0x1234_u16.to_ne_bytes()].concat());
    catch.set_queues(&BTreeMap::from([(ROOT, QueueId(5))])).unwrap();
    assert_eq!(source(b"another"), [&MARK[..], &5_u16.to_ne_bytes()].concat());
    catch.set_queues(&BTreeMap::new()).unwrap();
    assert_eq!(source(b"none again"), [2, 0, 0, 0, 0, 1]);
}

#[test]
fn packets_with_another_source_address_than_the_devices_are_not_marked() {
    if !can_load() {
        return;
    }
    let Some(wire) = Wire::loadable() else { return };
    ip(&format!("-n {} link add catcher type veth peer name caught", wire.near));
    ["catcher", "caught"].iter().for_each(|device| ip(&format!("-n {} link set {device} up", wire.near)));
    let index = |device: &'static str| wire.near(|| nix::net::if_::if_nametoindex(device).unwrap());
    let other = HostRedirect { mac: MacAddr([2, 0, 0, 0, 0, 9]), ..to(index("catcher")) };
    let mut catch = wire.near(|| HostCatch::attach(wire.port(), other, &[0, 1, 2]).unwrap());
    catch.set_queues(&BTreeMap::from([(1, QueueId(7))])).unwrap();
    let socket = wire.near(|| packet_socket(index("caught")));
    wire.near(|| UdpSocket::bind("10.0.0.1:0").unwrap().send_to(b"bridged", "10.0.0.2:9").unwrap());
    let frames = receive_all(&socket);
    let frame = frames.iter().find(|frame| frame.ends_with(b"bridged")).expect("the packet is redirected");
    assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 1]);
}

/// A bridge may forward frames of others with any source address.
#[test]
fn frames_that_have_the_mark_already_are_left_to_the_kernel() {
    if !can_load() {
        return;
    }
    const NEXT: u32 = -1_i32 as u32;
    const LOOPBACK: u32 = 1;
    let mut object = object::host_output().unwrap();
    write_settings(&mut object, to(LOOPBACK)).unwrap();
    let program = object::load(&mut object, "millrace_host").unwrap();
    let frame = |source: [u8; 6]| {
        let mut frame = frame_to([2; 6], 0x0800, &ipv4_packet("192.0.2.1", "198.51.100.1", 16));
        frame[6..12].copy_from_slice(&source);
        frame
    };
    let [a, b, c, d] = MARK;
    let run = |source| syscall::run_dry(program.as_fd(), &frame(source)).unwrap();
    assert_eq!(run([a, b, c, d, 0, 1]), NEXT);
    assert_ne!(run([a, b, c, d ^ 1, 0, 1]), NEXT);
    assert_ne!(run([2, 0, 0, 0, 0, 1]), NEXT);
}

#[test]
fn the_kernels_packets_are_caught_while_the_catcher_is_there() {
    let Some(wire) = Wire::loadable() else { return };
    let (port, peer) = (wire.port(), wire.peer());
    let catcher = make_tap(&wire);
    let arrived = |text: &[u8]| {
        let socket = wire.far(|| packet_socket(peer));
        wire.near(|| {
            let socket = UdpSocket::bind("10.0.0.1:4000").unwrap();
            // A send error would make an application believe that the network is full.
            assert_eq!(socket.send_to(text, "10.0.0.2:9").unwrap(), text.len());
        });
        receive_all(&socket).iter().any(|frame| frame.ends_with(text))
    };
    assert!(arrived(b"before"));
    let catch = wire.near(|| HostCatch::attach(port, to(catcher), &[0, 1, 2]).unwrap());
    assert_eq!(catch.ifindex(), port);
    assert!(!arrived(b"caught"));
    ip(&format!("-n {} link del catcher", wire.near));
    assert!(arrived(b"without a catcher"));
    drop(catch);
    assert!(arrived(b"after"));
}

/// Sends frames that end before the ICMPv6 type: such a frame is no neighbour discovery message, and the
/// program redirects it like other frames.
#[test]
fn neighbour_messages_are_recognised_by_present_bytes() {
    const NEXT: u32 = -1_i32 as u32;
    const REDIRECT: u32 = 7;
    const LOOPBACK: u32 = 1;
    if !can_load() {
        return;
    }
    let mut object = object::host_output().unwrap();
    let program = object::load(&mut object, "millrace_host").unwrap();
    write_settings(&mut object, to(LOOPBACK)).unwrap();
    let icmp6 = |kind: u8| {
        let mut packet = ipv6_packet("fe80::1", "fe80::2", 24);
        (packet[6], packet[40]) = (58, kind);
        frame_to([2; 6], 0x86dd, &packet)
    };
    let ipv4 = frame_to([2; 6], 0x0800, &ipv4_packet("192.0.2.1", "198.51.100.1", 16));
    let arp = frame_to([0xff; 6], 0x0806, &[0; 28]);
    let table = [
        ("a solicitation", icmp6(135), 86, NEXT),
        ("its first octet", icmp6(135), 55, NEXT),
        ("its IPv6 header", icmp6(135), 54, REDIRECT),
        ("the type before the first", icmp6(132), 86, REDIRECT),
        ("the last type", icmp6(137), 86, NEXT),
        ("the type behind the last", icmp6(138), 86, REDIRECT),
        ("ARP", arp.clone(), 42, NEXT),
        ("an octet of ARP", arp, 15, NEXT),
        ("IPv4", ipv4.clone(), 58, REDIRECT),
        ("an IPv4 header", ipv4, 34, REDIRECT),
    ];
    for (what, frame, length, expected) in table {
        let answer = syscall::run_dry(program.as_fd(), &frame[..length]).unwrap();
        assert_eq!(answer, expected, "{what}");
    }
}
