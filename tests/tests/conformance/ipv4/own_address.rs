//! RD, IC and other cases of the router's own addresses: redirects (RFC 1812, 5.2.7.2), ICMP queries (RFC
//! 1812, 4.3.3; RFC 6918), routing headers (RFC 5095), /127 links (RFC 6164), jumbograms (RFC 2675).

use millrace_packet::DropReason;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, STANDARD, Scenario, station};

/// Returns a router whose route to 10.8.0.0/16 leads back to the link of the first host.
fn with_better_gateway() -> Scenario {
    Scenario::with(
        r#"
        [[neighbour]]
        port = "a"
        address = "10.1.0.3"
        mac = "02:00:00:00:00:a3"

        [[route]]
        to = "10.8.0.0/16"
        via = "10.1.0.3"
        "#,
    )
}

#[test]
fn rd_01_a_host_is_redirected_to_a_gateway_on_its_link() {
    let mut router = with_better_gateway();
    let frame = Ipv4Frame::udp().dst("10.8.0.1");
    router.send("a", &frame);
    let (redirects, forwarded): (Vec<_>, Vec<_>) =
        router.take("a").into_iter().partition(|output| output.ipv4().protocol().0 == 1);
    assert_eq!((redirects.len(), forwarded.len()), (1, 1));
    assert_eq!(forwarded[0].to(), station(0xa3));
    // The error quotes the packet as forwarded, with its TTL one less.
    let redirect = router.check_error4("a", &frame.ttl(63), &redirects[0], (5, 1));
    assert_eq!(redirect.rest, [10, 1, 0, 3], "the gateway");
}

#[test]
fn rd_02_a_source_on_another_link_is_not_redirected() {
    let mut router = with_better_gateway();
    router.send("a", &Ipv4Frame::udp().src("10.7.0.1").dst("10.8.0.1"));
    assert_eq!(router.only("a").to(), station(0xa3));
    router.send("b", &Ipv4Frame::udp().to(station(0x0b)).src("10.2.0.2").dst("10.8.0.1"));
    assert_eq!(router.only("a").to(), station(0xa3));
}

#[test]
fn rd_03_a_redirect_to_the_router_changes_no_route() {
    let mut router = Scenario::standard();
    let quoted = Ipv4Frame::udp().src("10.1.0.1").dst("10.9.0.1").packet();
    for code in 0..4 {
        let message = [&[5, code, 0, 0, 10, 3, 0, 2][..], &quoted[..28]].concat();
        let mut message = message;
        let sum = millrace_tests::checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        let frame = Ipv4Frame::raw(1).src("10.2.0.2").dst("10.2.0.1").payload(&message);
        router.expect_drop("b", &frame.to(station(0x0b)), DropReason::LocalUnknown);
        router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
    }
}

#[test]
fn ic_01_an_echo_request_of_any_length_is_answered_with_its_payload() {
    let mut router = Scenario::with_mtu(&[("a", 9000)]);
    for length in [28, 29, 64, 1500, 1501, 9000] {
        let frame = Ipv4Frame::echo().dst("10.1.0.1").length(length);
        router.send("a", &frame);
        let output = router.only("a");
        let reply = output.icmp();
        assert_eq!((reply.kind, reply.code), (0, 0));
        assert_eq!(output.ipv4().src(), std::net::Ipv4Addr::from([10, 1, 0, 1]));
        assert_eq!(reply.body, frame.packet()[28..], "payload of {length} bytes");
    }
    // The own stack reassembles no fragments.
    for piece in Ipv4Frame::echo().dst("10.1.0.1").length(400).pieces(200) {
        router.expect_drop("a", &piece, DropReason::LocalUnknown);
    }
}

#[test]
fn ic_02_an_echo_request_to_a_broadcast_or_a_group_is_not_answered() {
    let mut router = Scenario::standard();
    for destination in ["255.255.255.255", "10.1.0.255", "224.0.0.1"] {
        for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
            router.send("a", &Ipv4Frame::echo().dst(destination).to(millrace_wire::MacAddr(mac)));
            router.nothing();
        }
    }
}

#[test]
fn ic_03_ic_04_other_queries_and_source_quench_are_ignored() {
    let mut router = Scenario::standard();
    for kind in [4, 9, 10, 13, 15, 17] {
        router.expect_drop("a", &Ipv4Frame::icmp(kind, 0).dst("10.1.0.1"), DropReason::LocalUnknown);
    }
}

#[test]
fn ic_05_an_unknown_type_is_ignored_here_and_forwarded_in_transit() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv4Frame::icmp(44, 0).dst("10.1.0.1"), DropReason::LocalUnknown);
    router.expect_forwarded("a", &Ipv4Frame::icmp(44, 0), "b");
}

#[test]
fn op_05_op_06_record_route_and_timestamp_pass_unchanged() {
    let mut router = Scenario::standard();
    let free = [&[7, 15, 4][..], &[0; 12]].concat();
    let full = [&[7, 7, 8][..], &[10, 0, 0, 1]].concat();
    router.expect_forwarded("a", &Ipv4Frame::udp().options(&free), "b");
    router.expect_forwarded("a", &Ipv4Frame::udp().options(&full), "b");
    for flag in [0, 1, 3, 0xe0, 0xf0] {
        router.expect_forwarded(
            "a",
            &Ipv4Frame::udp().options(&[68, 12, 5, flag, 0, 0, 0, 0, 0, 0, 0, 0]),
            "b",
        );
    }
}

#[test]
fn op_08_v6_12_router_alert_is_forwarded_like_any_option() {
    let mut router = Scenario::standard();
    for value in [0_u16, 1, 65_535] {
        let [high, low] = value.to_be_bytes();
        router.expect_forwarded("a", &Ipv4Frame::udp().options(&[148, 4, high, low]), "b");
        router.expect_forwarded("a", &Ipv6Frame::udp().extension(0, &[0, 5, 2, high, low, 1, 0]), "b");
    }
}

#[test]
fn fr_08_a_fragment_that_ends_beyond_the_longest_packet_is_dropped() {
    let mut router = Scenario::standard();
    for destination in ["10.9.0.1", "10.1.0.1"] {
        let frame = Ipv4Frame::raw(1).dst(destination).payload(&[0; 64]).offset(65_528);
        router.expect_drop("a", &frame, DropReason::Ip4Fragment);
    }
}

#[test]
fn v6_13_routing_header_of_type_0_is_forwarded_and_not_processed() {
    let mut router = Scenario::standard();
    for left in [0, 1] {
        let routing = [&[2, 0, left, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
        router.expect_forwarded("a", &Ipv6Frame::udp().extension(43, &routing), "b");
        let own = Ipv6Frame::echo().dst("fd00:1::1").extension(43, &routing);
        router.expect_drop("a", &own, DropReason::LocalUnknown);
    }
}

#[test]
fn v6_19_both_addresses_of_a_127_bit_subnet_are_hosts() {
    let configuration = STANDARD.replacen("fd00:1::1/64", "fd00:1::1/127", 1).replacen(
        "address = \"fd00:1::2\"",
        "address = \"fd00:1::\"",
        1,
    );
    let mut router = Scenario::new(&configuration);
    router.send("a", &Ipv6Frame::echo().src("fd00:1::").dst("fd00:1::1"));
    let reply = router.only("a").icmp();
    assert_eq!((reply.kind, reply.code), (129, 0));
    router.send("b", &Ipv6Frame::udp().to(station(0x0b)).src("fd00:2::2").dst("fd00:1::"));
    let output = router.only("a");
    assert_eq!((output.to(), output.ipv6().dst()), (station(0xa2), "fd00:1::".parse().unwrap()));
}

#[test]
fn v6_20_a_jumbogram_is_dropped_and_never_taken_for_a_packet_without_payload() {
    let mut router = Scenario::standard();
    let jumbo = Ipv6Frame::udp().extension(0, &[0, 0xc2, 4, 0, 1, 0, 0]).payload_length(0);
    for destination in ["fd00:9::1", "fd00:1::1"] {
        router.expect_drop("a", &jumbo.clone().dst(destination), DropReason::Ip6Jumbo);
    }
    assert!(!jumbo.bytes().is_empty());
}
