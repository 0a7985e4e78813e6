//! MA: addresses that must not be forwarded from or to (RFC 1812, 5.3.7; RFC 6890; RFC 3927; RFC 6274, 4.3).

use millrace_packet::DropReason;
use millrace_tests::{Frame, Ipv4Frame, Scenario};

fn from(source: &str) -> Ipv4Frame {
    Ipv4Frame::udp().src(source)
}

fn to(destination: &str) -> Ipv4Frame {
    Ipv4Frame::udp().dst(destination)
}

/// A default route, so that nothing is dropped for want of one.
fn router(settings: &str) -> Scenario {
    let everywhere = "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.2.0.2\"\n";
    Scenario::new(&format!("[router]\n{settings}\n{}{everywhere}", millrace_tests::STANDARD))
}

#[test]
fn ma_01_loopback_addresses_are_not_forwarded() {
    let mut router = router("");
    router.expect_drops(&["127.0.0.1", "127.255.255.255"], from, DropReason::MartianSource);
    router.expect_drops(&["127.0.0.1", "127.255.255.255"], to, DropReason::MartianDestination);
    // The neighbouring networks are.
    for source in ["126.255.255.255", "128.0.0.1"] {
        router.expect_forwarded("a", &from(source), "b");
    }
}

#[test]
fn ma_02_network_zero_is_not_forwarded() {
    let mut router = router("");
    router.expect_drops(&["0.0.0.0", "0.0.0.1", "0.255.255.255"], from, DropReason::MartianSource);
    router.expect_drops(&["0.0.0.0", "0.0.0.1", "0.255.255.255"], to, DropReason::MartianDestination);
    // What a DHCP client sends goes no further than its link.
    let discover = from("0.0.0.0").dst("255.255.255.255").ports(68, 67);
    router.expect_drop("a", &discover, DropReason::Broadcast);
}

#[test]
fn ma_02_the_knob_forwards_network_zero_but_not_the_unspecified_address() {
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
    // LAND: from the router to itself.
    router.expect_drop("a", &from("10.1.0.1").dst("10.1.0.1"), DropReason::MartianSource);
    router.expect_drop("a", &Ipv4Frame::echo().src("10.1.0.1").dst("10.1.0.1"), DropReason::MartianSource);
    router.expect_drop("a", &Ipv4Frame::echo().src("10.2.0.1").dst("10.1.0.1"), DropReason::MartianSource);
    // And in transit.
    router.expect_drop("a", &from("10.1.0.1"), DropReason::MartianSource);
}

#[test]
fn ma_06_source_and_destination_alike_but_not_ours_are_forwarded() {
    let mut router = router("");
    router.expect_forwarded("a", &from("10.9.0.7").dst("10.9.0.7"), "b");
    assert_eq!(from("10.9.0.7").dst("10.9.0.7").bytes()[26..30], [10, 9, 0, 7]);
}
