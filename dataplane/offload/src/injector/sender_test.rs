//! Batches on a veth arrive whole and in order.

use super::BatchSender;
use crate::test_support::{Wire, can_load, frame_to, ip, packet_socket, receive_all};
use crate::{FrameSink, InjectError, OffloadError, OnDeath, PortPrograms};

const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// EtherType for experiments, which the kernel ignores.
const EXPERIMENT: u16 = 0x88b5;

/// Returns the frame numbered `number`, of `length` bytes; all frames differ.
fn frame(number: usize, length: usize) -> Vec<u8> {
    let payload: Vec<u8> = (14..length).map(|at| (number * 31 + at * 7) as u8).collect();
    frame_to(FAR, EXPERIMENT, &payload)
}

/// Creates a veth pair for long frames whose far end accepts redirected frames.
fn wire() -> Wire {
    let wire = Wire::new();
    ip(&format!("-n {} link set port mtu 3400", wire.near));
    ip(&format!("-n {} link set peer mtu 3400", wire.far));
    let gro = ["netns", "exec", &wire.far, "ethtool", "-K", "peer", "gro", "on"];
    assert!(std::process::Command::new("ip").args(gro).status().unwrap().success());
    wire
}

#[test]
fn frames_of_all_lengths_arrive_in_order() {
    if !can_load() {
        return;
    }
    let wire = wire();
    let (port, peer) = (wire.port(), wire.peer());
    let socket = wire.far(|| packet_socket(peer));
    let lengths = (14..BatchSender::LONGEST).step_by(37).chain([BatchSender::LONGEST]);
    let frames: Vec<_> = lengths.enumerate().map(|(number, length)| frame(number, length)).collect();
    let mut sender = wire.near(|| BatchSender::new(port).unwrap());
    for batch in frames.chunks(20) {
        for frame in batch {
            // The frame is given in two pieces, as a packet in several memory frames is.
            let (head, tail) = frame.split_at(frame.len() / 3);
            assert!(sender.put(frame.len(), [head, &[], tail]));
        }
        assert_eq!(sender.len() as usize, batch.len());
        assert_eq!(wire.near(|| sender.send().unwrap()) as usize, batch.len());
        assert!(sender.is_empty());
        let arrived = receive_all(&socket);
        assert!(arrived == batch, "{:?}", arrived.iter().map(Vec::len).collect::<Vec<_>>());
    }
}

#[test]
fn batch_ends_and_loses_no_frame() {
    let Some(wire) = Wire::loadable() else { return };
    let (port, peer) = (wire.port(), wire.peer());
    let sink = wire.far(|| FrameSink::dropping(peer).unwrap());
    let mut sender = wire.near(|| BatchSender::new(port).unwrap());
    let mut sent = 0;
    for length in [60, 1514] {
        for _ in 0..50 {
            let batch = (0..).take_while(|number| sender.put(length, [&*frame(*number, length)])).count();
            assert_eq!(batch, if length == 60 { 256 } else { 0x40000_usize.div_ceil(1528) });
            assert_eq!(wire.near(|| sender.send().unwrap()) as usize, batch);
            sent += batch as u64;
        }
    }
    assert_eq!(wire.near(|| sender.send().unwrap()), 0, "nothing is left");
    assert_eq!(sink.dropped().unwrap().packets, sent);
}

/// Returns the number of frames that the kernel counts as dropped by `port`, in the calling thread's
/// namespace.
fn dropped_by_device() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("port:")).unwrap();
    line.split_ascii_whitespace().nth(11).unwrap().parse().unwrap()
}

/// Sends a batch with one frame that is too long for the far end. The frames after it are lost, too. So flows
/// to a veth whose far end has a smaller MTU must not use the flow cache.
#[test]
fn frame_too_long_for_the_far_end_loses_the_frames_behind_it() {
    if !can_load() {
        return;
    }
    let wire = wire();
    ip(&format!("-n {} link set peer mtu 1000", wire.far));
    let (port, peer) = (wire.port(), wire.peer());
    let socket = wire.far(|| packet_socket(peer));
    let mut sender = wire.near(|| BatchSender::new(port).unwrap());
    let before = wire.near(dropped_by_device);
    // The kernel gives a device 16 redirected frames at a time. The device accepts frames up to 18 bytes
    // longer than the MTU.
    let length = |number| if number == 4 { 1019 } else { 1018 };
    let frames: Vec<_> = (0..32).map(|number| frame(number, length(number))).collect();
    frames.iter().for_each(|frame| assert!(sender.put(frame.len(), [&**frame])));
    assert_eq!(wire.near(|| sender.send().unwrap()), 32);
    let arrived = receive_all(&socket);
    let expected: Vec<_> = frames[..4].iter().chain(&frames[16..]).cloned().collect();
    assert!(arrived == expected, "{} frames arrived", arrived.len());
    assert_eq!(wire.near(dropped_by_device) - before, 12, "the device counts what was lost");
    let longest = || {
        let programs = PortPrograms::attach_tcx(port, OnDeath::Kernel).unwrap();
        programs.longest_at_far_end()
    };
    assert_eq!(wire.near(longest), Some(1004));
}

#[test]
fn invalid_frames_are_refused() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    let mut sender = wire.near(|| BatchSender::new(port).unwrap());
    assert!(!sender.put(13, [&[0; 13][..]]));
    assert!(!sender.put(BatchSender::LONGEST + 1, [&[0; BatchSender::LONGEST + 1][..]]));
    assert!(sender.is_empty());
    assert!(matches!(wire.near(|| BatchSender::new(9999)), Err(OffloadError::Map { map: "send_to", .. })));
    assert!(sender.put(60, [&*frame(0, 60)]));
    ip(&format!("-n {} link del port", wire.near));
    assert!(matches!(wire.near(|| sender.send()), Err(InjectError::DeviceGone { .. })));
}
