//! BC: broadcasts (RFC 1812, 5.3.4 and 5.3.5; RFC 2644; RFC 3021).

use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{ArpFrame, Ipv4Frame, Scenario, station};
use millrace_wire::MacAddr;

#[test]
fn bc_01_unicast_packets_in_frames_to_many_stations_are_not_forwarded() {
    let mut router = Scenario::standard();
    for to in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 9]), MacAddr([0x33, 0x33, 0, 0, 0, 1])] {
        router.expect_drop("a", &Ipv4Frame::udp().to(to), DropReason::LinkBroadcast);
        // Nor does the router answer such frames when the packet is for the router.
        router.expect_drop("a", &Ipv4Frame::echo().dst("10.1.0.1").to(to), DropReason::LinkBroadcast);
    }
}

#[test]
fn bc_02_the_limited_broadcast_is_not_forwarded() {
    let mut router = Scenario::with("[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.2.0.2\"\n");
    let frame = Ipv4Frame::udp().dst("255.255.255.255");
    router.expect_drop("a", &frame, DropReason::Broadcast);
    router.expect_drop("a", &frame.to(MacAddr::BROADCAST), DropReason::Broadcast);
}

#[test]
fn bc_03_directed_broadcasts_are_not_forwarded() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv4Frame::udp().dst("10.2.0.255"), DropReason::Broadcast);
    router.expect_drop("a", &Ipv4Frame::echo().dst("10.2.0.255"), DropReason::Broadcast);
    // Directed broadcasts of the arrival port's subnet are dropped as well.
    router.expect_drop("a", &Ipv4Frame::udp().dst("10.1.0.255"), DropReason::Broadcast);
    router.expect_drop(
        "a",
        &Ipv4Frame::udp().dst("10.1.0.255").to(MacAddr::BROADCAST),
        DropReason::LinkBroadcast,
    );
}

#[test]
fn bc_04_both_addresses_of_a_31_bit_subnet_are_hosts() {
    let mut router = Scenario::with_line("\"10.2.0.1/24\", ", "\"10.2.0.3/31\", ");
    // Network address of the subnet. In a larger subnet it would be no host address.
    router.send("a", &Ipv4Frame::udp().dst("10.2.0.2"));
    assert_eq!(router.only("b").to(), station(0xb2));
    // The router's own address. In a larger subnet it would be the broadcast address.
    router.send("a", &Ipv4Frame::echo().dst("10.2.0.3"));
    assert_eq!(router.only("a").icmp().kind, 0);
    // The router sends errors to the first address and answers ARP for the second.
    let expired =
        Ipv4Frame::udp().src("10.2.0.2").dst("10.3.0.2").ttl(1).to(station(0x0b)).from(station(0xb2));
    router.send("b", &expired);
    assert_eq!(router.only("b").icmp().kind, 11);
    router.send("b", &ArpFrame::request("10.2.0.2", "10.2.0.3").sender(station(0xb2)));
    assert_eq!(router.only("b").arp().sender_mac, station(0x0b));
}

#[test]
fn bc_04_the_lower_address_of_a_31_bit_subnet_may_be_the_routers() {
    let mut router = Scenario::new(
        r#"
        [[port]]
        name = "a"
        kind = "memory"
        mac = "02:00:00:00:00:0a"
        address = ["10.1.0.2/31"]
        "#,
    );
    router.send("a", &ArpFrame::request("10.1.0.3", "10.1.0.2"));
    assert_eq!(router.only("a").arp().sender_mac, station(0x0a));
    router.send("a", &Ipv4Frame::echo().src("10.1.0.3").dst("10.1.0.2"));
    assert_eq!(router.only("a").icmp().kind, 0);
}

#[test]
fn bc_05_the_address_with_host_part_zero_is_forwarded_as_by_linux() {
    let mut router = Scenario::standard();
    router.send("a", &Ipv4Frame::udp().dst("10.2.0.0"));
    let request = router.only("b").arp();
    assert_eq!(request.target_ip, std::net::Ipv4Addr::from([10, 2, 0, 0]));
    router.advance(Duration::from_secs(4));
    router.take("b");
    assert_eq!(router.only("a").icmp().code, 1);
}
