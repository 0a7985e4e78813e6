//! What the kernel sends is caught while there is somebody to read it, and what the router sends is not.

use std::net::UdpSocket;

use crate::HostCatch;
use crate::test_support::{Wire, can_load, ip, packet_socket, receive_all};

/// A TAP device that stays without anybody who reads it.
fn make_tap(wire: &Wire) -> u32 {
    ip(&format!("-n {} tuntap add catcher mode tap", wire.near));
    ip(&format!("-n {} link set catcher up", wire.near));
    wire.near(|| nix::net::if_::if_nametoindex("catcher").unwrap())
}

#[test]
fn the_kernels_packets_are_caught_while_the_catcher_is_there() {
    if !can_load() {
        return;
    }
    let wire = Wire::new();
    let (port, peer) = (wire.port(), wire.peer());
    let catcher = make_tap(&wire);
    let arrived = |text: &[u8]| {
        let socket = wire.far(|| packet_socket(peer));
        wire.near(|| {
            let socket = UdpSocket::bind("10.0.0.1:4000").unwrap();
            // An error would make a program believe that the network is full.
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
