//! MA: source and destination addresses that must not be forwarded (RFC 1812, 5.3.7; RFC 6890; RFC 3927; RFC
//! 6274, 4.3). Also sources that are not behind the port at which their packets arrive (RFC 3704).

use millrace_packet::DropReason;
use millrace_pipeline::ReversePath;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, STANDARD, Scenario, station};

fn from(source: &str) -> Ipv4Frame {
    Ipv4Frame::udp().src(source)
}

fn to(destination: &str) -> Ipv4Frame {
    Ipv4Frame::udp().dst(destination)
}

/// Returns a router with a default route, so that no packet lacks a route.
fn router(settings: &str) -> Scenario {
    let everywhere = "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.2.0.2\"\n";
    Scenario::new(&format!("[router]\n{settings}\n{}{everywhere}", millrace_tests::STANDARD))
}

#[test]
fn ma_01_loopback_addresses_are_not_forwarded() {
    let mut router = router("");
    router.expect_drops(&["127.0.0.1", "127.255.255.255"], from, DropReason::MartianSource);
    router.expect_drops(&["127.0.0.1", "127.255.255.255"], to, DropReason::MartianDestination);
    // The router forwards from the neighbouring networks.
    for source in ["126.255.255.255", "128.0.0.1"] {
        router.expect_forwarded("a", &from(source), "b");
    }
}

#[test]
fn ma_02_network_zero_is_not_forwarded() {
    let mut router = router("");
    router.expect_drops(&["0.0.0.0", "0.0.0.1", "0.255.255.255"], from, DropReason::MartianSource);
    router.expect_drops(&["0.0.0.0", "0.0.0.1", "0.255.255.255"], to, DropReason::MartianDestination);
    // Packets of a DHCP client stay on their link.
    let discover = from("0.0.0.0").dst("255.255.255.255").ports(68, 67);
    router.expect_drop("a", &discover, DropReason::Broadcast);
}

#[test]
fn ma_02_setting_forwards_network_zero_but_not_the_unspecified_address() {
    let mut router = router("forward-zero-net = true");
    router.expect_forwarded("a", &from("0.0.0.1"), "b");
    router.expect_forwarded("a", &to("0.0.0.1"), "b");
    router.expect_drop("a", &from("0.0.0.0"), DropReason::MartianSource);
    router.expect_drop("a", &to("0.0.0.0"), DropReason::MartianDestination);
}

#[test]
fn ma_03_groups_and_broadcasts_are_no_sources() {
    let mut router = router("");
    let sources =
        ["224.0.0.1", "239.255.255.255", "255.255.255.255", "10.1.0.255", "10.2.0.255", "10.3.0.255"];
    router.expect_drops(&sources, from, DropReason::MartianSource);
}

#[test]
fn ma_04_class_e_is_not_forwarded_unless_configured() {
    let mut plain = router("");
    plain.expect_drops(&["240.0.0.1", "255.255.255.254"], from, DropReason::MartianSource);
    plain.expect_drops(&["240.0.0.1", "255.255.255.254"], to, DropReason::MartianDestination);
    let mut open = router("forward-class-e = true");
    open.expect_forwarded("a", &from("240.0.0.1"), "b");
    open.expect_forwarded("a", &to("255.255.255.254"), "b");
    open.expect_drop("a", &from("255.255.255.255"), DropReason::MartianSource);
    open.expect_drop("a", &to("255.255.255.255"), DropReason::Broadcast);
}

#[test]
fn ma_05_link_local_addresses_are_not_forwarded_unless_configured() {
    let mut plain = router("");
    plain.expect_drops(&["169.254.0.1", "169.254.255.255"], from, DropReason::MartianSource);
    plain.expect_drops(&["169.254.0.1", "169.254.255.255"], to, DropReason::MartianDestination);
    plain.expect_forwarded("a", &from("169.253.255.255"), "b");
    let mut open = router("forward-link-local = true");
    open.expect_forwarded("a", &from("169.254.0.1"), "b");
    open.expect_forwarded("a", &to("169.254.0.1"), "b");
}

#[test]
fn ma_06_the_routers_own_address_is_no_source() {
    let mut router = router("");
    // LAND attack: a packet from the router's address to itself.
    router.expect_drop("a", &from("10.1.0.1").dst("10.1.0.1"), DropReason::MartianSource);
    router.expect_drop("a", &Ipv4Frame::echo().src("10.1.0.1").dst("10.1.0.1"), DropReason::MartianSource);
    router.expect_drop("a", &Ipv4Frame::echo().src("10.2.0.1").dst("10.1.0.1"), DropReason::MartianSource);
    // The router's address as source of a packet in transit.
    router.expect_drop("a", &from("10.1.0.1"), DropReason::MartianSource);
}

#[test]
fn ma_06_equal_foreign_source_and_destination_are_forwarded() {
    let mut router = router("");
    router.expect_forwarded("a", &from("10.9.0.7").dst("10.9.0.7"), "b");
    assert_eq!(from("10.9.0.7").dst("10.9.0.7").bytes()[26..30], [10, 9, 0, 7]);
}

/// Returns the standard router with a reverse path check at port a.
fn checking(mode: &str, more: &str) -> Scenario {
    let port = "name = \"a\"\n";
    let checked = STANDARD.replacen(port, &format!("{port}reverse-path = \"{mode}\"\n"), 1);
    Scenario::new(&format!("{checked}{more}"))
}

fn from6(source: &str) -> Ipv6Frame {
    Ipv6Frame::udp().src(source)
}

/// Returns a frame that arrives at port b, for the network behind port c.
fn by_b(source: &str) -> Ipv4Frame {
    from(source).dst("10.3.0.2").to(station(0x0b)).from(station(0xb2))
}

const EVERYWHERE: &str = r#"
    [[route]]
    to = "0.0.0.0/0"
    via = "10.2.0.2"

    [[route]]
    to = "::/0"
    via = "fd00:2::2"
"#;

#[test]
fn ma_07_strict_accepts_only_packets_from_the_port_of_their_sources_route() {
    let mut router = checking("strict", "");
    for _ in 0..2 {
        router.expect_forwarded("a", &from("10.1.0.2"), "b");
        router.expect_forwarded("a", &from6("fd00:1::2"), "b");
        // Sources behind another port (asymmetric paths), and sources without a route.
        router.expect_drops(&["10.3.0.2", "10.9.0.7", "203.0.113.1"], from, DropReason::ReversePath);
        router.expect_drops(&["fd00:3::2", "fd00:9::7", "2001:db8::1"], from6, DropReason::ReversePath);
    }
    assert_eq!(router.router.drops("a").get("reverse_path"), Some(&12));
    // A port without the setting doesn't check.
    router.expect_forwarded("b", &by_b("203.0.113.1"), "c");
}

#[test]
fn ma_07_loose_accepts_packets_from_any_routed_source() {
    let mut router = checking("loose", "");
    for _ in 0..2 {
        for source in ["10.1.0.2", "10.3.0.2", "10.9.0.7"] {
            router.expect_forwarded("a", &from(source), "b");
        }
        for source in ["fd00:1::2", "fd00:3::2", "fd00:9::7"] {
            router.expect_forwarded("a", &from6(source), "b");
        }
        router.expect_drop("a", &from("203.0.113.1"), DropReason::ReversePath);
        router.expect_drop("a", &from6("2001:db8::1"), DropReason::ReversePath);
    }
    assert_eq!(router.router.drops("a").get("reverse_path"), Some(&4));
}

#[test]
fn ma_07_default_route_counts_as_reverse_path() {
    let mut strict = checking("strict", EVERYWHERE);
    strict.expect_drop("a", &from("203.0.113.1"), DropReason::ReversePath);
    strict.expect_drop("a", &from6("2001:db8::1"), DropReason::ReversePath);
    strict.router.set_reverse_path("b", ReversePath::Strict);
    strict.expect_forwarded("b", &by_b("203.0.113.1"), "c");
    let frame = from6("2001:db8::1").dst("fd00:3::2").to(station(0x0b));
    strict.expect_forwarded("b", &frame, "c");
    let mut loose = checking("loose", EVERYWHERE);
    loose.expect_forwarded("a", &from("203.0.113.1"), "b");
    loose.expect_forwarded("a", &from6("2001:db8::1"), "b");
}

#[test]
fn ma_07_any_next_hop_counts_as_reverse_path_and_a_blackhole_does_not() {
    let more = r#"
        [[route]]
        to = "203.0.113.0/25"
        via = ["10.1.0.2", "10.3.0.2"]

        [[route]]
        to = "203.0.113.128/25"
        kind = "blackhole"
    "#;
    for mode in ["strict", "loose"] {
        let mut router = checking(mode, more);
        router.expect_forwarded("a", &from("203.0.113.1"), "b");
        router.expect_drop("a", &from("203.0.113.129"), DropReason::ReversePath);
    }
}

#[test]
fn ma_07_known_flow_is_checked_again_when_the_reverse_path_changes() {
    let mut router = checking("strict", "");
    let route = |text: &str| toml::from_str::<millrace_config::Route>(text).expect("a route");
    for _ in 0..2 {
        router.expect_forwarded("a", &from("10.1.0.2"), "b");
        router
            .router
            .add_route(&route("to = \"10.1.0.0/30\"\nvia = \"10.3.0.2\""))
            .expect("the route is right");
        router.expect_drop("a", &from("10.1.0.2"), DropReason::ReversePath);
        router.router.remove_route("10.1.0.0/30".parse().expect("a prefix")).expect("the route is there");
    }
    router.expect_forwarded("a", &from("10.1.0.2"), "b");
    router.router.set_reverse_path("a", ReversePath::Off);
    router.expect_forwarded("a", &from("203.0.113.1"), "b");
    router.router.set_reverse_path("a", ReversePath::Loose);
    router.expect_drop("a", &from("203.0.113.1"), DropReason::ReversePath);
}
