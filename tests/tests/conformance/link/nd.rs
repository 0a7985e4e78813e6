//! ND: neighbour discovery on ports without a kernel (RFC 4861; RFC 6583; RFC 6980).

use std::net::Ipv6Addr;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{Frame, Ipv6Frame, NdFrame, STANDARD, Scenario, station};
use millrace_wire::MacAddr;
use millrace_wire::icmpv6::Type;
use millrace_wire::ndp::{Flags, option};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns a packet to a neighbour that must be resolved.
fn to_neighbour() -> Ipv6Frame {
    Ipv6Frame::udp().dst("fd00:2::77")
}

/// Returns the neighbour's solicited advertisement, from the station `02:00:00:00:00:xx` with the last byte
/// `mac`.
fn advertisement(mac: u8, flags: u8) -> NdFrame {
    let answer = NdFrame::advertisement("fd00:2::77", "fd00:2::1").dst("fd00:2::1");
    answer.to(station(0x0b)).from(station(mac)).target_link(station(mac)).flags(flags)
}

const SOLICITED_OVERRIDE: u8 = 0x60;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

fn solicitation() -> NdFrame {
    NdFrame::solicitation("fd00:1::9", "fd00:1::1").from(station(0xa9)).source_link(station(0xa9))
}

fn learned() -> Scenario {
    let mut router = Scenario::standard();
    router.send("a", &to_neighbour());
    router.send("b", &advertisement(0x77, SOLICITED_OVERRIDE));
    assert_eq!(router.take("b")[1].to(), station(0x77));
    router
}

/// Returns the MAC address to which the router sends packets for the neighbour; `None` when it has to resolve
/// the neighbour first.
fn neighbour(router: &mut Scenario) -> Option<MacAddr> {
    router.send("a", &to_neighbour());
    let sent = router.take("b");
    sent.iter().find(|output| output.ipv6().next_header().0 == 17).map(|output| output.to())
}

#[test]
fn nd_01_invalid_messages_are_ignored() {
    let mut router = Scenario::standard();
    let unspecified = || NdFrame::solicitation("::", "fd00:1::1").from(station(0xa9));
    let wrong = [
        solicitation().hop_limit(254),
        solicitation().code(1),
        solicitation().checksum_xor(1),
        solicitation().option(&[1, 0, 0, 0, 0, 0, 0, 0]),
        solicitation().option(&[14, 2, 0, 0, 0, 0, 0, 0]),
        NdFrame::solicitation("fd00:1::9", "ff02::1").from(station(0xa9)),
        unspecified().source_link(station(0xa9)),
    ];
    for frame in wrong {
        router.expect_drop("a", &frame, DropReason::NeighbourMessage);
    }
    router.expect_drop("a", &unspecified().dst("fd00:1::1"), DropReason::MartianSource);
    let advertisement = || advertisement(0x77, SOLICITED_OVERRIDE);
    let wrong = [
        advertisement().hop_limit(254),
        advertisement().code(1),
        advertisement().checksum_xor(1),
        advertisement().option(&[1, 0, 0, 0, 0, 0, 0, 0]),
        advertisement().dst("ff02::1").to(MacAddr::from_ipv6_multicast(ALL_NODES)),
    ];
    router.send("a", &to_neighbour());
    router.take("b");
    for frame in wrong {
        router.expect_drop("b", &frame, DropReason::NeighbourMessage);
    }
    router.send("b", &advertisement());
    assert_eq!(router.only("b").to(), station(0x77));
}

#[test]
fn nd_02_a_solicitation_is_answered() {
    let own: Ipv6Addr = "fd00:1::1".parse().unwrap();
    let mut router = Scenario::standard();
    for frame in [solicitation(), solicitation().dst("fd00:1::1")] {
        router.send("a", &frame);
        let output = router.only("a");
        assert_eq!((output.to(), output.from()), (station(0xa9), station(0x0a)));
        let (packet, message) = (output.ipv6(), output.ndp());
        assert_eq!((packet.src(), packet.dst()), (own, "fd00:1::9".parse().unwrap()));
        assert_eq!((message.message_type(), message.target()), (Type::NEIGHBOUR_ADVERTISEMENT, own));
        assert!(message.flags().contains(Flags::ROUTER) && message.flags().contains(Flags::SOLICITED));
        assert_eq!(message.link_address(option::TARGET_LINK_ADDRESS), Some(station(0x0a)));
    }
}

#[test]
fn nd_02_a_solicitation_from_the_unspecified_address_is_answered_to_all() {
    let mut router = Scenario::standard();
    router.send("a", &NdFrame::solicitation("::", "fd00:1::1").from(station(0xa9)));
    let output = router.only("a");
    assert_eq!((output.to(), output.ipv6().dst()), (MacAddr::from_ipv6_multicast(ALL_NODES), ALL_NODES));
    let flags = output.ndp().flags();
    assert!(flags.contains(Flags::ROUTER) && !flags.contains(Flags::SOLICITED));
    assert_eq!(output.ndp().link_address(option::TARGET_LINK_ADDRESS), Some(station(0x0a)));
}

#[test]
fn nd_02_sender_of_a_solicitation_for_the_router_is_learned() {
    let mut router = Scenario::standard();
    let frame =
        NdFrame::solicitation("fd00:2::77", "fd00:2::1").from(station(0x77)).source_link(station(0x77));
    router.send("b", &frame);
    router.take("b");
    assert_eq!(neighbour(&mut router), Some(station(0x77)));
}

#[test]
fn nd_03_a_silent_neighbour_is_solicited_three_times_then_reported() {
    let mut router = Scenario::standard();
    let frame = to_neighbour();
    router.send("a", &frame);
    let target: Ipv6Addr = "fd00:2::77".parse().unwrap();
    let group: Ipv6Addr = "ff02::1:ff00:77".parse().unwrap();
    let mut solicited = Vec::new();
    for tenth in 0..29 {
        for output in router.take("b") {
            assert_eq!((output.to(), output.ipv6().dst()), (MacAddr::from_ipv6_multicast(group), group));
            assert_eq!(output.ipv6().src(), "fd00:2::1".parse::<Ipv6Addr>().unwrap());
            let message = output.ndp();
            assert_eq!((message.message_type(), message.target()), (Type::NEIGHBOUR_SOLICITATION, target));
            assert_eq!(message.link_address(option::SOURCE_LINK_ADDRESS), Some(station(0x0b)));
            solicited.push(tenth);
        }
        assert_eq!(router.router.summary().held, 1);
        router.advance(Duration::from_millis(100));
    }
    assert_eq!(solicited, [0, 10, 20]);
    router.advance(Duration::from_millis(200));
    let output = router.only("a");
    router.check_error6("a", &frame, &output, (1, 3));
}

#[test]
fn nd_04_an_unsolicited_advertisement_does_not_create_a_neighbour() {
    let mut router = Scenario::standard();
    router.expect_delivered("b", &advertisement(0x77, OVERRIDE));
    router.expect_delivered("b", &advertisement(0x77, SOLICITED_OVERRIDE));
    assert_eq!(neighbour(&mut router), None);
}

#[test]
fn nd_04_only_with_the_override_flag_an_advertisement_changes_the_station() {
    let mut router = learned();
    for flags in [0, SOLICITED] {
        router.expect_delivered("b", &advertisement(0x78, flags));
        assert_eq!(neighbour(&mut router), Some(station(0x77)), "flags {flags:#x}");
    }
    for (mac, flags) in [(0x78, OVERRIDE), (0x79, SOLICITED_OVERRIDE)] {
        router.expect_delivered("b", &advertisement(mac, flags));
        assert_eq!(neighbour(&mut router), Some(station(mac)), "flags {flags:#x}");
    }
}

#[test]
fn nd_04_a_neighbour_that_falls_silent_is_probed_and_then_gone() {
    let mut router = learned();
    let mut probes = 0;
    for _ in 0..60 {
        router.send("a", &to_neighbour());
        let solicitations = |output: &&millrace_tests::Output| output.ipv6().next_header().0 == 58;
        let sent = router.take("b");
        if sent.iter().filter(solicitations).any(|output| output.to() != station(0x77)) {
            // After the unicast probes, the router solicits the neighbour's multicast group again.
            assert_eq!(probes, 3, "first it is asked itself, three times");
            router.advance(Duration::from_secs(5));
            router.take_all();
            return;
        }
        probes += sent.iter().filter(solicitations).count();
        router.advance(Duration::from_secs(1));
    }
    panic!("after a minute of silence packets still go there, {probes} probes");
}

#[test]
fn nd_04_a_neighbour_that_answers_probes_stays() {
    let mut router = learned();
    for second in 0..120 {
        assert_eq!(neighbour(&mut router), Some(station(0x77)), "second {second}");
        router.advance(Duration::from_secs(1));
        if router.take("b").iter().any(|output| output.ipv6().next_header().0 == 58) {
            router.send("b", &advertisement(0x77, SOLICITED));
        }
    }
}

/// Ports without a kernel send no router advertisements: see `docs/decisions.md`.
#[test]
fn nd_05_router_solicitations_are_ignored() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &NdFrame::router_solicitation("fe80::9"), DropReason::NeighbourMessage);
    router.expect_drop(
        "a",
        &NdFrame::router_solicitation("fe80::9").hop_limit(64),
        DropReason::NeighbourMessage,
    );
    let with_address = NdFrame::router_solicitation("::").source_link(station(0xa9));
    router.expect_drop("a", &with_address, DropReason::NeighbourMessage);
}

/// Returns the standard router with a link-local address at port a, and a route to 2001:db8::/32 by another
/// router on that link.
fn with_better_router(gateway: &str) -> Scenario {
    let configuration = STANDARD.replacen("\"fd00:1::1/64\"", "\"fd00:1::1/64\", \"fe80::a/64\"", 1);
    let more = format!(
        r#"
        [[neighbour]]
        port = "a"
        address = "{gateway}"
        mac = "02:00:00:00:00:a3"

        [[route]]
        to = "2001:db8::/32"
        via = "{gateway}"
        port = "a"
        "#
    );
    Scenario::new(&format!("{configuration}{more}"))
}

#[test]
fn nd_07_host_gets_a_redirect_to_a_better_first_hop() {
    let mut router = with_better_router("fe80::3");
    router.send("a", &Ipv6Frame::udp().dst("2001:db8::1"));
    let (redirects, forwarded): (Vec<_>, Vec<_>) =
        router.take("a").into_iter().partition(|output| output.ipv6().next_header().0 == 58);
    assert_eq!((redirects.len(), forwarded.len()), (1, 1));
    assert_eq!(forwarded[0].to(), station(0xa3));
    let output = &redirects[0];
    assert_eq!(output.to(), station(0xa2));
    assert_eq!(output.ipv6().src(), "fe80::a".parse::<Ipv6Addr>().unwrap());
    let message = output.ndp();
    assert_eq!(message.message_type(), Type::REDIRECT);
    assert_eq!(message.target(), "fe80::3".parse::<Ipv6Addr>().unwrap());
    assert_eq!(message.destination(), Some("2001:db8::1".parse().unwrap()));
    assert_eq!(message.link_address(option::TARGET_LINK_ADDRESS), Some(station(0xa3)));
}

/// RFC 4291, 2.5.6: routers don't forward packets with a link-local source.
#[test]
fn v6_04_an_error_through_a_link_local_gateway_has_a_source_that_routers_forward() {
    let mut router = with_better_router("fe80::3");
    router.send("a", &Ipv6Frame::udp().src("2001:db8::1").hop_limit(1));
    let error = router.only("a");
    assert_eq!(error.to(), station(0xa3));
    assert_eq!(error.ipv6().src(), "fd00:1::1".parse::<Ipv6Addr>().unwrap());
}

#[test]
fn nd_07_redirects_are_limited_and_sent_only_to_neighbours() {
    let mut router = with_better_router("fe80::3");
    for _ in 0..200 {
        router.send("a", &Ipv6Frame::udp().dst("2001:db8::1"));
    }
    let redirects = router.take("a").iter().filter(|output| output.ipv6().next_header().0 == 58).count();
    assert_eq!(redirects, 50, "as many as the limit lets out at once");
    router.advance(Duration::from_secs(1));
    let far = Ipv6Frame::udp().src("fd00:5::1").dst("2001:db8::1");
    router.send("a", &far);
    assert_eq!(router.only("a").to(), station(0xa3));
}

#[test]
fn nd_07_redirect_names_an_on_link_destination_as_its_own_first_hop() {
    let mut router = with_better_router("fe80::3");
    router.send("a", &Ipv6Frame::udp().src("fd00:1::9").dst("fd00:1::2"));
    let sent = router.take("a");
    assert_eq!(sent[0].to(), station(0xa2), "forwarded all the same");
    // The router sends the redirect once it has resolved the destination host.
    assert_eq!(sent[1].ndp().target(), "fd00:1::9".parse::<Ipv6Addr>().unwrap());
    let answer = NdFrame::advertisement("fd00:1::9", "fd00:1::1").dst("fd00:1::1").flags(SOLICITED_OVERRIDE);
    router.send("a", &answer.from(station(0xa9)).target_link(station(0xa9)));
    let output = router.only("a");
    let there: Ipv6Addr = "fd00:1::2".parse().unwrap();
    assert_eq!(
        (output.to(), output.ndp().target(), output.ndp().destination()),
        (station(0xa9), there, Some(there))
    );
}

/// The only gateway has a global address: a host would ignore a redirect to it (RFC 4861, 8.1).
#[test]
fn nd_07_no_redirect_to_a_router_with_only_a_global_address() {
    let mut router = with_better_router("fd00:1::3");
    router.send("a", &Ipv6Frame::udp().dst("2001:db8::1"));
    assert_eq!(router.only("a").to(), station(0xa3));
}

#[test]
fn nd_07_the_router_is_not_redirected_itself() {
    let mut router = Scenario::standard();
    for from in ["fe80::b2", "fd00:2::2"] {
        let redirect = NdFrame::redirect(from, "fd00:2::1", "fe80::ee", "fd00:9::1")
            .to(station(0x0b))
            .from(station(0xb2));
        router.expect_drop("b", &redirect, DropReason::NeighbourMessage);
    }
    router.expect_forwarded("a", &Ipv6Frame::udp(), "b");
}

#[test]
fn nd_08_messages_in_fragments_are_ignored() {
    let mut router = Scenario::standard();
    router.send("a", &solicitation().fragmented());
    router.send("a", &NdFrame::solicitation("fd00:1::9", "fd00:1::1").dst("fd00:1::1").fragmented());
    router.send("a", &NdFrame::router_advertisement("fe80::ee").fragmented());
    router.nothing();
    assert_eq!(router.router.summary().to_host, 0);
    assert_eq!(router.drops().values().sum::<u64>(), 3);
}

#[test]
fn nd_09_scan_of_a_subnet_is_limited_and_keeps_known_neighbours() {
    let mut router = Scenario::standard();
    let mut solicitations = 0;
    // The scan covers 20,000 addresses at 5,000 per second.
    for round in 0..200u16 {
        for last in 0..100u16 {
            router
                .router
                .inject("a", &Ipv6Frame::udp().dst(&format!("fd00:2::1:{round:x}:{last:x}")).bytes());
        }
        router.router.run();
        solicitations += router.take("b").iter().filter(|output| output.ipv6().next_header().0 == 58).count();
        router.take_all();
        router.send("a", &Ipv6Frame::udp());
        assert!(router.take("b").iter().any(|output| output.to() == station(0xb2)), "round {round}");
        router.advance(Duration::from_millis(20));
    }
    assert!(solicitations > 200, "{solicitations}");
    assert!(solicitations <= 3 * (50 + 4 * 200), "{solicitations} in 4 s");
    assert!(router.router.summary().held <= 1024);
    router.advance(Duration::from_secs(30));
    assert_eq!(router.router.summary().held, 0);
    router.take_all();
}

#[test]
fn nd_10_a_solicitation_for_another_address_is_not_answered() {
    let mut router = Scenario::standard();
    for target in ["fd00:1::77", "fd00:2::1", "fd00:9::1", "fe80::77"] {
        router.expect_delivered("a", &NdFrame::solicitation("fd00:1::9", target).source_link(station(0xa2)));
    }
}

#[test]
fn nd_10_a_router_advertisement_changes_nothing() {
    let mut router = Scenario::standard();
    // The advertisement contains an on-link prefix and comes from a default router's address.
    let prefix = [
        &[3, 4, 64, 0xc0, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 0][..],
        &[0x20, 1, 0xd, 0xb8],
        &[0; 12],
    ]
    .concat();
    let frame = NdFrame::router_advertisement("fe80::ee").source_link(station(0xee)).option(&prefix);
    router.expect_drop("a", &frame, DropReason::NeighbourMessage);
    router.expect_error6("a", &Ipv6Frame::udp().dst("2001:db8::1"), (1, 0), DropReason::NoRoute);
}

/// Solicits from sources of other links, which the router answers without learning them. It learns sources of
/// an on-link prefix and link-local sources.
#[test]
fn nd_04_a_solicitation_from_another_link_is_answered_and_not_learned() {
    let routes = ["fd00:99::77", "fd00:2::77", "fe80::77"]
        .map(|via| (via, via.replace("fd00:", "fd01:").replace("fe80:", "fd02:")));
    let more = routes
        .iter()
        .map(|(via, to)| format!("[[route]]\nto = \"{to}/128\"\nvia = \"{via}\"\nport = \"b\"\n"));
    let mut router = Scenario::with(&more.collect::<String>());
    for ((source, destination), is_learned) in routes.iter().zip([false, true, true]) {
        let solicitation = NdFrame::solicitation(source, "fd00:2::1");
        router.send("b", &solicitation.from(station(0x77)).source_link(station(0x77)));
        assert_eq!(router.only("b").ndp().message_type(), Type::NEIGHBOUR_ADVERTISEMENT, "{source}");
        router.send("a", &Ipv6Frame::udp().dst(destination));
        let forwarded = router.take("b").iter().any(|output| output.to() == station(0x77));
        assert_eq!(forwarded, is_learned, "{source}");
    }
}

/// Sends 8,400 solicitations from absent hosts in 6 seconds. Then new neighbours of the flooded port and of
/// another port must be learned.
#[test]
fn nd_09_a_flood_of_solicitations_leaves_room_for_wanted_neighbours() {
    let mut router = Scenario::standard();
    for number in 0..8400 {
        let source = format!("fd00:2::bad:{number:x}");
        let flood =
            NdFrame::solicitation(&source, "fd00:2::1").from(station(0x66)).source_link(station(0x66));
        router.send("b", &flood);
        router.take("b");
        if number % 140 == 0 {
            router.advance(Duration::from_millis(100));
        }
    }
    router.send("a", &to_neighbour());
    router.send("b", &advertisement(0x77, SOLICITED_OVERRIDE));
    assert_eq!(neighbour(&mut router), Some(station(0x77)), "of the flooded port");
    router.take("b");
    router.send("b", &Ipv6Frame::udp().src("fd00:2::2").dst("fd00:1::78").to(station(0x0b)));
    let answer = NdFrame::advertisement("fd00:1::78", "fd00:1::1").dst("fd00:1::1");
    let answer =
        answer.to(station(0x0a)).from(station(0x78)).target_link(station(0x78)).flags(SOLICITED_OVERRIDE);
    router.send("a", &answer);
    let sent = router.take("a");
    assert_eq!(sent.last().map(|output| output.to()), Some(station(0x78)), "of another port");
}
