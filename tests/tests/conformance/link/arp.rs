//! AR: ARP on ports without a kernel (RFC 826; RFC 1122, 2.3.2; RFC 1812, 3.3.2; RFC 5227).

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, RawFrame, Scenario, station};
use millrace_wire::MacAddr;
use millrace_wire::arp::Operation;

/// Returns a packet to a neighbour that must be resolved.
fn to_neighbour() -> Ipv4Frame {
    Ipv4Frame::udp().dst("10.2.0.77")
}

/// Returns the neighbour's ARP reply, from the station `02:00:00:00:00:xx` with this last byte.
fn reply(from: u8) -> ArpFrame {
    ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)).sender(station(from))
}

/// Returns a router that has learned the neighbour at station 77.
fn learned() -> Scenario {
    let mut router = Scenario::standard();
    router.send("a", &to_neighbour());
    router.send("b", &reply(0x77));
    assert_eq!(router.take("b")[1].to(), station(0x77));
    router
}

/// Returns the MAC address to which the router sends packets for the neighbour; `None` when it has to resolve
/// the neighbour first.
fn neighbour(router: &mut Scenario) -> Option<MacAddr> {
    router.send("a", &to_neighbour());
    let output = router.only("b");
    (output.ether_type() == 0x0800).then(|| output.to())
}

/// Compares with bytes written by hand from RFC 826.
#[test]
fn ar_01_a_request_for_an_own_address_is_answered() {
    let mut router = Scenario::standard();
    router.send("a", &ArpFrame::request("10.1.0.9", "10.1.0.1").sender(station(0xa9)));
    let expected = [
        0x02, 0, 0, 0, 0, 0xa9, 0x02, 0, 0, 0, 0, 0x0a, 0x08, 0x06, // Ethernet
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x02, // Ethernet, IPv4, reply
        0x02, 0, 0, 0, 0, 0x0a, 0x0a, 0x01, 0x00, 0x01, // sender
        0x02, 0, 0, 0, 0, 0xa9, 0x0a, 0x01, 0x00, 0x09, // target
    ];
    assert_eq!(router.only("a").bytes, expected);
}

#[test]
fn ar_01_a_request_for_another_address_is_not_answered() {
    let mut router = Scenario::standard();
    // Addresses of another host, another port, a host behind the router (proxy ARP is not built), and
    // broadcasts.
    for target in ["10.1.0.77", "10.2.0.1", "10.9.0.1", "10.1.0.255", "0.0.0.0"] {
        router.expect_delivered("a", &ArpFrame::request("10.1.0.9", target));
    }
}

#[test]
fn ar_01_a_probe_is_answered_and_nothing_is_learned_from_it() {
    let mut router = Scenario::standard();
    router.send("a", &ArpFrame::request("0.0.0.0", "10.1.0.1").sender(station(0xa9)));
    let output = router.only("a").arp();
    assert_eq!((output.operation, output.target_ip), (Operation::REPLY, Ipv4Addr::UNSPECIFIED));
}

#[test]
fn ar_01_a_request_unicast_to_the_port_is_answered() {
    let mut router = Scenario::standard();
    router.send("a", &ArpFrame::request("10.1.0.9", "10.1.0.1").to(station(0x0a)).sender(station(0xa9)));
    assert_eq!(router.only("a").to(), station(0xa9));
    router.expect_drop(
        "a",
        &ArpFrame::request("10.1.0.9", "10.1.0.1").to(station(0x0b)),
        DropReason::LinkNotOurs,
    );
}

#[test]
fn ar_01_sender_of_a_request_for_the_router_is_learned() {
    let mut router = Scenario::standard();
    let request = ArpFrame::request("10.2.0.77", "10.2.0.1").sender(station(0x77));
    router.send("b", &request);
    router.take("b");
    assert_eq!(neighbour(&mut router), Some(station(0x77)));
}

#[test]
fn ar_02_a_reply_that_claims_a_group_address_is_ignored() {
    let mut router = Scenario::standard();
    router.send("a", &to_neighbour());
    router.take("b");
    for mac in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr::ZERO] {
        router.expect_drop("b", &reply(0x77).claims(mac), DropReason::NeighbourMessage);
    }
    assert_eq!(router.router.summary().held, 1, "the packet still waits");
    router.send("b", &reply(0x77));
    assert_eq!(router.only("b").to(), station(0x77));
}

#[test]
fn ar_03_own_address_used_by_another_station_is_defended_at_most_every_10_seconds() {
    let mut router = Scenario::standard();
    let claim = ArpFrame::request("10.1.0.1", "10.1.0.1").sender(station(0xee));
    let mut defences = Vec::new();
    for second in 0..25 {
        router.send("a", &claim);
        for output in router.take("a") {
            if output.arp().operation == Operation::REQUEST {
                assert_eq!((output.to(), output.arp().sender_ip), (MacAddr::BROADCAST, [10, 1, 0, 1].into()));
                assert_eq!(output.arp().sender_mac, station(0x0a));
                defences.push(second);
            }
        }
        router.advance(Duration::from_secs(1));
    }
    assert_eq!(defences, [0, 10, 20]);
    // The router keeps the address.
    router.take_all();
    router.send("a", &Ipv4Frame::echo().dst("10.1.0.1"));
    assert_eq!(router.only("a").icmp().kind, 0);
}

#[test]
fn ar_04_an_announcement_updates_a_known_neighbour() {
    let mut router = learned();
    router.expect_delivered("b", &ArpFrame::request("10.2.0.77", "10.2.0.77").sender(station(0x78)));
    assert_eq!(neighbour(&mut router), Some(station(0x78)));
    router.expect_delivered(
        "b",
        &ArpFrame::reply("10.2.0.77", "10.2.0.77").to(MacAddr::BROADCAST).sender(station(0x79)),
    );
    assert_eq!(neighbour(&mut router), Some(station(0x79)));
}

#[test]
fn ar_04_an_announcement_does_not_create_a_neighbour() {
    let mut router = Scenario::standard();
    router.expect_delivered("b", &ArpFrame::request("10.2.0.77", "10.2.0.77").sender(station(0x78)));
    router.expect_delivered("b", &reply(0x78));
    assert_eq!(neighbour(&mut router), None);
}

#[test]
fn ar_04_static_neighbour_stays() {
    let mut router = Scenario::standard();
    router.expect_delivered("b", &ArpFrame::request("10.2.0.2", "10.2.0.2").sender(station(0xee)));
    router.send("b", &ArpFrame::request("10.2.0.2", "10.2.0.1").sender(station(0xee)));
    router.take("b");
    router.expect_delivered(
        "b",
        &ArpFrame::reply("10.2.0.2", "10.2.0.1").to(station(0x0b)).sender(station(0xee)),
    );
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
}

#[test]
fn ar_04_announcement_of_another_subnet_is_ignored() {
    let mut router = learned();
    // The router ignores a claim at the wrong port.
    router.send("a", &ArpFrame::request("10.2.0.77", "10.1.0.1").sender(station(0xee)));
    router.take("a");
    assert_eq!(neighbour(&mut router), Some(station(0x77)));
}

#[test]
fn ar_05_scan_of_silent_addresses_is_limited_and_keeps_known_neighbours() {
    let mut router = Scenario::with_line("\"10.2.0.1/24\"", "\"10.2.0.1/16\"");
    let mut requests = 0;
    // The scan covers 65,536 addresses at 10,000 per second.
    for block in 0..=255u8 {
        for last in 0..=255u8 {
            router.router.inject("a", &Ipv4Frame::udp().dst(&format!("10.2.{block}.{last}")).bytes());
        }
        router.router.run();
        requests += router.take("b").iter().filter(|output| output.ether_type() == 0x0806).count();
        router.expect_known_neighbour();
        router.advance(Duration::from_micros(25_600));
    }
    let seconds = 7;
    assert!(requests > 200, "{requests} requests");
    // The limit allows a burst of 50 new addresses, then 200 per second, each with up to three requests.
    assert!(requests <= 3 * (50 + 200 * seconds), "{requests} requests in {seconds} s");
    assert!(router.router.summary().held <= 1024);
    router.advance(Duration::from_secs(30));
    assert_eq!(router.router.summary().held, 0);
    router.take_all();
}

trait Known {
    fn expect_known_neighbour(&mut self);
}

impl Known for Scenario {
    /// Asserts that the host behind b receives its packets; the port may send other frames.
    fn expect_known_neighbour(&mut self) {
        self.take_all();
        self.send("a", &Ipv4Frame::udp());
        let sent = self.take("b");
        assert!(
            sent.iter().any(|output| output.ether_type() == 0x0800 && output.to() == station(0xb2)),
            "{sent:?}"
        );
    }
}

#[test]
fn ar_06_a_malformed_message_is_dropped() {
    let mut router = Scenario::standard();
    let request = || ArpFrame::request("10.1.0.9", "10.1.0.1");
    let wrong = [
        request().hardware(1, 5),
        request().hardware(1, 255),
        request().hardware(6, 6),
        request().protocol(0x0800, 16),
        request().protocol(0x0800, 0),
        request().protocol(0x86dd, 4),
        request().operation(0),
        request().operation(3),
        request().operation(0xffff),
    ];
    for frame in wrong {
        router.expect_drop("a", &frame, DropReason::NeighbourMessage);
    }
    for length in 0..28 {
        router.expect_drop("a", &request().cut(length), DropReason::NeighbourMessage);
    }
    router.expect_drop("a", &RawFrame::new(0x0806, &[0xff; 28]), DropReason::NeighbourMessage);
}

#[test]
fn ar_a_port_announces_its_address_when_it_comes_up() {
    let mut router = Scenario::standard();
    router.router.set_up("a", false);
    router.nothing();
    router.router.set_up("a", true);
    let announced: Vec<_> =
        router.take("a").into_iter().filter(|output| output.ether_type() == 0x0806).collect();
    assert_eq!(announced.len(), 1);
    let message = announced[0].arp();
    assert_eq!((message.sender_ip, message.target_ip), ([10, 1, 0, 1].into(), [10, 1, 0, 1].into()));
}

/// Sends 8,400 requests from absent hosts in 6 seconds; then a new neighbour of the flooded port appears.
#[test]
fn ar_05_a_flood_of_requests_leaves_room_for_wanted_neighbours() {
    let mut router = Scenario::with_line(
        "address = [\"10.2.0.1/24\", \"fd00:2::1/64\"]",
        "address = [\"10.2.0.1/16\", \"fd00:2::1/64\"]",
    );
    for number in 0..8400_u32 {
        let source = Ipv4Addr::from(0x0a02_4000 + number).to_string();
        router.send("b", &ArpFrame::request(&source, "10.2.0.1").sender(station(0x66)));
        router.take("b");
        if number % 140 == 0 {
            router.advance(Duration::from_millis(100));
        }
    }
    assert_eq!(neighbour(&mut router), None);
    router.send("b", &reply(0x77));
    assert_eq!(router.only("b").to(), station(0x77));
}
