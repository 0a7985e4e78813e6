//! IE: ICMP errors in general (RFC 1812, 4.3.2; RFC 1122, 3.2.2).

use std::net::IpAddr;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{Frame, Ipv4Frame, RawFrame, Scenario, station};
use millrace_wire::MacAddr;

const TTL_EXPIRED: (u8, u8) = (11, 0);

#[test]
fn ie_01_an_icmp_error_is_never_answered_with_an_error() {
    let mut router = Scenario::standard();
    router.expect_drops(&[3, 4, 5, 11, 12], |kind| Ipv4Frame::icmp(kind, 0).ttl(1), DropReason::TtlExpired);
    // The router does answer ICMP messages that are no errors.
    for kind in [0, 8, 13, 44] {
        router.expect_error4("a", &Ipv4Frame::icmp(kind, 0).ttl(1), TTL_EXPIRED, DropReason::TtlExpired);
    }
}

#[test]
fn ie_02_packets_to_groups_and_broadcasts_get_no_error() {
    let mut router = Scenario::standard();
    let to = |address| Ipv4Frame::udp().dst(address).ttl(1);
    router.expect_drop("a", &to("224.0.1.1"), DropReason::Multicast);
    router.expect_drop("a", &to("255.255.255.255"), DropReason::Broadcast);
    router.expect_drop("a", &to("10.2.0.255"), DropReason::Broadcast);
    router.expect_drop("a", &to("10.1.0.255"), DropReason::Broadcast);
}

#[test]
fn ie_03_frames_to_many_stations_are_never_answered_with_an_error() {
    let mut router = Scenario::standard();
    for to in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 1, 1, 1])] {
        router.expect_drop("a", &Ipv4Frame::udp().ttl(1).to(to), DropReason::LinkBroadcast);
        router.expect_drop("a", &Ipv4Frame::udp().dst("198.51.100.1").to(to), DropReason::LinkBroadcast);
    }
}

#[test]
fn ie_04_a_source_that_is_no_single_host_is_never_answered() {
    let mut router = Scenario::standard();
    let sources = ["0.0.0.0", "127.0.0.1", "224.1.1.1", "240.0.0.1", "255.255.255.255"];
    router.expect_drops(&sources, |source| Ipv4Frame::udp().src(source).ttl(1), DropReason::MartianSource);
    // Even if the setting lets packets from 240/4 pass, the router sends no error to such a source.
    let mut router = Scenario::with_settings("forward-class-e = true");
    router.expect_drop("a", &Ipv4Frame::udp().src("240.0.0.1").ttl(1), DropReason::TtlExpired);
}

#[test]
fn ie_05_of_fragments_only_the_first_is_answered() {
    let mut router = Scenario::standard();
    let fragment = |offset| Ipv4Frame::raw(17).offset(offset).more_fragments().ttl(1);
    router.expect_drops(&[8, 1480, 65512 - 40], fragment, DropReason::TtlExpired);
    router.expect_error4("a", &fragment(0), TTL_EXPIRED, DropReason::TtlExpired);
}

#[test]
fn ie_06_an_error_quotes_the_packet_and_has_at_most_576_bytes() {
    let mut router = Scenario::standard();
    // The harness compares the quote with the packet, and the length with 576.
    for length in [28, 29, 36, 547, 548, 549, 1400, 1500] {
        let frame = Ipv4Frame::udp().length(length).ttl(1);
        router.expect_error4("a", &frame, TTL_EXPIRED, DropReason::TtlExpired);
    }
    let with_options = Ipv4Frame::udp().options(&[1; 40]).ttl(1);
    router.expect_error4("a", &with_options, TTL_EXPIRED, DropReason::TtlExpired);
}

#[test]
fn ie_06_padding_of_the_frame_is_not_quoted() {
    let mut router = Scenario::standard();
    let frame = Ipv4Frame::udp().payload(b"").pad(60).ttl(1);
    let error = router.expect_error4("a", &frame, TTL_EXPIRED, DropReason::TtlExpired);
    assert_eq!(error.body.len(), 28);
}

#[test]
fn ie_07_an_error_comes_from_the_address_of_the_port_it_leaves_by() {
    let mut router = Scenario::standard();
    // The route back to 10.9.0.7 leaves by port b.
    let frame = Ipv4Frame::udp().src("10.9.0.7").dst("10.3.0.2").ttl(1);
    router.send("a", &frame);
    let output = router.only("b");
    assert_eq!(output.icmp().source, IpAddr::from([10, 2, 0, 1]));
    assert_eq!((output.to(), output.from()), (station(0xb2), station(0x0b)));
    router.check_error4("b", &frame, &output, TTL_EXPIRED);
}

#[test]
fn ie_08_errors_have_precedence_6_unless_configured_otherwise() {
    let mut router = Scenario::standard();
    router.send("a", &Ipv4Frame::udp().ttl(1).tos(0x14));
    assert_eq!(router.only("a").ipv4().tos(), 0xc0);
    let mut router = Scenario::with_settings("icmp-dscp = 8");
    router.send("a", &Ipv4Frame::udp().ttl(1));
    assert_eq!(router.only("a").ipv4().tos(), 8 << 2);
}

#[test]
fn ie_09_errors_are_limited_per_type_and_transit_traffic_is_unharmed() {
    let mut router = Scenario::with_settings("icmp-rate = 100\nicmp-burst = 10");
    let (mut errors, mut forwarded) = (0, 0);
    for tick in 0u16..500 {
        // The test sends 10,000 packets per second with expiring TTL, half of them from one source, and 100
        // packets in transit.
        for packet in 0..100 {
            let source =
                if packet % 2 == 0 { "10.1.0.2".into() } else { format!("10.9.{}.{}", tick / 100, packet) };
            router.router.inject("a", &Ipv4Frame::udp().src(&source).ttl(1).bytes());
        }
        router.send("a", &Ipv4Frame::udp());
        for output in ["a", "b"].into_iter().flat_map(|port| router.take(port)).collect::<Vec<_>>() {
            if output.is_icmp_error() { errors += 1 } else { forwarded += 1 }
        }
        router.advance(Duration::from_millis(10));
    }
    assert_eq!(forwarded, 500);
    assert!((490..=510).contains(&errors), "{errors} errors in 5 s at 100 a second and 10 at once");
    assert_eq!(router.dropped(DropReason::TtlExpired), 50_000);
}

#[test]
fn ie_09_a_flood_of_one_type_does_not_silence_another() {
    let mut router = Scenario::with_settings("icmp-rate = 1\nicmp-burst = 1");
    for _ in 0..10 {
        router.send("a", &Ipv4Frame::udp().ttl(1));
    }
    assert_eq!(router.take("a").len(), 1);
    router.expect_error4("a", &Ipv4Frame::udp().dst("198.51.100.1"), (3, 0), DropReason::NoRoute);
}

#[test]
fn ie_10_the_checksum_over_an_odd_quote_is_right() {
    let mut router = Scenario::standard();
    for length in [29, 31, 101, 301] {
        // The harness computes the checksum again.
        let frame = Ipv4Frame::udp().length(length).ttl(1);
        router.expect_error4("a", &frame, TTL_EXPIRED, DropReason::TtlExpired);
    }
}

#[test]
fn ie_11_a_port_without_an_address_answers_with_the_router_id() {
    let without = |settings: &str| {
        Scenario::new(&format!(
            r#"
            {settings}
            [[port]]
            name = "a"
            kind = "memory"
            mac = "02:00:00:00:00:0a"
            address = ["fd00:1::1/64"]

            [[neighbour]]
            port = "a"
            address = "fd00:1::2"
            mac = "02:00:00:00:00:a2"

            [[route]]
            to = "10.1.0.0/24"
            via = "fd00:1::2"
            "#
        ))
    };
    // Dummy address of RFC 7600.
    let mut router = without("");
    router.send("a", &Ipv4Frame::udp().dst("198.51.100.1"));
    assert_eq!(router.only("a").icmp().source, IpAddr::from([192, 0, 0, 8]));
    let mut router = without("[router]\nrouter-id = \"10.255.0.1\"");
    router.send("a", &Ipv4Frame::udp().dst("198.51.100.1"));
    assert_eq!(router.only("a").icmp().source, IpAddr::from([10, 255, 0, 1]));
}

/// Compares bytes written by hand: a packet with expired TTL, and the answer.
#[test]
fn ie_a_time_exceeded_message_byte_by_byte() {
    let mut router = Scenario::standard();
    let original = [
        0x45, 0x00, 0x00, 0x1e, 0x00, 0x01, 0x40, 0x00, 0x01, 0x11, 0x65, 0xc2, // IPv4, TTL 1
        0x0a, 0x01, 0x00, 0x02, 0x0a, 0x09, 0x00, 0x01, // addresses
        0x03, 0xe8, 0x07, 0xd0, 0x00, 0x0a, 0x00, 0x00, 0x68, 0x69, // UDP
    ];
    router.send("a", &RawFrame::new(0x0800, &original));
    let mut bytes = router.only("a").bytes;
    // The identification may have any value.
    bytes[18..20].fill(0);
    bytes[24..26].fill(0);
    let mut expected = vec![0x02, 0, 0, 0, 0, 0xa2, 0x02, 0, 0, 0, 0, 0x0a, 0x08, 0x00];
    expected.extend([0x45, 0xc0, 0x00, 0x3a, 0, 0, 0, 0, 0x40, 0x01, 0, 0]);
    expected.extend([0x0a, 0x01, 0x00, 0x01, 0x0a, 0x01, 0x00, 0x02]);
    expected.extend([0x0b, 0x00, 0x80, 0xd4, 0, 0, 0, 0]);
    expected.extend(original);
    assert_eq!(bytes, expected);
}
