//! ET: link headers and VLAN tags (IEEE 802.3, 802.1Q).

use millrace_packet::DropReason;
use millrace_tests::{ArpFrame, Ipv4Frame, Ipv6Frame, RawFrame, Scenario, station};
use millrace_wire::MacAddr;

/// Returns a router with ports `t` (untagged) and `v` (VLAN 10) of one device, and `b` of the standard
/// scenario.
fn trunk() -> Scenario {
    Scenario::with(
        r#"
        [[port]]
        name = "t"
        device = "trunk"

        [[port]]
        name = "v"
        device = "trunk"
        vlan = 10
        mac = "02:00:00:00:00:1a"
        address = ["10.10.0.1/24"]

        [[neighbour]]
        port = "v"
        address = "10.10.0.2"
        mac = "02:00:00:00:00:a2"
        "#,
    )
}

fn tagged(control: u16) -> Ipv4Frame {
    Ipv4Frame::udp().src("10.10.0.2").to(station(0x1a)).tag(0x8100, control)
}

#[test]
fn et_01_a_tagged_frame_reaches_its_sub_interface_and_is_routed() {
    let mut router = trunk();
    router.send("t", &tagged(10));
    assert!(router.only("b").tags().is_empty());
    // Priority and drop eligibility are not part of the VLAN number.
    router.send("t", &tagged(0xf00a));
    router.only("b");
    assert_eq!(router.router.drops("v").len(), 0);
}

#[test]
fn et_01_a_packet_that_leaves_by_a_sub_interface_is_tagged() {
    let mut router = trunk();
    router.send("a", &Ipv4Frame::udp().dst("10.10.0.2"));
    let output = router.only("t");
    assert_eq!(output.tags(), [0x81, 0x00, 0x00, 0x0a]);
    assert_eq!((output.to(), output.from()), (station(0xa2), station(0x1a)));
    assert_eq!(output.ipv4().ttl(), 63);
}

#[test]
fn et_01_a_sub_interface_has_arp_of_its_own() {
    let mut router = trunk();
    router.send("t", &ArpFrame::request("10.10.0.2", "10.10.0.1").tag(0x8100, 10));
    let output = router.only("t");
    assert_eq!(output.tags(), [0x81, 0x00, 0x00, 0x0a]);
    assert_eq!(output.arp().sender_mac, station(0x1a));
    // An untagged request gets no answer: the address is on another link.
    router.send("t", &ArpFrame::request("10.10.0.2", "10.10.0.1"));
    router.nothing();
}

#[test]
fn et_01_an_unknown_vlan_is_dropped_and_counted() {
    let mut router = trunk();
    for id in [1, 9, 11, 4094] {
        let before = router.dropped(DropReason::VlanUnknown);
        router.send("t", &tagged(id));
        router.nothing();
        assert_eq!(router.dropped(DropReason::VlanUnknown), before + 1);
    }
    // Two tags don't match a sub-interface with one tag.
    router.send("t", &Ipv4Frame::udp().to(station(0x1a)).tag(0x88a8, 10).tag(0x8100, 10));
    router.nothing();
    // A port without sub-interfaces accepts no VLAN-tagged frame.
    router.send("a", &Ipv4Frame::udp().tag(0x8100, 10));
    router.nothing();
    assert_eq!(router.dropped(DropReason::VlanUnknown), 6);
}

#[test]
fn et_01_an_untagged_frame_does_not_reach_a_sub_interface() {
    let mut router = trunk();
    router.send("t", &Ipv4Frame::udp().src("10.10.0.2").to(station(0x1a)));
    router.nothing();
    assert!(router.router.drops("v").is_empty());
}

#[test]
fn et_02_a_priority_tag_is_as_good_as_none() {
    let mut router = Scenario::standard();
    for control in [0, 0xe000, 0x6000] {
        let output = router.expect_forwarded("a", &Ipv4Frame::udp().tag(0x8100, control), "b");
        assert!(output.tags().is_empty());
        router.expect_forwarded("a", &Ipv6Frame::udp().tag(0x8100, control), "b");
    }
    // The router also ignores a priority tag before the tag of a VLAN.
    let mut router = trunk();
    let frame = Ipv4Frame::udp().src("10.10.0.2").to(station(0x1a)).tag(0x8100, 0xe000).tag(0x8100, 10);
    router.send("t", &frame);
    router.only("b");
}

#[test]
fn et_02_the_reserved_vlan_is_dropped() {
    let mut router = trunk();
    for port in ["a", "t"] {
        router.send(port, &Ipv4Frame::udp().tag(0x8100, 4095));
        router.nothing();
    }
    assert_eq!(router.dropped(DropReason::VlanUnknown), 2);
}

/// Returns a router with ports `t` (untagged) and `q` (VLAN 10 in service VLAN 100) of one device, and `b` of
/// the standard scenario.
fn double_trunk() -> Scenario {
    Scenario::with(
        r#"
        [[port]]
        name = "t"
        device = "trunk"

        [[port]]
        name = "q"
        device = "trunk"
        vlan = [100, 10]
        mac = "02:00:00:00:00:1b"
        address = ["10.20.0.1/24"]

        [[neighbour]]
        port = "q"
        address = "10.20.0.2"
        mac = "02:00:00:00:00:b2"
        "#,
    )
}

const DOUBLE: [u8; 8] = [0x88, 0xa8, 0x00, 0x64, 0x81, 0x00, 0x00, 0x0a];

#[test]
fn et_03_a_frame_with_two_tags_reaches_its_sub_interface_and_is_routed() {
    let mut router = double_trunk();
    let frame = || Ipv4Frame::udp().src("10.20.0.2").to(station(0x1b));
    router.send("t", &frame().tag(0x88a8, 100).tag(0x8100, 10));
    assert!(router.only("b").tags().is_empty());
    // Priorities and drop eligibility are not part of the VLAN numbers.
    router.send("t", &frame().tag(0x88a8, 0xf064).tag(0x8100, 0x300a));
    router.only("b");
    let others: [&[(u16, u16)]; 5] = [
        &[(0x8100, 10)],
        &[(0x88a8, 100)],
        &[(0x88a8, 10), (0x8100, 100)],
        &[(0x8100, 100), (0x8100, 10)],
        &[(0x88a8, 100), (0x8100, 11)],
    ];
    for (number, tags) in (1..).zip(others) {
        let tagged = tags.iter().fold(frame(), |frame, (kind, id)| frame.tag(*kind, *id));
        router.send("t", &tagged);
        router.nothing();
        assert_eq!(router.dropped(DropReason::VlanUnknown), number, "{tags:x?}");
    }
}

#[test]
fn et_03_a_packet_that_leaves_by_a_sub_interface_of_two_tags_has_both() {
    let mut router = double_trunk();
    router.send("a", &Ipv4Frame::udp().dst("10.20.0.2"));
    let output = router.only("t");
    assert_eq!(output.tags(), DOUBLE);
    assert_eq!((output.to(), output.from()), (station(0xb2), station(0x1b)));
    router.send("t", &ArpFrame::request("10.20.0.2", "10.20.0.1").tag(0x88a8, 100).tag(0x8100, 10));
    let output = router.only("t");
    assert_eq!(output.tags(), DOUBLE);
    assert_eq!(output.arp().sender_mac, station(0x1b));
}

#[test]
fn et_05_frames_of_the_link_itself_are_never_routed() {
    let mut router = Scenario::standard();
    let packet = Ipv4Frame::udp().packet();
    // Lengths (LLC), which are no EtherTypes; pause; slow protocols; LLDP.
    for ether_type in [0, 46, 1500, 1535, 0x8808, 0x8809, 0x88cc] {
        for last in 0..=0x0f {
            let frame = RawFrame::new(ether_type, &packet).to(MacAddr([0x01, 0x80, 0xc2, 0, 0, last]));
            router.expect_drop("a", &frame, DropReason::EtherType);
        }
        router.expect_drop("a", &RawFrame::new(ether_type, &packet), DropReason::EtherType);
    }
    for last in 0..=0x0f {
        let frame = Ipv4Frame::udp().to(MacAddr([0x01, 0x80, 0xc2, 0, 0, last]));
        router.expect_drop("a", &frame, DropReason::LinkBroadcast);
    }
}

#[test]
fn et_05_a_source_that_is_no_station_is_dropped() {
    let mut router = Scenario::standard();
    for from in [MacAddr::ZERO, MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        router.expect_drop("a", &Ipv4Frame::udp().from(from), DropReason::LinkSource);
        router.expect_drop(
            "a",
            &ArpFrame::request("10.1.0.2", "10.1.0.1").from(from),
            DropReason::LinkSource,
        );
    }
}

#[test]
fn et_06_frames_cut_short_are_dropped() {
    let mut router = Scenario::standard();
    let whole = RawFrame::new(0x0800, &[]);
    let frame = millrace_tests::Frame::bytes(&whole);
    for length in 0..14 {
        router.expect_drop("a", &&frame[..length], DropReason::LinkShort);
    }
    router.expect_drop("a", &whole, DropReason::Ip4Short);
    router.expect_drop("a", &RawFrame::new(0x86dd, &[]), DropReason::Ip6Short);
    router.expect_drop("a", &RawFrame::new(0x0806, &[]), DropReason::NeighbourMessage);
    // Frames cut inside a tag, and inside the second of two tags.
    let tag = millrace_tests::Frame::bytes(&Ipv4Frame::udp().tag(0x88a8, 0).tag(0x8100, 0));
    for length in [14, 15, 16, 17, 18, 19, 20, 21] {
        router.expect_drop("a", &&tag[..length], DropReason::LinkShort);
    }
    router.expect_drop("a", &&tag[..22], DropReason::Ip4Short);
}

#[test]
fn et_06_frames_longer_than_the_mtu_are_counted_as_such() {
    let mut router = Scenario::standard();
    router.expect_forwarded("a", &Ipv4Frame::udp().length(46), "b");
    router.expect_drop("a", &Ipv4Frame::udp().length(9000), DropReason::LinkOversize);
    router.expect_drop("a", &Ipv4Frame::udp().length(65_535), DropReason::LinkOversize);
    router.expect_drop("a", &RawFrame::new(0x1234, &[0; 65_535]), DropReason::EtherType);
}

/// Sends tagged frames of the largest size: the MTU limits the packet without its tags.
#[test]
fn et_06_a_tag_does_not_count() {
    let mut router = trunk();
    router.send("t", &tagged(10).length(1500));
    router.only("b");
    router.send("a", &Ipv4Frame::udp().dst("10.10.0.2").length(1500).dont_fragment());
    assert_eq!(router.only("t").bytes.len(), 1518);
}
