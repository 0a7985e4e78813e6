//! V6: IPv6 and ICMPv6 (RFC 8200; RFC 4443; RFC 4291; RFC 8201).

use std::net::IpAddr;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{Frame, Ipv6Frame, NdFrame, RawFrame, STANDARD, Scenario, station};
use millrace_wire::{MacAddr, Protocol, ipv6, ipv6_ext};

const TTL_EXPIRED: (u8, u8) = (3, 0);

#[test]
fn v6_01_forwarded_packet_differs_only_in_its_decremented_hop_limit() {
    let mut router = Scenario::standard();
    for hops in [2, 64, 255] {
        for class in [0, 0x03, 0xb8, 0xff] {
            let frame = Ipv6Frame::udp().hop_limit(hops).traffic_class(class).flow_label(0xf_edcb);
            let output = router.expect_forwarded("a", &frame, "b");
            let packet = output.ipv6();
            assert_eq!(
                (packet.hop_limit(), packet.traffic_class(), packet.flow_label()),
                (hops - 1, class, 0xf_edcb)
            );
        }
    }
}

#[test]
fn v6_02_a_hop_limit_that_runs_out_in_transit_is_answered() {
    let mut router = Scenario::standard();
    for hops in [0, 1] {
        router.expect_error6("a", &Ipv6Frame::udp().hop_limit(hops), TTL_EXPIRED, DropReason::TtlExpired);
    }
}

#[test]
fn v6_02_an_echo_request_to_the_router_is_answered_whatever_its_hop_limit() {
    let mut router = Scenario::standard();
    for (hops, own) in [(0, "fd00:1::1"), (1, "fd00:1::1"), (64, "fd00:2::1")] {
        router.send("a", &Ipv6Frame::echo().dst(own).hop_limit(hops));
        let reply = router.only("a").icmp();
        assert_eq!((reply.kind, reply.code, reply.rest), (129, 0, [0x12, 0x34, 0, 1]));
        assert_eq!(reply.body, b"payload of icmp!");
        assert_eq!(reply.source, own.parse::<IpAddr>().unwrap());
    }
}

#[test]
fn v6_03_a_wrong_version_or_length_is_dropped_and_padding_is_cut_off() {
    let mut router = Scenario::standard();
    router.expect_drops(
        &[0, 4, 5, 7, 15],
        |version| Ipv6Frame::udp().version(version),
        DropReason::Ip6Version,
    );
    router.expect_drop("a", &Ipv6Frame::udp().payload_length(500), DropReason::Ip6Truncated);
    for length in 0..40 {
        router.expect_drop("a", &Ipv6Frame::udp().cut(length), DropReason::Ip6Short);
    }
    router.expect_drop("a", &Ipv6Frame::udp().cut(61), DropReason::Ip6Truncated);
    // The harness compares the output with the packet without its padding.
    let output = router.expect_forwarded("a", &Ipv6Frame::udp().pad(100), "b");
    assert_eq!(output.network().len(), 62);
}

#[test]
fn v6_04_each_reason_has_its_code() {
    let routes = r#"
        [[route]]
        to = "2001:db8:1::/48"
        kind = "unreachable"

        [[route]]
        to = "2001:db8:2::/48"
        kind = "prohibit"

        [[route]]
        to = "2001:db8:3::/48"
        kind = "blackhole"
        "#;
    let mut router = Scenario::with(routes);
    let to = |destination| Ipv6Frame::udp().dst(destination);
    router.expect_error6("a", &to("2001:db8:ffff::1"), (1, 0), DropReason::NoRoute);
    router.expect_error6("a", &to("2001:db8:2::1"), (1, 1), DropReason::Prohibited);
    router.expect_error6("a", &to("fd00:1::1"), (1, 4), DropReason::LocalUnknown);
    router.expect_error6("a", &to("2001:db8:1::1"), (1, 6), DropReason::Unreachable);
    router.expect_drop("a", &to("2001:db8:3::1"), DropReason::Blackhole);
}

#[test]
fn v6_04_a_link_local_source_does_not_reach_beyond_its_link() {
    let neighbour = "[[neighbour]]\nport = \"a\"\naddress = \"fe80::2\"\nmac = \"02:00:00:00:00:a2\"\n";
    let mut router = Scenario::with(neighbour);
    let frame = Ipv6Frame::udp().src("fe80::2");
    router.expect_error6("a", &frame, (1, 2), DropReason::MartianSource);
    // The same holds when the packet would leave by its arrival port.
    router.expect_error6(
        "a",
        &Ipv6Frame::udp().src("fe80::2").dst("fd00:1::2"),
        (1, 2),
        DropReason::MartianSource,
    );
}

#[test]
fn v6_04_a_silent_neighbour_is_reported_as_an_unreachable_address() {
    let mut router = Scenario::standard();
    let frame = Ipv6Frame::udp().dst("fd00:2::77");
    router.send("a", &frame);
    router.advance(Duration::from_millis(2900));
    assert!(router.take("a").is_empty());
    router.advance(Duration::from_millis(200));
    router.take("b");
    let output = router.only("a");
    router.check_error6("a", &frame, &output, (1, 3));
    assert_eq!(router.dropped(DropReason::NeighbourFailed), 1);
}

#[test]
fn v6_05_packets_are_never_fragmented_but_answered_with_the_mtu() {
    let mut router = Scenario::with_mtu(&[("a", 9000)]);
    for length in [1501, 2000, 9000] {
        let error = router.expect_error6("a", &Ipv6Frame::udp().length(length), (2, 0), DropReason::TooBig);
        assert_eq!(error.rest, 1500u32.to_be_bytes());
    }
    router.expect_forwarded("a", &Ipv6Frame::udp().length(1500), "b");
    // The router doesn't fragment fragments either.
    let fragment = Ipv6Frame::raw(17).fragment(0, true, 7).length(1501);
    router.expect_error6("a", &fragment, (2, 0), DropReason::TooBig);
}

#[test]
fn v6_06_an_mtu_below_1280_is_refused_where_there_is_ipv6() {
    let with_mtu = |mtu| STANDARD.replacen("name = \"b\"\n", &format!("name = \"b\"\nmtu = {mtu}\n"), 1);
    let refused = millrace_controller::offline::OfflineRouter::from_text(&with_mtu(1279));
    let message = refused.expect_err("1279 bytes are too few").to_string();
    assert!(message.contains("1280") && message.contains("\"b\""), "{message}");
    Scenario::new(&with_mtu(1280)).expect_forwarded("a", &Ipv6Frame::udp().length(1280), "b");
}

#[test]
fn v6_07_packets_that_forbid_an_error_get_none() {
    let mut router = Scenario::standard();
    let expired = |frame: Ipv6Frame| frame.hop_limit(1);
    for kind in [1, 2, 3, 4, 100, 127, 137] {
        router.expect_drop("a", &expired(Ipv6Frame::icmp(kind, 0)), DropReason::TtlExpired);
        // The router recognises such a message after an extension header too.
        let hidden = Ipv6Frame::icmp(kind, 0).extension(60, &[0, 1, 4, 0, 0, 0, 0]);
        router.expect_drop("a", &expired(hidden), DropReason::TtlExpired);
    }
    router.expect_drop("a", &expired(Ipv6Frame::udp().dst("ff0e::1")), DropReason::Multicast);
    for to in [MacAddr::BROADCAST, MacAddr([0x33, 0x33, 0, 0, 0, 1])] {
        router.expect_drop("a", &expired(Ipv6Frame::udp().to(to)), DropReason::LinkBroadcast);
    }
    router.expect_drop("a", &expired(Ipv6Frame::udp().src("::")), DropReason::MartianSource);
    router.expect_drop("a", &expired(Ipv6Frame::udp().src("ff02::1")), DropReason::MartianSource);
    // The router does answer ICMPv6 messages that are no errors.
    router.expect_error6("a", &expired(Ipv6Frame::echo()), TTL_EXPIRED, DropReason::TtlExpired);
}

#[test]
fn v6_08_an_error_has_at_most_1280_bytes() {
    let mut router = Scenario::standard();
    for length in [48, 49, 1231, 1232, 1233, 1400, 1500] {
        // The harness compares the quote with the packet, and the length with 1280.
        router.expect_error6(
            "a",
            &Ipv6Frame::udp().length(length).hop_limit(1),
            TTL_EXPIRED,
            DropReason::TtlExpired,
        );
    }
}

#[test]
fn v6_08_errors_are_limited_and_transit_traffic_is_unharmed() {
    let mut router = Scenario::with_settings("icmp-rate = 100\nicmp-burst = 10");
    let expired = Ipv6Frame::udp().hop_limit(1).bytes();
    let (mut errors, mut forwarded) = (0, 0);
    for _ in 0..200 {
        for _ in 0..100 {
            router.router.inject("a", &expired);
        }
        router.send("a", &Ipv6Frame::udp());
        errors += router.take("a").len();
        forwarded += router.take("b").len();
        router.advance(Duration::from_millis(10));
    }
    assert_eq!(forwarded, 200);
    assert!((190..=210).contains(&errors), "{errors} errors in 2 s at 100 a second and 10 at once");
}

#[test]
fn v6_09_link_scoped_addresses_are_not_forwarded() {
    let mut router = Scenario::with("[[route]]\nto = \"::/0\"\nvia = \"fd00:2::2\"\n");
    let sources = ["::", "::1", "ff02::1", "::ffff:1.2.3.4"];
    router.expect_drops(&sources, |source| Ipv6Frame::udp().src(source), DropReason::MartianSource);
    let destinations = ["::", "::1", "::ffff:1.2.3.4", "fe80::1", "febf::1"];
    router.expect_drops(
        &destinations,
        |address| Ipv6Frame::udp().dst(address),
        DropReason::MartianDestination,
    );
    let groups = ["ff00::1", "ff01::1", "ff02::1", "ff02::99", "ff05::1", "ff0e::1"];
    router.expect_drops(&groups, |address| Ipv6Frame::udp().dst(address), DropReason::Multicast);
    router.expect_drop("a", &Ipv6Frame::echo().dst("fe80::1"), DropReason::MartianDestination);
    router.expect_forwarded("a", &Ipv6Frame::udp().dst("2001:db8::1"), "b");
}

#[test]
fn v6_10_extension_headers_in_transit_are_ignored() {
    let mut router = Scenario::standard();
    let pad = [0, 1, 4, 0, 0, 0, 0];
    let frames = [
        Ipv6Frame::raw(253),
        Ipv6Frame::raw(59),
        Ipv6Frame::udp().extension(60, &pad),
        Ipv6Frame::udp().extension(43, &[0, 4, 0, 0, 0, 0, 0]),
        Ipv6Frame::udp()
            .extension(43, &[2, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Ipv6Frame::raw(17).fragment(0, true, 7),
        Ipv6Frame::raw(17).fragment(1448, false, 7),
        Ipv6Frame::udp()
            .extension(51, &[4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        Ipv6Frame::raw(50),
        // An unknown option that hosts would refuse, and headers cut short.
        Ipv6Frame::udp().extension(60, &[0, 0xc2, 4, 0, 0, 0, 0]),
        Ipv6Frame::raw(60).payload(&[17, 9, 1, 4, 0, 0, 0, 0]),
        Ipv6Frame::raw(17).payload(&[1, 2, 3]),
    ];
    for frame in frames {
        router.expect_forwarded("a", &frame, "b");
    }
    let long_chain = (0..100).fold(Ipv6Frame::udp(), |frame, _| frame.extension(60, &pad));
    router.expect_forwarded("a", &long_chain, "b");
}

/// Sends unusual hop-by-hop options: since RFC 8200, 4.3, a router need not process them.
#[test]
fn v6_11_hop_by_hop_options_in_transit_are_ignored() {
    let mut router = Scenario::standard();
    for option in [0x01, 0x1e, 0x5e, 0x9e, 0xde] {
        router.expect_forwarded("a", &Ipv6Frame::udp().extension(0, &[0, option, 4, 0, 0, 0, 0]), "b");
    }
}

/// Compares bytes written by hand: a packet that is too big, and the first bytes of the answer.
#[test]
fn v6_a_packet_too_big_message_byte_by_byte() {
    let mut router = Scenario::standard();
    router.router.set_mtu("b", 1280);
    let mut original = vec![0x60, 0, 0, 0, 0x05, 0x04, 0x3b, 0x40]; // 1284 bytes of nothing (next header 59)
    original.extend([0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    original.extend([0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    original.extend([0; 1284]);
    router.send("a", &RawFrame::new(0x86dd, &original));
    let output = router.only("a");
    assert_eq!((output.to(), output.from()), (station(0xa2), station(0x0a)));
    let mut expected = vec![0x6c, 0, 0, 0, 0x04, 0xd8, 0x3a, 0x40]; // class 0xc0, 1240 bytes, ICMPv6, 64 hops
    expected.extend([0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    expected.extend([0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(output.network()[..40], expected);
    assert_eq!(output.network()[40..42], [2, 0]);
    assert_eq!(output.network()[44..48], [0, 0, 0x05, 0x00]);
    assert_eq!(output.network()[48..], original[..1232]);
}

#[test]
fn v6_04_an_error_to_a_link_local_source_waits_for_its_station() {
    let mut router = Scenario::standard();
    router.send("a", &Ipv6Frame::udp().src("fe80::9").from(station(0xa9)));
    let output = router.only("a");
    assert_eq!(output.ndp().target(), "fe80::9".parse::<std::net::Ipv6Addr>().unwrap());
    let answer = NdFrame::advertisement("fe80::9", "fd00:1::1")
        .dst("fd00:1::1")
        .flags(0x60)
        .target_link(station(0xa9));
    router.send("a", &answer);
    let output = router.only("a");
    assert_eq!((output.to(), output.icmp().kind, output.icmp().code), (station(0xa9), 1, 2));
}

/// Returns first fragments without their upper-layer header: cut within an extension header, right after it,
/// and within TCP.
fn headless() -> Vec<Ipv6Frame> {
    let fragment =
        |protocol: u8, payload: &[u8]| Ipv6Frame::raw(protocol).fragment(0, true, 7).payload(payload);
    vec![
        fragment(60, &[6, 1, 1, 4, 0, 0, 0, 0]),
        fragment(60, &[6, 0, 1, 4, 0, 0, 0, 0]),
        fragment(43, &[60, 0, 4, 0, 0, 0, 0, 0]),
        fragment(6, &[0x03, 0xe8, 0, 23, 0, 0, 0, 1]),
    ]
}

#[test]
fn v6_17_first_fragment_without_upper_layer_header_does_not_pass_a_port_filter() {
    let mut router = Scenario::with("[[filter]]\nmatch = \"proto tcp dport 23\"\naction = \"drop\"\n");
    for _ in 0..2 {
        for frame in &headless() {
            router.expect_drop("a", frame, DropReason::Ip6HeaderChain);
        }
        for frame in Ipv6Frame::tcp().ports(1000, 24).pieces(24, 9) {
            router.expect_forwarded("a", &frame, "b");
        }
    }
    // Without such a filter the router forwards first fragments of this kind.
    let mut router = Scenario::standard();
    for frame in headless() {
        router.expect_forwarded("a", &frame, "b");
    }
}

/// Binds an instance by port: the binding doesn't match packets without readable ports.
#[test]
fn v6_17_a_first_fragment_without_the_upper_layer_header_is_not_of_a_bound_flow() {
    let mut router = Scenario::with(
        r#"
        [[filter]]
        match = "proto tcp dport 23"
        action = "port c via fd00:3::2"
        priority = 1

        [[filter]]
        match = "src fd00:1::2 dst fd00:9::1"
        action = "port b via fd00:2::2"
        "#,
    );
    for _ in 0..2 {
        router.expect_forwarded("a", &Ipv6Frame::tcp().ports(1000, 23), "c");
        for frame in headless() {
            router.expect_drop("a", &frame, DropReason::Ip6HeaderChain);
            // Later fragments belong to the flow that only the addresses identify.
            router.expect_forwarded("a", &Ipv6Frame::raw(6).fragment(1480, false, 7), "b");
        }
    }
}

/// Returns packets that cost parsers the most work: with 100 headers, with 1,000 one-byte options, and with
/// 40 nested packets.
fn long_winded() -> [Ipv6Frame; 3] {
    let chained = (0..100).fold(Ipv6Frame::tcp(), |frame, _| frame.extension(60, &[0, 1, 4, 0, 0, 0, 0]));
    // Two octets of header and 1,006 octets of options.
    let padded = Ipv6Frame::tcp().extension(0, &[&[125][..], &[0; 1006]].concat());
    let inner =
        (0..40).fold(Ipv6Frame::tcp().packet(), |inner, _| Ipv6Frame::raw(41).payload(&inner).packet());
    [chained, padded, Ipv6Frame::raw(41).payload(&inner)]
}

#[test]
fn v6_18_header_walk_is_bounded() {
    let walk = |frame: &Ipv6Frame| {
        let packet = frame.packet();
        ipv6_ext::walk(&ipv6::Packet::new_checked(&packet[..]).expect("a whole header"))
    };
    let [chained, padded, nested] = long_winded();
    let nine = (0..9).fold(Ipv6Frame::tcp(), |frame, _| frame.extension(60, &[0, 1, 4, 0, 0, 0, 0]));
    // Headers after the last parsed one make no difference.
    assert_eq!(walk(&chained), walk(&nine));
    assert_eq!((walk(&chained).headers, walk(&chained).end), (ipv6_ext::DEFAULT_LIMIT, ipv6_ext::End::Limit));
    // One header is one step, whatever its content. The parser doesn't read the content of the upper layer.
    assert_eq!((walk(&padded).headers, walk(&padded).upper_layer()), (1, Some((Protocol::TCP, 40 + 1008))));
    assert_eq!((walk(&nested).headers, walk(&nested).upper_layer()), (0, Some((Protocol(41), 40))));
}

#[test]
fn v6_18_long_header_chains_are_forwarded_and_do_not_pass_a_port_filter() {
    let [chained, padded, nested] = long_winded();
    let mut router = Scenario::with_mtu(&[("a", 9000), ("b", 9000)]);
    for frame in [&chained, &padded, &nested] {
        router.expect_forwarded("a", frame, "b");
    }
    let filter =
        |filter: &str| Scenario::with(&format!("[[filter]]\nmatch = \"{filter}\"\naction = \"drop\"\n"));
    let mut other = filter("proto tcp dport 2001");
    for _ in 0..2 {
        // Any protocol may follow the long chain, so the filter might match the packet. The padded packet has
        // a readable port.
        other.expect_drop("a", &chained, DropReason::Ip6HeaderChain);
        other.expect_forwarded("a", &padded, "b");
    }
    let mut this = filter("proto tcp dport 2000");
    this.expect_drop("a", &chained, DropReason::Ip6HeaderChain);
    this.expect_drop("a", &padded, DropReason::Filter);
}

/// Compares the 99th percentile of a batch's time with that of plain packets of the same length. The result
/// is the median of several tries, because a pause of the machine affects only one or two of them. `bench
/// headers` measures a release build.
#[test]
fn v6_18_long_chains_take_at_most_twice_the_time_of_plain_packets() {
    const BATCH: usize = 64;
    const BATCHES: usize = 100;
    const TRIES: usize = 5;
    let mut router = Scenario::with_mtu(&[("a", 9000), ("b", 9000)]);
    let mut time = |frame: &[u8]| {
        (0..BATCH).for_each(|_| router.router.inject("a", frame));
        let start = std::time::Instant::now();
        router.router.run();
        let time = start.elapsed();
        assert_eq!(router.take("b").len(), BATCH);
        time
    };
    for frame in long_winded() {
        let frame = frame.bytes();
        let headers = Ipv6Frame::tcp().payload(&[]).bytes().len();
        let plain = Ipv6Frame::tcp().payload(&vec![0; frame.len() - headers]).bytes();
        assert_eq!(plain.len(), frame.len());
        let mut ratio = || {
            let (mut plains, mut longs): (Vec<_>, Vec<_>) =
                (0..BATCHES).map(|_| (time(&plain), time(&frame))).unzip();
            let [plain, long] = [&mut plains, &mut longs].map(|times| {
                times.sort();
                times[BATCHES * 99 / 100 - 1].as_secs_f64()
            });
            long / plain
        };
        let mut ratios = [0.0; TRIES].map(|_| ratio());
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[TRIES / 2] <= 2.0, "a frame of {} bytes: {ratios:?}", frame.len());
    }
}
