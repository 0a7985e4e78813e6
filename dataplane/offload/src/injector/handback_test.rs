//! Punts of frames to the kernel on a veth, with each attachment of a port's programs.

use std::net::UdpSocket;
use std::time::Duration;

use super::KernelHandback;
use crate::test_support::{Wire, frame_to, ipv4_packet, now};
use crate::{InjectError, Mode, OnDeath, PortPrograms};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Returns the lengths of the packets received within 300 ms.
fn lengths(socket: &UdpSocket) -> Vec<usize> {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut buffer = [0; 4096];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).collect()
}

/// Runs a test inside the router's namespace, with the port's index and a socket of the kernel.
fn with_handback(test: impl FnOnce(u32, UdpSocket, KernelHandback) + Send) {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    wire.near(|| test(port, UdpSocket::bind("10.0.0.1:9").unwrap(), KernelHandback::new().unwrap()));
}

fn to_self(payload: usize) -> Vec<u8> {
    frame_to(OWN, 0x0800, &ipv4_packet("10.0.0.2", "10.0.0.1", payload))
}

#[test]
fn kernel_receives_punted_packets() {
    with_handback(|port, socket, mut handback| {
        let frames: Vec<_> = [10, 1400, 1, 700].map(to_self).into();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        assert_eq!(handback.hand_back_batch(port, &frames).unwrap(), 4);
        assert_eq!(lengths(&socket), [10, 1400, 1, 700]);
        handback.hand_back(port, frames[1]).unwrap();
        assert_eq!(lengths(&socket), [1400]);
    });
}

#[test]
fn the_longest_frame_passes_and_one_byte_more_is_an_error() {
    with_handback(|port, socket, mut handback| {
        let longest = to_self(super::live_run::MAX_FRAME - 42);
        handback.hand_back(port, &longest).unwrap();
        assert_eq!(lengths(&socket), [super::live_run::MAX_FRAME - 42]);
        let too_long = to_self(super::live_run::MAX_FRAME - 41);
        assert!(matches!(handback.hand_back(port, &too_long), Err(InjectError::TooLong { .. })));
        assert!(matches!(handback.hand_back(port, &[0; 13]), Err(InjectError::TooShort { length: 13 })));
        assert!(matches!(handback.hand_back(9999, &longest), Err(InjectError::DeviceGone { ifindex: 9999 })));
    });
}

#[test]
fn frames_of_invalid_length_do_not_block_the_other_frames_of_a_batch() {
    with_handback(|port, socket, mut handback| {
        let (first, last) = (to_self(10), to_self(20));
        let frames: [&[u8]; 5] = [&first, &[0; 13], &[], &[0; 4000], &last];
        assert_eq!(handback.hand_back_batch(port, &frames).unwrap(), 2);
        assert_eq!(lengths(&socket), [10, 20]);
    });
}

#[test]
fn a_run_of_a_program_attached_to_no_port_is_fast() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    let fastest = wire.near(|| {
        let mut handback = KernelHandback::new().unwrap();
        let frame = to_self(10);
        let runs = (0..20).map(|_| {
            let start = now();
            // A run of a single frame needs no entry in the kernel's dispatcher.
            handback.hand_back_batch(port, &[&frame, &frame]).unwrap();
            start.elapsed()
        });
        runs.min().unwrap()
    });
    println!("two frames: {fastest:?}");
    assert!(fastest < Duration::from_millis(3), "{fastest:?}: the program left the dispatcher");
}

/// Punts transit frames to the kernel. The port's program would send such frames to user space, so only
/// frames that it recognises as punted reach the kernel.
fn transit_frames_reach_the_kernel(attach: fn(u32) -> PortPrograms) {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    wire.near(|| {
        let mut programs = attach(port);
        programs.set_own_mac(OWN).unwrap();
        // The address is not among the configured local addresses: transit for the program, but local for the
        // kernel.
        let socket = UdpSocket::bind("10.0.0.1:9").unwrap();
        let mut handback = KernelHandback::through(&mut programs).unwrap();
        let frame = to_self(10);
        // Each frame takes a page; more than 40 frames would not fit the socket's buffer.
        let frames = [frame.as_slice(); 40];
        let before = programs.counters().unwrap();
        assert_eq!(handback.hand_back_batch(port, &frames).unwrap(), 40);
        assert_eq!(lengths(&socket).len(), 40);
        let after = programs.counters().unwrap();
        assert_eq!((after.seen - before.seen, after.handed_back), (0, 40));
        programs.detach().unwrap();
    });
}

#[test]
fn generic_port_passes_its_own_punted_packets() {
    transit_frames_reach_the_kernel(|port| {
        PortPrograms::attach_xdp(port, Mode::Generic, false, OnDeath::Drop).unwrap()
    });
}

#[test]
fn tcx_port_passes_its_own_punted_packets() {
    transit_frames_reach_the_kernel(|port| PortPrograms::attach_tcx(port, OnDeath::Kernel).unwrap());
}
