//! Hundreds of thousands of random or malformed frames: no frame crashes the router, and no packet is
//! unaccounted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_testkit::Random;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, Ipv6Frame, NdFrame, RawFrame, Scenario, station};

const FRAMES: usize = 100_000;

/// Returns valid frames to mutate, one of each kind that the router treats differently.
fn sound_frames() -> Vec<Vec<u8>> {
    let frames: Vec<Box<dyn Frame>> = vec![
        Box::new(Ipv4Frame::udp()),
        Box::new(Ipv4Frame::tcp().tos(0xb8)),
        Box::new(Ipv4Frame::udp().length(1500)),
        Box::new(Ipv4Frame::udp().dst("10.2.0.77")),
        Box::new(Ipv4Frame::udp().dst("198.51.100.1")),
        Box::new(Ipv4Frame::udp().ttl(1)),
        Box::new(Ipv4Frame::udp().payload(b"").pad(60)),
        Box::new(Ipv4Frame::raw(17).offset(1480).more_fragments()),
        Box::new(Ipv4Frame::udp().options(&[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
        Box::new(Ipv4Frame::udp().options(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0])),
        Box::new(Ipv4Frame::udp().options(&[131, 7, 4, 10, 3, 0, 2, 0])),
        Box::new(Ipv4Frame::echo().dst("10.1.0.1")),
        Box::new(Ipv4Frame::icmp(3, 4)),
        Box::new(Ipv4Frame::udp().tag(0x8100, 0)),
        Box::new(Ipv6Frame::udp()),
        Box::new(Ipv6Frame::udp().length(1500)),
        Box::new(Ipv6Frame::udp().hop_limit(1)),
        Box::new(Ipv6Frame::udp().dst("fd00:2::77")),
        Box::new(Ipv6Frame::echo().dst("fd00:1::1")),
        Box::new(Ipv6Frame::udp().extension(0, &[0, 5, 2, 0, 0, 0, 0]).extension(60, &[0, 1, 4, 0, 0, 0, 0])),
        Box::new(
            Ipv6Frame::udp()
                .extension(43, &[2, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
        Box::new(Ipv6Frame::udp().fragment(0, true, 7)),
        Box::new(Ipv6Frame::icmp(1, 0)),
        Box::new(ArpFrame::request("10.1.0.2", "10.1.0.1")),
        Box::new(ArpFrame::reply("10.1.0.9", "10.1.0.1")),
        Box::new(NdFrame::solicitation("fd00:1::2", "fd00:1::1").source_link(station(0xa2))),
        Box::new(
            NdFrame::advertisement("fd00:1::2", "fd00:1::1").dst("fd00:1::1").target_link(station(0xa2)),
        ),
        Box::new(NdFrame::router_solicitation("fe80::2")),
        Box::new(NdFrame::redirect("fe80::2", "fd00:1::1", "fe80::3", "fd00:9::1")),
        Box::new(RawFrame::new(0x88cc, &[0; 46])),
    ];
    frames.iter().map(|frame| frame.bytes()).collect()
}

fn next_frame(random: &mut Random, sound: &[Vec<u8>]) -> Vec<u8> {
    match random.below(20) {
        0 => {
            let length = random.below(1600);
            random.bytes(length)
        }
        // Random bytes after a valid link header.
        1 => {
            let ether_type = *random.pick(&[0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8]);
            let length = random.below(200);
            RawFrame::new(ether_type, &random.bytes(length)).bytes()
        }
        2 => repaired(random, sound),
        _ => {
            let (frame, other) = (random.pick(sound).clone(), random.pick(sound).clone());
            mutate(random, &frame, &other)
        }
    }
}

/// Returns a mutated IPv4 frame with a corrected header checksum, so that other faults cause the drop.
fn repaired(random: &mut Random, sound: &[Vec<u8>]) -> Vec<u8> {
    let (frame, other) = (random.pick(sound).clone(), random.pick(sound).clone());
    let mut frame = mutate(random, &frame, &other);
    if frame.len() >= 34 && frame[12..14] == [8, 0] {
        let end = (14 + usize::from(frame[14] & 15) * 4).clamp(26, frame.len());
        frame[24..26].fill(0);
        let sum = millrace_tests::checksum(&frame[14..end]).to_be_bytes();
        frame[24..26].copy_from_slice(&sum);
    }
    frame
}

/// Returns a frame mutated in one of many ways: bits flipped, bytes overwritten, cut, lengthened, or with its
/// tail replaced by that of `other`.
pub fn mutate(random: &mut Random, frame: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    match random.below(6) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => bytes.extend(random.bytes(64)),
        2 => {
            let at = random.below(bytes.len().min(other.len()) + 1);
            bytes.truncate(at);
            bytes.extend(&other[at..]);
        }
        // The MAC addresses stay, so that the router reads the rest of the frame.
        3 => overwrite(random, &mut bytes, 12),
        4 => flip(random, &mut bytes, 12),
        _ => flip(random, &mut bytes, 0),
    }
    bytes
}

fn overwrite(random: &mut Random, bytes: &mut [u8], from: usize) {
    for _ in 0..=random.below(4) {
        let at = from + random.below((bytes.len() - from).max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = *random.pick(&[0, 1, 4, 5, 0x45, 0x60, 0x7f, 0x80, 0xfe, 0xff]);
        }
    }
}

fn flip(random: &mut Random, bytes: &mut [u8], from: usize) {
    for _ in 0..=random.below(8) {
        let at = from + random.below((bytes.len() - from).max(1));
        let bit = random.below(8);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }
}

#[test]
fn a_hundred_thousand_wrong_frames_neither_crash_the_router_nor_break_conservation() {
    let sound = sound_frames();
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut router = Scenario::standard();
        for number in 0..FRAMES / 4 {
            let frame = next_frame(&mut random, &sound);
            let port = *random.pick(&["a", "a", "a", "b"]);
            let treated = catch_unwind(AssertUnwindSafe(|| router.send(port, &frame)));
            assert!(
                treated.is_ok(),
                "seed {seed}, frame {number} at port {port} crashed the router: {frame:02x?}"
            );
            if number % 100 == 0 {
                router.advance(Duration::from_millis(50));
                router.check_conservation();
                router.take_all();
            }
        }
        let summary = router.router.summary();
        assert_eq!(summary.received, FRAMES as u64 / 4);
        assert!(
            summary.transmitted > 1000,
            "hardly any frame came through, so this tests little: {summary:?}"
        );
        assert!(summary.dropped_by.len() >= 20, "too few reasons to tell: {:?}", summary.dropped_by);
        still_forwards(&mut router);
    }
}

/// Asserts that the router still forwards, and that it holds no packet for ever.
fn still_forwards(router: &mut Scenario) {
    router.advance(Duration::from_secs(60));
    router.take_all();
    assert_eq!(router.router.summary().held, 0);
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
    router.expect_forwarded("a", &Ipv6Frame::udp(), "b");
    router.expect_error4("a", &Ipv4Frame::udp().ttl(1), (11, 0), DropReason::TtlExpired);
}

#[test]
fn sent_packets_are_well_formed_for_any_input() {
    let sound = sound_frames();
    let mut random = Random::new(99);
    let mut router = Scenario::standard();
    for _ in 0..20_000 {
        let frame = next_frame(&mut random, &sound);
        router.send("a", &frame);
        for output in router.take_all().into_values().flatten() {
            assert!(output.from().is_unicast(), "{output:?}");
            match output.ether_type() {
                0x0800 => {
                    assert_eq!(usize::from(output.ipv4().total_len()), output.network().len(), "{output:?}")
                }
                0x86dd => assert_eq!(output.ipv6().total_len(), output.network().len(), "{output:?}"),
                0x0806 => drop(output.arp()),
                other => panic!("sent a frame of type {other:#06x}: {output:?}"),
            }
        }
    }
}
