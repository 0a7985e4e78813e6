//! TTL: time to live (RFC 1812, 5.3.1, 4.2.2.9).

use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Scenario};

const TTL_EXPIRED: (u8, u8) = (11, 0);

#[test]
fn ttl_01_a_ttl_of_1_in_transit_is_answered_with_time_exceeded() {
    let mut router = Scenario::standard();
    for frame in [Ipv4Frame::udp(), Ipv4Frame::tcp(), Ipv4Frame::raw(253)] {
        router.expect_error4("a", &frame.ttl(1), TTL_EXPIRED, DropReason::TtlExpired);
    }
}

#[test]
fn ttl_02_a_ttl_of_0_in_transit_is_answered_with_time_exceeded() {
    let mut router = Scenario::standard();
    router.expect_error4("a", &Ipv4Frame::udp().ttl(0), TTL_EXPIRED, DropReason::TtlExpired);
}

#[test]
fn ttl_03_an_echo_request_to_the_router_is_answered_whatever_its_ttl() {
    let mut router = Scenario::standard();
    for ttl in [0, 1, 64] {
        router.send("a", &Ipv4Frame::echo().dst("10.1.0.1").ttl(ttl));
        let output = router.only("a");
        let reply = output.icmp();
        assert_eq!((reply.kind, reply.code, reply.rest), (0, 0, [0x12, 0x34, 0, 1]));
        assert_eq!(reply.body, b"payload of icmp!");
        assert_eq!((output.ipv4().src(), output.ipv4().dst()), ([10, 1, 0, 1].into(), [10, 1, 0, 2].into()));
        assert!(output.ipv4().ttl() >= 64);
    }
    // The router also answers for the address of another port.
    router.send("a", &Ipv4Frame::echo().dst("10.2.0.1").ttl(1));
    assert_eq!(router.only("a").ipv4().src(), std::net::Ipv4Addr::from([10, 2, 0, 1]));
}

#[test]
fn ttl_04_a_forwarded_packet_has_exactly_one_hop_less() {
    let mut router = Scenario::standard();
    for ttl in 2..=255 {
        let output = router.expect_forwarded("a", &Ipv4Frame::udp().ttl(ttl), "b");
        assert_eq!(output.ipv4().ttl(), ttl - 1);
    }
}

#[test]
fn ttl_05_a_ttl_of_1_to_a_group_is_dropped_silently() {
    let mut router = Scenario::standard();
    for ttl in [0, 1] {
        router.expect_drop("a", &Ipv4Frame::udp().dst("239.1.1.1").ttl(ttl), DropReason::Multicast);
    }
}

/// Sends copies that can't be forwarded. A copy does not come from the packet's source, so the source gets no
/// error about it.
#[test]
fn ttl_01_a_packet_and_its_copies_cause_one_error_at_most() {
    for action in ["copy-to c via 10.3.0.2", "copy-to c via 10.3.0.77"] {
        let mut router = Scenario::with(&format!("[[filter]]\nmatch = \"in a\"\naction = \"{action}\"\n"));
        router.router.set_mtu("c", 1400);
        router.send("a", &Ipv4Frame::udp().ttl(1));
        assert_eq!(router.only("a").icmp().kind, 11);
        // The packet is too long only for the port of the copy. Or the copy goes to a neighbour that doesn't
        // answer.
        router.send("a", &Ipv4Frame::udp().length(1500).dont_fragment());
        assert_eq!(router.only("b").ipv4().total_len(), 1500);
        router.send("a", &Ipv4Frame::udp());
        router.advance(Duration::from_secs(10));
        let sent = router.take_all();
        assert!(!sent.contains_key("a"), "{sent:?}");
    }
}
