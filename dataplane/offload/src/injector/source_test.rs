//! Traffic generator on a veth: number and contents of the frames that arrive.

use std::time::Duration;

use super::{Flows, FrameSink, FrameSource};
use crate::classifier::dry_runs::ones_complement;
use crate::test_support::{
    Wire, can_load, frame_to, ipv4_packet, ipv6_packet, now, packet_socket, receive_all,
};
use crate::{InjectError, OnDeath};

const PORT: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Returns the one's complement sum of a UDP packet with its pseudo-header: 0xffff if the checksum is
/// correct.
fn udp_sum(frame: &[u8]) -> u16 {
    let (addresses, udp) =
        if frame[12] == 8 { (&frame[26..34], &frame[34..]) } else { (&frame[22..54], &frame[54..]) };
    let length = (udp.len() as u16).to_be_bytes();
    ones_complement(&[addresses, &[0, 17], &length, udp].concat())
}

#[test]
fn every_frame_arrives_at_a_port_with_a_program() {
    let Some(wire) = Wire::loadable() else { return };
    let peer = wire.peer();
    let mut programs = wire.attach_native(OnDeath::Drop);
    programs.set_own_mac(PORT).unwrap();
    let frame = frame_to(PORT, 0x0800, &ipv4_packet("10.0.0.2", "198.51.100.1", 18));
    wire.far(|| {
        let mut source = FrameSource::new(&[&frame], Flows { ports: 64, ..Flows::default() }).unwrap();
        let start = now();
        for (count, batch) in [(1, 1), (50, 7), (64, 64), (200, 256)].into_iter().cycle().take(400) {
            assert_eq!(source.send(peer, count, batch).unwrap(), u64::from(count));
            // A veth's ring has room for 256 frames, and its receiver may lag behind.
            while programs.counters().unwrap().fallback.dropped < source.sent() {
                assert!(
                    start.elapsed() < Duration::from_secs(20),
                    "{:?} of {}",
                    programs.counters(),
                    source.sent()
                );
                std::thread::yield_now();
            }
        }
        println!("{} frames: {:?} each", source.sent(), start.elapsed() / source.sent() as u32);
        assert_eq!(source.sent(), 31_500);
        assert!(matches!(
            source.send(9999, 1, 1),
            Err(InjectError::Kernel(_) | InjectError::DeviceGone { .. })
        ));
    });
    let counted = programs.counters().unwrap();
    assert_eq!((counted.seen, counted.fallback.dropped), (31_500 + counted.passed(), 31_500));
}

#[test]
fn a_sink_takes_and_counts_all_that_arrives_and_ends() {
    let Some(wire) = Wire::loadable() else { return };
    let (port, peer) = (wire.port(), wire.peer());
    let frame = frame_to(PORT, 0x0800, &ipv4_packet("10.0.0.2", "198.51.100.1", 18));
    let sink = wire.near(|| FrameSink::dropping(port).unwrap());
    assert!(wire.near(|| FrameSink::dropping(port)).is_err(), "one program at a device");
    let before = sink.dropped().unwrap();
    wire.far(|| {
        assert_eq!(FrameSource::new(&[&frame], Flows::default()).unwrap().send(peer, 640, 64).unwrap(), 640)
    });
    let dropped = sink.dropped().unwrap();
    assert!(dropped.packets - before.packets >= 640, "{before:?} {dropped:?}");
    drop(sink);
    assert!(wire.near(|| FrameSink::dropping(port)).is_ok());
}

#[test]
fn flows_vary_and_their_checksums_are_right() {
    let Some(wire) = Wire::loadable() else { return };
    let (port, peer) = (wire.port(), wire.peer());
    let v4 = frame_to(PORT, 0x0800, &ipv4_packet("192.0.2.254", "198.51.100.1", 40));
    let v6 = frame_to(PORT, 0x86dd, &ipv6_packet("2001:db8::ffff", "2001:db8::2", 40));
    let flows = Flows { addresses: 4, ports: 3, sequence: true, timestamp: true };
    // Without an XDP program at the receiver, the veth loses redirected frames.
    let _programs = wire.attach_native(OnDeath::Kernel);
    let socket = wire.near(|| packet_socket(port));
    wire.far(|| assert_eq!(FrameSource::new(&[&v4, &v6], flows).unwrap().send(peer, 48, 16).unwrap(), 48));
    let frames: Vec<_> = receive_all(&socket).into_iter().filter(|frame| frame.len() > 80).collect();
    assert_eq!(frames.len(), 48);
    let mut seen = std::collections::HashSet::new();
    for (number, frame) in frames.iter().enumerate() {
        let v4 = number % 2 == 0;
        let (address, transport) = if v4 { (&frame[26..30], 34) } else { (&frame[34..38], 54) };
        assert_eq!(udp_sum(frame), 0xffff, "frame {number}");
        assert!(!v4 || ones_complement(&frame[14..34]) == 0xffff, "IPv4 header of frame {number}");
        assert_eq!(frame[transport + 8..transport + 16], (number as u64).to_be_bytes());
        assert_ne!(frame[transport + 16..transport + 24], [0; 8]);
        seen.insert((address.to_vec(), frame[transport..transport + 2].to_vec()));
    }
    // Each template is used for every second frame, so it gets half of the four addresses, with all three
    // ports.
    assert_eq!(seen.len(), 12);
}

#[test]
fn templates_are_between_one_and_256() {
    if !can_load() {
        return;
    }
    let frame = [0_u8; 60];
    assert!(matches!(
        FrameSource::new(&[], Flows::default()),
        Err(InjectError::Templates { count: 0, max: 256 })
    ));
    let many = vec![&frame[..]; 257];
    assert!(matches!(
        FrameSource::new(&many, Flows::default()),
        Err(InjectError::Templates { count: 257, max: 256 })
    ));
}
