//! FR and JU: fragments, and packets of several buffers (RFC 791, 3.2; RFC 1191; RFC 1812, 4.2.2.7 and 5.2.6).

use std::net::Ipv4Addr;

use millrace_packet::DropReason;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, Output, Scenario, station};

/// Ports that take jumbo frames.
fn jumbo() -> Scenario {
    Scenario::with_mtu(&[("a", 65_535), ("b", 65_535)])
}

/// Puts fragments together, and holds each against the packet that they were made from: the slow, obvious way.
fn reassemble(fragments: &[Output], original: &[u8], mtu: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let packet = fragment.ipv4();
        let last = index + 1 == fragments.len();
        assert!(usize::from(packet.total_len()) <= mtu, "{fragment:?} is longer than {mtu}");
        assert_eq!(usize::from(packet.total_len()), fragment.network().len(), "{fragment:?}");
        assert_eq!(packet.more_fragments(), !last, "fragment {index} of {}", fragments.len());
        assert_eq!(usize::from(packet.fragment_offset()), payload.len(), "{fragment:?}");
        assert!(last || packet.payload().len() % 8 == 0, "{fragment:?}");
        assert_eq!((fragment.to(), fragment.from()), (station(0xb2), station(0x0b)));
        // TOS, identification, protocol, addresses.
        let header = packet.header();
        assert_eq!(header[1], original[1]);
        assert_eq!(header[4..6], original[4..6]);
        assert_eq!((header[8], header[9]), (original[8] - 1, original[9]));
        assert_eq!(header[12..20], original[12..20]);
        payload.extend(packet.payload());
    }
    payload
}

#[test]
fn fr_01_fragments_fit_and_make_the_packet_again() {
    let mut router = jumbo();
    for mtu in [1500u16, 68, 576, 1006, 69, 1499] {
        router.router.set_mtu("b", mtu);
        for length in [usize::from(mtu) + 1, 4000, 9000] {
            let frame = Ipv4Frame::udp().length(length).tos(0x28);
            router.send("a", &frame);
            let fragments = router.take("b");
            assert!(fragments.len() > 1);
            let original = frame.packet();
            assert_eq!(
                reassemble(&fragments, &original, mtu.into()),
                original[20..],
                "{length} bytes at MTU {mtu}"
            );
        }
    }
    router.nothing();
}

#[test]
fn fr_01_each_fragment_but_the_last_is_as_long_as_it_may_be() {
    let mut router = jumbo();
    router.router.set_mtu("b", 1500);
    router.send("a", &Ipv4Frame::udp().length(4000));
    let lengths: Vec<u16> = router.take("b").iter().map(|fragment| fragment.ipv4().total_len()).collect();
    assert_eq!(lengths, [1500, 1500, 1040]);
    let summary = router.router.summary();
    assert_eq!(
        (summary.received, summary.created, summary.transmitted),
        (1, 2 + announcements(), 3 + announcements())
    );
}

/// What the ports of the standard scenario send when they come up: one message for each address.
fn announcements() -> u64 {
    Scenario::standard().router.summary().transmitted
}

#[test]
fn fr_02_a_middle_fragment_stays_in_the_middle() {
    let mut router = jumbo();
    router.router.set_mtu("b", 576);
    let frame = Ipv4Frame::raw(17).length(1500).offset(2960).more_fragments();
    router.send("a", &frame);
    let fragments = router.take("b");
    let mut next = 2960;
    for fragment in &fragments {
        let packet = fragment.ipv4();
        assert!(packet.more_fragments(), "{fragment:?}");
        assert_eq!(packet.fragment_offset(), next);
        next += packet.payload().len() as u16;
    }
    assert_eq!(next, 2960 + 1480);
}

#[test]
fn fr_02_a_last_fragment_ends_with_a_last_fragment() {
    let mut router = jumbo();
    router.router.set_mtu("b", 576);
    let frame = Ipv4Frame::raw(17).length(1501).offset(4440);
    router.send("a", &frame);
    let fragments = router.take("b");
    let more: Vec<bool> = fragments.iter().map(|fragment| fragment.ipv4().more_fragments()).collect();
    assert_eq!(more, [true, true, false]);
    let offsets: Vec<u16> = fragments.iter().map(|fragment| fragment.ipv4().fragment_offset()).collect();
    assert_eq!(offsets, [4440, 4440 + 552, 4440 + 1104]);
    let payload: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.ipv4().payload().to_vec()).collect();
    assert_eq!(payload, frame.packet()[20..]);
}

#[test]
fn fr_03_later_fragments_have_only_the_options_that_are_to_be_copied() {
    let mut router = jumbo();
    router.router.set_mtu("b", 576);
    // Record route (not copied), no operation, an unknown one that is copied, an unknown one that is not.
    let options = [7, 7, 4, 0, 0, 0, 0, 1, 0x9e, 4, 0xaa, 0xbb, 0x1e, 4, 0xcc, 0xdd];
    let frame = Ipv4Frame::udp().options(&options).length(1500);
    router.send("a", &frame);
    let fragments = router.take("b");
    assert_eq!(fragments.len(), 3);
    for (index, fragment) in fragments.iter().enumerate() {
        let packet = fragment.ipv4();
        let expected: &[u8] = if index == 0 { &options } else { &[0x9e, 4, 0xaa, 0xbb] };
        assert_eq!(&packet.header()[20..], expected, "fragment {index}");
        assert!(packet.total_len() <= 576);
    }
    let payload: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.ipv4().payload().to_vec()).collect();
    assert_eq!(payload, frame.packet()[36..]);
}

#[test]
fn fr_04_a_packet_not_to_be_fragmented_is_answered_with_the_mtu() {
    let mut router = jumbo();
    router.router.set_mtu("b", 1500);
    for length in [1501, 4000, 9000] {
        let frame = Ipv4Frame::udp().length(length).dont_fragment();
        let error = router.expect_error4("a", &frame, (3, 4), DropReason::TooBig);
        assert_eq!(error.rest, [0, 0, 0x05, 0xdc]);
    }
    router.expect_forwarded("a", &Ipv4Frame::udp().length(1500).dont_fragment(), "b");
}

#[test]
fn fr_05_fragments_in_transit_are_forwarded_at_once_in_any_order() {
    let mut router = Scenario::standard();
    let fragment = |offset: u16| Ipv4Frame::raw(17).length(1500).offset(offset);
    router.expect_forwarded("a", &fragment(2960), "b");
    router.expect_forwarded("a", &fragment(1480).more_fragments(), "b");
    router.expect_forwarded("a", &fragment(0).more_fragments(), "b");
    // Nothing is kept of them.
    assert_eq!(router.router.summary().held, 0);
}

#[test]
fn fr_12_a_changed_mtu_holds_from_the_next_packet_on() {
    let mut router = Scenario::standard();
    let frame = |length| Ipv4Frame::udp().length(length).dont_fragment();
    for _ in 0..3 {
        router.expect_forwarded("a", &frame(1500), "b");
        router.router.set_mtu("b", 1400);
        for length in [1401, 1500] {
            let error = router.expect_error4("a", &frame(length), (3, 4), DropReason::TooBig);
            assert_eq!(error.rest, [0, 0, 0x05, 0x78]);
        }
        router.expect_forwarded("a", &frame(1400), "b");
        router.send("a", &Ipv4Frame::udp().length(1500));
        let lengths: Vec<u16> = router.take("b").iter().map(|fragment| fragment.ipv4().total_len()).collect();
        assert_eq!(lengths, [1396, 124]);
        router.router.set_mtu("b", 1500);
    }
}

#[test]
fn fr_12_a_changed_mtu_holds_for_packets_that_wait_for_a_neighbour() {
    let mut router = Scenario::standard();
    let frame = Ipv4Frame::udp().dst("10.2.0.77").length(1500).dont_fragment();
    router.send("a", &frame);
    assert_eq!(router.only("b").arp().target_ip, Ipv4Addr::from([10, 2, 0, 77]));
    router.router.set_mtu("b", 1400);
    router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)).sender(station(0x77)));
    let output = router.only("a");
    let error = router.check_error4("a", &frame, &output, (3, 4));
    assert_eq!(error.rest, [0, 0, 0x05, 0x78]);
    assert_eq!(router.dropped(DropReason::TooBig), 1);
}

#[test]
fn ju_01_jumbo_packets_pass_intact() {
    let mut router = jumbo();
    for length in [1500, 1501, 2000, 2048, 2049, 4095, 4096, 4097, 9000, 16_000, 65_535] {
        router.expect_forwarded("a", &Ipv4Frame::udp().length(length).dont_fragment(), "b");
        router.expect_forwarded("a", &millrace_tests::Ipv6Frame::udp().length(length), "b");
    }
}

#[test]
fn ju_01_jumbo_packets_to_a_small_mtu_are_fragmented_or_answered() {
    let mut router = Scenario::with_mtu(&[("a", 9000)]);
    let frame = Ipv4Frame::udp().length(9000);
    router.send("a", &frame);
    let fragments = router.take("b");
    assert_eq!(fragments.len(), 7);
    assert_eq!(reassemble(&fragments, &frame.packet(), 1500), frame.packet()[20..]);
    let error = router.expect_error4("a", &frame.dont_fragment(), (3, 4), DropReason::TooBig);
    assert_eq!(error.rest, [0, 0, 0x05, 0xdc]);
}

/// What the kernel's offloads do to frames is undone below the router, in the ports; whatever slips through is refused.
#[test]
fn ju_02_a_frame_longer_than_the_mtu_is_refused_and_counted() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv4Frame::tcp().length(65_535), DropReason::LinkOversize);
    router.expect_drop("a", &Ipv4Frame::tcp().length(1501), DropReason::LinkOversize);
    // BIG TCP: the length does not fit its field.
    let big = Ipv4Frame::tcp().total_length(0).payload(&[0; 100]);
    router.expect_drop("a", &big, DropReason::Ip4TotalLength);
    assert_eq!(big.bytes()[16..18], [0, 0]);
}
