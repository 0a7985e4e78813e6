//! The program redirects host output while a reader exists, and never the router's own output.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use crate::HostCatch;
use crate::bpf::{object, syscall};
use crate::host_output::write_catcher;
use crate::test_support::{
    Wire, can_load, frame_to, ip, ipv4_packet, ipv6_packet, packet_socket, receive_all,
};

/// Creates a TAP device without a reader.
fn make_tap(wire: &Wire) -> u32 {
    ip(&format!("-n {} tuntap add catcher mode tap", wire.near));
    ip(&format!("-n {} link set catcher up", wire.near));
    wire.near(|| nix::net::if_::if_nametoindex("catcher").unwrap())
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
    let catch = wire.near(|| HostCatch::attach(port, catcher, &[0, 1, 2]).unwrap());
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
    write_catcher(&mut object, LOOPBACK).unwrap();
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
