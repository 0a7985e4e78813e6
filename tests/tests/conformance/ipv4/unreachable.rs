//! DU: destination unreachable (RFC 1812, 4.3.3.1, 5.2.7.1; RFC 1122, 2.3.2.2, 3.2.2.1).

use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Ipv6Frame, Scenario};

#[test]
fn du_01_no_route_is_answered_with_net_unreachable() {
    let mut router = Scenario::standard();
    router.expect_error4("a", &Ipv4Frame::udp().dst("198.51.100.1"), (3, 0), DropReason::NoRoute);
}

#[test]
fn du_02_a_silent_neighbour_is_asked_once_a_second_then_reported_unreachable() {
    let mut router = Scenario::standard();
    let frame = Ipv4Frame::udp().dst("10.2.0.77");
    router.send("a", &frame);
    let mut requests = Vec::new();
    for tenth in 0..29 {
        requests.extend(router.take("b").iter().map(|output| (tenth, output.arp().target_ip)));
        assert!(router.take("a").is_empty(), "answered after {tenth} tenths of a second");
        router.advance(Duration::from_millis(100));
    }
    let target = [10, 2, 0, 77].into();
    assert_eq!(requests, [(0, target), (10, target), (20, target)]);
    router.advance(Duration::from_millis(200));
    let output = router.only("a");
    router.check_error4("a", &frame, &output, (3, 1));
    assert_eq!(router.router.drops("a").get("neighbour_failed"), Some(&1));
}

#[test]
fn du_02_all_packets_that_waited_are_reported() {
    let mut router = Scenario::standard();
    for _ in 0..5 {
        router.send("a", &Ipv4Frame::udp().dst("10.2.0.77"));
    }
    assert_eq!(router.take("b").len(), 1, "one request for all");
    router.advance(Duration::from_millis(3100));
    assert_eq!(router.take("a").len(), 5);
    assert_eq!(router.dropped(DropReason::NeighbourFailed), 5);
}

#[test]
fn du_03_a_protocol_or_port_that_the_router_does_not_speak_is_answered() {
    let mut router = Scenario::standard();
    let to_router = |frame: Ipv4Frame| frame.dst("10.1.0.1");
    router.expect_error4("a", &to_router(Ipv4Frame::raw(253)), (3, 2), DropReason::LocalUnknown);
    router.expect_error4("a", &to_router(Ipv4Frame::udp()), (3, 3), DropReason::LocalUnknown);
}

/// Returns the standard router with two filters at a gate: one drops silently, one rejects with an error.
fn denying(gate: &str) -> Scenario {
    Scenario::with(&format!(
        r#"
        [[filter]]
        match = "proto udp dport 7"
        action = "drop"
        gate = "{gate}"

        [[filter]]
        match = "proto udp dport 9"
        action = "reject"
        gate = "{gate}"
        "#
    ))
}

#[test]
fn du_04_filter_denies_silently_or_with_administratively_prohibited() {
    for gate in ["firewall", "route", "process"] {
        let mut router = denying(gate);
        // Sent twice: first as a new flow, then as a known flow.
        for _ in 0..2 {
            router.expect_drop("a", &Ipv4Frame::udp().ports(1, 7), DropReason::Filter);
            router.expect_drop("a", &Ipv6Frame::udp().ports(1, 7), DropReason::Filter);
            router.expect_error4("a", &Ipv4Frame::udp().ports(1, 9), (3, 13), DropReason::Filter);
            router.expect_error6("a", &Ipv6Frame::udp().ports(1, 9), (1, 1), DropReason::Filter);
            router.expect_forwarded("a", &Ipv4Frame::udp().ports(1, 8), "b");
            router.expect_forwarded("a", &Ipv6Frame::udp().ports(1, 8), "b");
        }
    }
}

#[test]
fn du_04_packets_that_forbid_an_error_are_denied_silently() {
    // The router's own packets pass the gates too, so a filter `*` would also drop the ICMP error.
    let mut router =
        Scenario::with("[[filter]]\nmatch = \"in a\"\naction = \"reject\"\ngate = \"firewall\"\n");
    for frame in [Ipv4Frame::icmp(3, 1), Ipv4Frame::raw(17).offset(8)] {
        router.expect_drop("a", &frame, DropReason::Filter);
    }
    router.expect_drop("a", &Ipv6Frame::icmp(1, 0), DropReason::Filter);
    router.expect_error4("a", &Ipv4Frame::echo(), (3, 13), DropReason::Filter);
}

#[test]
fn du_05_blackhole_is_silent_unreachable_and_prohibit_are_answered() {
    let mut router = Scenario::with(
        r#"
        [[route]]
        to = "198.51.100.0/26"
        kind = "blackhole"

        [[route]]
        to = "198.51.100.64/26"
        kind = "unreachable"

        [[route]]
        to = "198.51.100.128/26"
        kind = "prohibit"
        "#,
    );
    let to = |last: u8| Ipv4Frame::udp().dst(&format!("198.51.100.{last}"));
    router.expect_drop("a", &to(1), DropReason::Blackhole);
    router.expect_error4("a", &to(65), (3, 1), DropReason::Unreachable);
    router.expect_error4("a", &to(129), (3, 13), DropReason::Prohibited);
    router.expect_error4("a", &to(193), (3, 0), DropReason::NoRoute);
}
