//! SE: attacks.

use millrace_packet::DropReason;
use millrace_tests::{ArpFrame, Ipv4Frame, Ipv6Frame, RawFrame, Scenario};

/// Sends packets inside packets to the router, which must not decapsulate and forward them (CVE-2020-10136).
#[test]
fn se_03_unconfigured_tunnels_are_not_decapsulated() {
    let mut router = Scenario::standard();
    let inner4 = Ipv4Frame::udp().packet();
    let inner6 = Ipv6Frame::udp().packet();
    let gre = [&[0, 0, 8, 0][..], &inner4].concat();
    let vxlan =
        [&[0x08, 0, 0, 0, 0, 0, 42, 0][..], &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &inner4].concat();
    for (protocol, inner) in [(4, &inner4), (41, &inner6), (47, &gre)] {
        let frame = Ipv4Frame::raw(protocol).dst("10.1.0.1").payload(inner);
        router.expect_error4("a", &frame, (3, 2), DropReason::LocalUnknown);
    }
    let frame = Ipv4Frame::udp().ports(4789, 4789).dst("10.1.0.1").payload(&vxlan);
    router.expect_error4("a", &frame, (3, 3), DropReason::LocalUnknown);
    let frame = Ipv6Frame::raw(41).dst("fd00:1::1").payload(&inner6);
    router.expect_error6("a", &frame, (4, 1), DropReason::LocalUnknown);
}

#[test]
fn se_05_a_version_that_contradicts_the_ether_type_is_dropped() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv6Frame::udp().ether_type(0x0800), DropReason::Ip4Version);
    router.expect_drop("a", &Ipv4Frame::udp().payload(&[0; 40]).ether_type(0x86dd), DropReason::Ip6Version);
}

#[test]
fn se_05_other_protocols_are_dropped_and_counted_one_by_one() {
    let mut router = Scenario::standard();
    let inner = Ipv4Frame::udp().packet();
    // MPLS, PPPoE discovery and session, 802.1X, LLDP, HomePlug, and unassigned numbers.
    let types = [0x8847, 0x8848, 0x8863, 0x8864, 0x888e, 0x88cc, 0x88e1, 0x0801, 0x1234, 0xffff];
    for ether_type in types {
        router.expect_drop("a", &RawFrame::new(ether_type, &inner), DropReason::EtherType);
    }
    assert_eq!(router.dropped(DropReason::EtherType), types.len() as u64);
}

/// Returns a TCP packet whose TCP header is cut to `length` bytes.
fn cut_tcp(length: usize) -> Ipv4Frame {
    let header = Ipv4Frame::tcp().ports(1000, 23).packet()[20..][..length].to_vec();
    Ipv4Frame::raw(6).payload(&header)
}

/// Returns IPv4 packets without readable ports: UDP and TCP cut anywhere in their headers, and later
/// fragments without a first fragment.
fn without_ports4() -> Vec<Ipv4Frame> {
    let mut frames = vec![
        Ipv4Frame::raw(17).payload(b""),
        Ipv4Frame::raw(17).payload(&[0x03, 0xe8, 0, 23]),
        Ipv4Frame::raw(6).offset(1480),
        Ipv4Frame::raw(6).offset(1480).more_fragments(),
        Ipv4Frame::raw(17).offset(8).id(7),
    ];
    frames.extend([0, 1, 2, 3, 4, 8, 13, 14, 19].map(cut_tcp));
    frames
}

/// Returns IPv6 packets without readable ports, and packets whose upper-layer header the router can't reach.
fn without_ports6() -> Vec<Ipv6Frame> {
    let options = [0, 1, 4, 0, 0, 0, 0];
    vec![
        Ipv6Frame::raw(17).payload(b""),
        Ipv6Frame::raw(6).payload(&[0x03, 0xe8, 0]),
        Ipv6Frame::raw(6).fragment(1480, false, 7),
        Ipv6Frame::raw(60).fragment(1480, true, 8),
        // Packets that end within an extension header or right after it.
        Ipv6Frame::raw(60).payload(&[6, 1, 1, 4, 0, 0, 0, 0]),
        Ipv6Frame::raw(43).payload(&[6]),
        Ipv6Frame::raw(6).extension(60, &options).payload(b""),
        // Hop-by-hop options in a forbidden place.
        Ipv6Frame::tcp().ports(1000, 23).extension(60, &options).extension(0, &options),
        // More headers than the router reads.
        (0..9).fold(Ipv6Frame::tcp().ports(1000, 23), |frame, _| frame.extension(60, &options)),
    ]
}

/// Sends a frame and asserts that the router drops it, either by a filter or because it can't reach the
/// upper-layer header.
#[track_caller]
fn expect_refused6(router: &mut Scenario, frame: &Ipv6Frame) {
    let refused = |router: &mut Scenario| {
        router.dropped(DropReason::Filter) + router.dropped(DropReason::Ip6HeaderChain)
    };
    let before = refused(router);
    router.send("a", frame);
    router.nothing();
    assert_eq!(refused(router), before + 1, "{frame:?}");
}

/// Denies ports and flags: packets whose fields can't be read don't pass, whichever packet of the flow comes
/// first.
#[test]
fn se_04_packet_with_unreadable_ports_does_not_pass_a_filter_that_denies_a_port() {
    for table in ["tuple-space", "cutting-tree", "linear", "dag"] {
        for gate in ["firewall", "route"] {
            let mut router = Scenario::with(&format!(
                r#"
                [[gate]]
                name = "{gate}"
                table = "{table}"

                [[filter]]
                match = "dport 23"
                action = "drop"
                gate = "{gate}"
                "#
            ));
            for _ in 0..2 {
                router.expect_drop("a", &Ipv4Frame::tcp().ports(1000, 23), DropReason::Filter);
                router.expect_drop("a", &Ipv6Frame::tcp().ports(1000, 23), DropReason::Filter);
                router.expect_forwarded("a", &Ipv4Frame::tcp().ports(1000, 24), "b");
                router.expect_forwarded("a", &Ipv6Frame::tcp().ports(1000, 24), "b");
                // Port zero counts as readable.
                router.expect_forwarded("a", &Ipv4Frame::tcp().ports(0, 0), "b");
                router.expect_forwarded("a", &Ipv4Frame::udp().ports(0, 0), "b");
                router.expect_forwarded("a", &Ipv6Frame::tcp().ports(0, 0), "b");
                for frame in without_ports4() {
                    router.expect_drop("a", &frame, DropReason::Filter);
                }
                for frame in without_ports6() {
                    expect_refused6(&mut router, &frame);
                }
                // UDP without data has ports, ESP has none.
                router.expect_drop("a", &Ipv4Frame::udp().ports(1, 23).payload(b""), DropReason::Filter);
                router.expect_forwarded("a", &Ipv4Frame::udp().ports(1, 24).payload(b""), "b");
                router.expect_forwarded("a", &Ipv4Frame::raw(50).payload(&[0, 0, 0, 23]), "b");
                router.expect_forwarded("a", &Ipv6Frame::raw(50).payload(&[0, 0, 0, 23]), "b");
            }
        }
    }
}

#[test]
fn se_04_packet_with_unreadable_flags_does_not_pass_a_filter_that_denies_flags() {
    let filters = ["proto tcp flags syn/syn+ack", "proto tcp dport 23 flags syn/syn+ack"];
    for filter in filters {
        let mut router = Scenario::with(&format!("[[filter]]\nmatch = \"{filter}\"\naction = \"drop\"\n"));
        for _ in 0..2 {
            let packet = Ipv4Frame::tcp().ports(1000, 23);
            router.expect_forwarded("a", &packet, "b");
            router.expect_drop("a", &packet.flags(2), DropReason::Filter);
            for length in [0, 3, 4, 13, 14, 19] {
                router.expect_drop("a", &cut_tcp(length), DropReason::Filter);
            }
            router.expect_drop("a", &Ipv4Frame::raw(6).offset(1480), DropReason::Filter);
            // UDP has no flags.
            router.expect_forwarded("a", &Ipv4Frame::raw(17).payload(b""), "b");
        }
    }
}

/// Allows some ports only: a packet with an unreadable port doesn't pass.
#[test]
fn se_04_unreadable_port_is_not_an_allowed_port() {
    let mut router = Scenario::with(
        r#"
        [[instance]]
        plugin = "null"
        name = "allowed"

        [[filter]]
        match = "dport 0-23"
        action = "instance allowed"
        gate = "firewall"

        [[filter]]
        match = "*"
        action = "drop"
        gate = "firewall"
        "#,
    );
    for _ in 0..2 {
        router.expect_forwarded("a", &Ipv4Frame::tcp().ports(1000, 23), "b");
        router.expect_forwarded("a", &Ipv6Frame::tcp().ports(1000, 23), "b");
        // The filter allows port zero, which is also the value in the flow key of packets without readable
        // ports.
        router.expect_forwarded("a", &Ipv4Frame::tcp().ports(0, 0), "b");
        router.expect_drop("a", &Ipv4Frame::tcp().ports(1000, 24), DropReason::Filter);
        for frame in without_ports4() {
            router.expect_drop("a", &frame, DropReason::Filter);
        }
        for frame in without_ports6() {
            expect_refused6(&mut router, &frame);
        }
        router.expect_drop("a", &Ipv4Frame::raw(50).payload(&[0, 0, 0, 23]), DropReason::Filter);
    }
}

/// Accepts packets by a filter of higher priority without a port condition, although a filter of lower
/// priority would refuse them.
#[test]
fn se_04_filter_of_higher_priority_also_decides_for_unreadable_ports() {
    let mut router = Scenario::with(
        r#"
        [[instance]]
        plugin = "null"
        name = "allowed"

        [[filter]]
        match = "src 10.1.0.2"
        action = "instance allowed"
        gate = "firewall"
        priority = 1

        [[filter]]
        match = "dport 23"
        action = "drop"
        gate = "firewall"
        "#,
    );
    for _ in 0..2 {
        router.expect_forwarded("a", &cut_tcp(3), "b");
        router.expect_forwarded("a", &Ipv4Frame::tcp().ports(1000, 23), "b");
        router.expect_drop("a", &cut_tcp(3).src("10.1.0.3"), DropReason::Filter);
    }
}

#[test]
fn echo_flood_to_the_router_affects_only_its_class() {
    let mut router = Scenario::with_settings("\n[control-plane]\nicmp = 10");
    // The burst is 32 packets. The clock doesn't advance during the flood.
    for _ in 0..100 {
        router.send("a", &Ipv4Frame::echo().dst("10.1.0.1"));
    }
    let answers = router.take("a").len();
    assert_eq!(answers, 32, "of 100 echoes");
    assert_eq!(router.drops().get("control_plane"), Some(&68));
    // ARP belongs to another class, another port has its own buckets, and forwarded packets belong to no
    // class.
    router.send("a", &ArpFrame::request("10.1.0.2", "10.1.0.1"));
    assert_eq!(router.take("a").len(), 1);
    for _ in 0..10 {
        router.send("b", &Ipv4Frame::echo().src("10.2.0.2").dst("10.2.0.1"));
        router.send("a", &Ipv4Frame::echo());
    }
    assert_eq!(router.drops().get("control_plane"), Some(&68));
    // After a tenth of a second the bucket has one more token.
    router.advance(std::time::Duration::from_millis(100));
    router.take_all();
    for _ in 0..2 {
        router.send("a", &Ipv4Frame::echo().dst("10.1.0.1"));
    }
    assert_eq!((router.take("a").len(), router.drops().get("control_plane")), (1, Some(&69)));
}
