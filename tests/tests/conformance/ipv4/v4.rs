//! V4: the IPv4 header (RFC 791; RFC 1812, 5.2.2).

use millrace_packet::DropReason;
use millrace_tests::{Frame, Ipv4Frame, RawFrame, Scenario, checksum, station};
use millrace_wire::checksum as ours;

#[test]
fn v4_01_a_packet_shorter_than_a_header_is_dropped_and_counted() {
    let mut router = Scenario::standard();
    for length in 0..20 {
        router.expect_drop("a", &Ipv4Frame::udp().cut(length), DropReason::Ip4Short);
    }
    assert_eq!(router.dropped(DropReason::Ip4Short), 20);
}

#[test]
fn v4_02_a_wrong_header_checksum_is_dropped_and_counted() {
    let mut router = Scenario::standard();
    let bits: Vec<u16> = (0..16).map(|bit| 1 << bit).collect();
    router.expect_drops(&bits, |bits| Ipv4Frame::udp().checksum_xor(bits), DropReason::Ip4Checksum);
    // A packet that would get an ICMP error with a correct checksum is dropped as well.
    router.expect_drop("a", &Ipv4Frame::udp().ttl(1).checksum_xor(1), DropReason::Ip4Checksum);
}

#[test]
fn v4_03_a_version_other_than_4_is_dropped() {
    let mut router = Scenario::standard();
    router.expect_drops(
        &[0, 3, 5, 6, 15],
        |version| Ipv4Frame::udp().version(version),
        DropReason::Ip4Version,
    );
}

#[test]
fn v4_04_a_header_length_below_5_words_is_dropped() {
    let mut router = Scenario::standard();
    router.expect_drops(
        &[0, 1, 2, 3, 4],
        |words| Ipv4Frame::udp().header_words(words),
        DropReason::Ip4HeaderLength,
    );
}

#[test]
fn v4_05_a_total_length_shorter_than_the_header_is_dropped() {
    let mut router = Scenario::standard();
    router.expect_drops(&[0, 19], |length| Ipv4Frame::udp().total_length(length), DropReason::Ip4TotalLength);
    let with_options = Ipv4Frame::udp().options(&[1; 8]).total_length(27);
    router.expect_drop("a", &with_options, DropReason::Ip4TotalLength);
}

#[test]
fn v4_06_a_total_length_beyond_the_frame_is_dropped() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv4Frame::udp().length(400).cut(128), DropReason::Ip4Truncated);
    router.expect_drop("a", &Ipv4Frame::udp().length(400).cut(399), DropReason::Ip4Truncated);
}

#[test]
fn v4_07_a_header_length_beyond_the_frame_is_dropped() {
    let mut router = Scenario::standard();
    let frame = Ipv4Frame::udp().header_words(15).cut(24);
    router.expect_drop("a", &frame.clone().total_length(60), DropReason::Ip4Truncated);
    router.expect_drop("a", &frame.total_length(24), DropReason::Ip4TotalLength);
}

#[test]
fn v4_08_padding_is_cut_off_and_no_old_memory_leaves() {
    let mut router = Scenario::standard();
    // These packets fill the packet memory with a pattern that must not appear again.
    for _ in 0..64 {
        router.expect_forwarded("a", &Ipv4Frame::udp().payload(&[0x55; 1400]), "b");
    }
    for _ in 0..1000 {
        let frame = Ipv4Frame::udp().payload(b"").pad(60);
        let output = router.expect_forwarded("a", &frame, "b");
        assert_eq!(output.ipv4().total_len(), 28);
        assert!(output.bytes[14 + 28..].iter().all(|byte| *byte == 0), "{output:?}");
    }
}

#[test]
fn v4_09_the_incremental_checksum_is_the_full_one() {
    for ttl in [2u8, 64, 255] {
        for high in 0..=u16::MAX {
            // The identification makes the sum of the header's other words take every value.
            let mut header = [0x45, 0, 0, 28, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 1, 0, 2, 10, 9, 0, 1];
            header[4..6].copy_from_slice(&high.to_be_bytes());
            let before = checksum(&header);
            header[8] -= 1;
            let (after, updated) = (checksum(&header), ours::ttl_decremented(before));
            // A header is never all zeros, so a full computation never yields 0xffff.
            assert_eq!(updated, after, "TTL {ttl}, checksum {before:#06x}");
        }
    }
    // The example of RFC 1624, section 4.
    assert_eq!(ours::update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn v4_09_the_checksum_of_forwarded_packets_is_right() {
    let mut router = Scenario::standard();
    for id in (0..=u16::MAX).step_by(65) {
        let ttl = [2, 64, 255][usize::from(id) % 3];
        router.expect_forwarded("a", &Ipv4Frame::udp().id(id).ttl(ttl), "b");
    }
}

#[test]
fn v4_10_a_wrong_transport_checksum_passes_unchanged() {
    let mut router = Scenario::standard();
    router.expect_forwarded("a", &Ipv4Frame::udp().transport_checksum(0xbad0), "b");
    router.expect_forwarded("a", &Ipv4Frame::tcp().transport_checksum(0xbad0), "b");
}

#[test]
fn v4_11_a_udp_checksum_of_zero_stays_zero() {
    let mut router = Scenario::standard();
    let output = router.expect_forwarded("a", &Ipv4Frame::udp().transport_checksum(0), "b");
    assert_eq!(output.network()[26..28], [0, 0]);
}

#[test]
fn v4_12_the_reserved_flag_passes_unchanged() {
    let mut router = Scenario::standard();
    let output = router.expect_forwarded("a", &Ipv4Frame::udp().evil(), "b");
    assert!(output.ipv4().reserved_flag());
}

#[test]
fn v4_13_dscp_and_ecn_pass_unchanged() {
    let mut router = Scenario::standard();
    for tos in 0..=255 {
        let output = router.expect_forwarded("a", &Ipv4Frame::udp().tos(tos), "b");
        assert_eq!(output.ipv4().tos(), tos);
    }
}

#[test]
fn v4_14_identification_and_dont_fragment_pass_unchanged() {
    let mut router = Scenario::standard();
    for id in [0, 1, 0xffff] {
        router.expect_forwarded("a", &Ipv4Frame::udp().id(id), "b");
        router.expect_forwarded("a", &Ipv4Frame::udp().id(id).dont_fragment(), "b");
    }
}

/// Compares bytes written by hand: the received packet and the transmitted one.
#[test]
fn v4_a_forwarded_packet_byte_by_byte() {
    let mut router = Scenario::standard();
    let ip = |ttl: u8, sum: [u8; 2]| {
        let mut packet = vec![0x45, 0xb8, 0x00, 0x1e, 0x00, 0x01, 0x40, 0x00, ttl, 0x11, sum[0], sum[1]];
        packet.extend([0x0a, 0x01, 0x00, 0x02, 0x0a, 0x09, 0x00, 0x01]);
        packet.extend([0x03, 0xe8, 0x07, 0xd0, 0x00, 0x0a, 0x00, 0x00, 0x68, 0x69]);
        packet
    };
    router.send("a", &RawFrame::new(0x0800, &ip(0x40, [0x26, 0x0a])));
    let output = router.only("b");
    let expected = RawFrame::new(0x0800, &ip(0x3f, [0x27, 0x0a])).to(station(0xb2)).from(station(0x0b));
    assert_eq!(output.bytes, expected.bytes());
}
