//! FR and JU: fragments, and packets of several buffers (RFC 791, 3.2; RFC 1191; RFC 1812, 4.2.2.7 and
//! 5.2.6).

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, Ipv6Frame, Output, Scenario, station};

/// Returns a router whose ports take jumbo frames.
fn jumbo() -> Scenario {
    Scenario::with_mtu(&[("a", 65_535), ("b", 65_535)])
}

/// Reassembles fragments, and compares the header of each with that of the original packet.
fn reassemble(fragments: &[Output], original: &[u8], mtu: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let packet = fragment.ipv4();
        let last = index + 1 == fragments.len();
        assert!(usize::from(packet.total_len()) <= mtu, "{fragment:?} is longer than {mtu}");
        assert_eq!(usize::from(packet.total_len()), fragment.network().len(), "{fragment:?}");
        assert_eq!(packet.more_fragments(), !last, "fragment {index} of {}", fragments.len());
        assert_eq!(usize::from(packet.fragment_offset()), payload.len(), "{fragment:?}");
        assert!(last || packet.payload().len() % 8 == 0, "{fragment:?}");
        assert_eq!((fragment.to(), fragment.from()), (station(0xb2), station(0x0b)));
        // TOS, identification, protocol, addresses.
        let header = packet.header();
        assert_eq!(header[1], original[1]);
        assert_eq!(header[4..6], original[4..6]);
        assert_eq!((header[8], header[9]), (original[8] - 1, original[9]));
        assert_eq!(header[12..20], original[12..20]);
        payload.extend(packet.payload());
    }
    payload
}

#[test]
fn fr_01_fragments_fit_and_make_the_packet_again() {
    let mut router = jumbo();
    for mtu in [1500u16, 68, 576, 1006, 69, 1499] {
        router.router.set_mtu("b", mtu);
        for length in [usize::from(mtu) + 1, 4000, 9000] {
            let frame = Ipv4Frame::udp().length(length).tos(0x28);
            router.send("a", &frame);
            let fragments = router.take("b");
            assert!(fragments.len() > 1);
            let original = frame.packet();
            assert_eq!(
                reassemble(&fragments, &original, mtu.into()),
                original[20..],
                "{length} bytes at MTU {mtu}"
            );
        }
    }
    router.nothing();
}

#[test]
fn fr_01_each_fragment_but_the_last_is_as_long_as_it_may_be() {
    let mut router = jumbo();
    router.router.set_mtu("b", 1500);
    router.send("a", &Ipv4Frame::udp().length(4000));
    let lengths: Vec<u16> = router.take("b").iter().map(|fragment| fragment.ipv4().total_len()).collect();
    assert_eq!(lengths, [1500, 1500, 1040]);
    let summary = router.router.summary();
    assert_eq!(
        (summary.received, summary.created, summary.transmitted),
        (1, 2 + announcements(), 3 + announcements())
    );
}

/// Returns the number of announcements that the standard scenario's ports send at start: one per address.
fn announcements() -> u64 {
    Scenario::standard().router.summary().transmitted
}

#[test]
fn fr_02_a_middle_fragment_stays_in_the_middle() {
    let mut router = jumbo();
    router.router.set_mtu("b", 576);
    let frame = Ipv4Frame::raw(17).length(1500).offset(2960).more_fragments();
    router.send("a", &frame);
    let fragments = router.take("b");
    let mut next = 2960;
    for fragment in &fragments {
        let packet = fragment.ipv4();
        assert!(packet.more_fragments(), "{fragment:?}");
        assert_eq!(packet.fragment_offset(), next);
        next += packet.payload().len() as u16;
    }
    assert_eq!(next, 2960 + 1480);
}

#[test]
fn fr_02_a_last_fragment_ends_with_a_last_fragment() {
    let mut router = jumbo();
    router.router.set_mtu("b", 576);
    let frame = Ipv4Frame::raw(17).length(1501).offset(4440);
    router.send("a", &frame);
    let fragments = router.take("b");
    let more: Vec<bool> = fragments.iter().map(|fragment| fragment.ipv4().more_fragments()).collect();
    assert_eq!(more, [true, true, false]);
    let offsets: Vec<u16> = fragments.iter().map(|fragment| fragment.ipv4().fragment_offset()).collect();
    assert_eq!(offsets, [4440, 4440 + 552, 4440 + 1104]);
    let payload: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.ipv4().payload().to_vec()).collect();
    assert_eq!(payload, frame.packet()[20..]);
}

#[test]
fn fr_03_later_fragments_have_only_copied_options() {
    let mut router = jumbo();
    router.router.set_mtu("b", 576);
    // The options are: record route (not copied), no operation, an unknown copied option, an unknown option
    // that is not copied.
    let options = [7, 7, 4, 0, 0, 0, 0, 1, 0x9e, 4, 0xaa, 0xbb, 0x1e, 4, 0xcc, 0xdd];
    let frame = Ipv4Frame::udp().options(&options).length(1500);
    router.send("a", &frame);
    let fragments = router.take("b");
    assert_eq!(fragments.len(), 3);
    for (index, fragment) in fragments.iter().enumerate() {
        let packet = fragment.ipv4();
        let expected: &[u8] = if index == 0 { &options } else { &[0x9e, 4, 0xaa, 0xbb] };
        assert_eq!(&packet.header()[20..], expected, "fragment {index}");
        assert!(packet.total_len() <= 576);
    }
    let payload: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.ipv4().payload().to_vec()).collect();
    assert_eq!(payload, frame.packet()[36..]);
}

#[test]
fn fr_04_a_packet_not_to_be_fragmented_is_answered_with_the_mtu() {
    let mut router = jumbo();
    router.router.set_mtu("b", 1500);
    for length in [1501, 4000, 9000] {
        let frame = Ipv4Frame::udp().length(length).dont_fragment();
        let error = router.expect_error4("a", &frame, (3, 4), DropReason::TooBig);
        assert_eq!(error.rest, [0, 0, 0x05, 0xdc]);
    }
    router.expect_forwarded("a", &Ipv4Frame::udp().length(1500).dont_fragment(), "b");
}

#[test]
fn fr_05_fragments_in_transit_are_forwarded_at_once_in_any_order() {
    let mut router = Scenario::standard();
    let fragment = |offset: u16| Ipv4Frame::raw(17).length(1500).offset(offset);
    router.expect_forwarded("a", &fragment(2960), "b");
    router.expect_forwarded("a", &fragment(1480).more_fragments(), "b");
    router.expect_forwarded("a", &fragment(0).more_fragments(), "b");
    // The router holds none of the fragments.
    assert_eq!(router.router.summary().held, 0);
}

#[test]
fn fr_12_a_changed_mtu_holds_from_the_next_packet_on() {
    let mut router = Scenario::standard();
    let frame = |length| Ipv4Frame::udp().length(length).dont_fragment();
    for _ in 0..3 {
        router.expect_forwarded("a", &frame(1500), "b");
        router.router.set_mtu("b", 1400);
        for length in [1401, 1500] {
            let error = router.expect_error4("a", &frame(length), (3, 4), DropReason::TooBig);
            assert_eq!(error.rest, [0, 0, 0x05, 0x78]);
        }
        router.expect_forwarded("a", &frame(1400), "b");
        router.send("a", &Ipv4Frame::udp().length(1500));
        let lengths: Vec<u16> = router.take("b").iter().map(|fragment| fragment.ipv4().total_len()).collect();
        assert_eq!(lengths, [1396, 124]);
        router.router.set_mtu("b", 1500);
    }
}

#[test]
fn fr_12_a_changed_mtu_holds_for_packets_that_wait_for_a_neighbour() {
    let mut router = Scenario::standard();
    let frame = Ipv4Frame::udp().dst("10.2.0.77").length(1500).dont_fragment();
    router.send("a", &frame);
    assert_eq!(router.only("b").arp().target_ip, Ipv4Addr::from([10, 2, 0, 77]));
    router.router.set_mtu("b", 1400);
    router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)).sender(station(0x77)));
    let output = router.only("a");
    let error = router.check_error4("a", &frame, &output, (3, 4));
    assert_eq!(error.rest, [0, 0, 0x05, 0x78]);
    assert_eq!(router.dropped(DropReason::TooBig), 1);
}

#[test]
fn ju_01_jumbo_packets_pass_intact() {
    let mut router = jumbo();
    for length in [1500, 1501, 2000, 2048, 2049, 4095, 4096, 4097, 9000, 16_000, 65_535] {
        router.expect_forwarded("a", &Ipv4Frame::udp().length(length).dont_fragment(), "b");
        router.expect_forwarded("a", &Ipv6Frame::udp().length(length), "b");
    }
}

#[test]
fn ju_01_jumbo_packets_to_a_small_mtu_are_fragmented_or_answered() {
    let mut router = Scenario::with_mtu(&[("a", 9000)]);
    let frame = Ipv4Frame::udp().length(9000);
    router.send("a", &frame);
    let fragments = router.take("b");
    assert_eq!(fragments.len(), 7);
    assert_eq!(reassemble(&fragments, &frame.packet(), 1500), frame.packet()[20..]);
    let error = router.expect_error4("a", &frame.dont_fragment(), (3, 4), DropReason::TooBig);
    assert_eq!(error.rest, [0, 0, 0x05, 0xdc]);
}

/// Sends frames longer than the MTU. Ports segment GSO packets, so the router refuses a frame that is still
/// too long.
#[test]
fn ju_02_a_frame_longer_than_the_mtu_is_refused_and_counted() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv4Frame::tcp().length(65_535), DropReason::LinkOversize);
    router.expect_drop("a", &Ipv4Frame::tcp().length(1501), DropReason::LinkOversize);
    // BIG TCP: the total length exceeds its field, which is 0.
    let big = Ipv4Frame::tcp().total_length(0).payload(&[0; 100]);
    router.expect_drop("a", &big, DropReason::Ip4TotalLength);
    assert_eq!(big.bytes()[16..18], [0, 0]);
}

/// Returns a router that drops what one filter at a gate matches.
fn no_telnet(filter: &str, gate: &str) -> Scenario {
    Scenario::with(&format!("[[filter]]\nmatch = \"{filter}\"\naction = \"drop\"\ngate = \"{gate}\"\n"))
}

/// Sends tiny first fragments (RFC 1858, 3.1), which end before the flags, or even within the ports.
#[test]
fn fr_09_tiny_first_fragment_does_not_pass_a_filter() {
    for gate in ["firewall", "route"] {
        for filter in ["proto tcp dport 23", "dport 23", "proto tcp flags syn/syn+ack"] {
            let mut router = no_telnet(filter, gate);
            let connection = Ipv4Frame::tcp().ports(1000, 23).flags(2);
            for identification in 0..3 {
                let pieces = connection.clone().id(identification).pieces(8);
                router.expect_drop("a", &pieces[0], DropReason::Ip4Fragment);
                router.expect_drop("a", &pieces[1], DropReason::Ip4Fragment);
                // Then the same fragments in another order.
                let pieces = connection.clone().id(identification + 10).pieces(8);
                router.expect_drop("a", &pieces[1], DropReason::Ip4Fragment);
                router.expect_drop("a", &pieces[0], DropReason::Ip4Fragment);
                let pieces = connection.clone().id(identification + 20).pieces(16);
                router.expect_drop("a", &pieces[0], DropReason::Ip4Fragment);
            }
            // A first fragment with the whole header passes if no filter refuses it.
            for piece in Ipv4Frame::tcp().ports(1000, 24).pieces(24) {
                router.expect_forwarded("a", &piece, "b");
            }
        }
    }
}

/// Sends later fragments that would overwrite header fields checked by a filter in the first fragment (RFC
/// 1858, 3.2, and RFC 3128).
#[test]
fn fr_09_overlapping_fragment_does_not_change_a_filtered_header() {
    for filter in ["proto tcp dport 23", "proto tcp flags syn/syn+ack", "proto udp dport 53"] {
        let mut router = no_telnet(filter, "firewall");
        let innocent = Ipv4Frame::tcp().ports(1000, 80).id(1).pieces(24);
        router.expect_forwarded("a", &innocent[0], "b");
        // Both fragments would overwrite the TCP header from byte 8 on. One is the last fragment, the other
        // is not.
        for part in [Ipv4Frame::raw(6).offset(8).id(1), Ipv4Frame::raw(6).offset(8).more_fragments().id(1)] {
            router.expect_drop("a", &part, DropReason::Ip4Fragment);
        }
        router.expect_forwarded("a", &innocent[1], "b");
        // A protocol with a shorter header may have a fragment at this offset.
        router.expect_forwarded("a", &Ipv4Frame::raw(132).offset(8).id(2), "b");
    }
    // RFC 3128: another first fragment repeats the whole header with another port.
    let mut router = no_telnet("proto tcp dport 23", "firewall");
    router.expect_forwarded("a", &Ipv4Frame::tcp().ports(1000, 80).id(1).pieces(24)[0], "b");
    for (size, reason) in [(8, DropReason::Ip4Fragment), (24, DropReason::Filter)] {
        let again = Ipv4Frame::tcp().ports(1000, 23).id(1).pieces(size);
        router.expect_drop("a", &again[0], reason);
    }
    let overlap = |offset| Ipv6Frame::raw(6).fragment(offset, false, 9);
    router.expect_drop("a", &overlap(8), DropReason::Ip4Fragment);
    // Without a filter on ports or flags, all fragments pass.
    let mut router = Scenario::standard();
    router.expect_forwarded("a", &Ipv4Frame::tcp().pieces(8)[1], "b");
    router.expect_forwarded("a", &overlap(8), "b");
}

/// Configuration: UDP to port 5000 goes to the host behind c, other UDP to another host behind b.
const CLASSES: &str = r#"
    [[neighbour]]
    port = "b"
    address = "10.2.0.3"
    mac = "02:00:00:00:00:b3"

    [[neighbour]]
    port = "b"
    address = "fd00:2::3"
    mac = "02:00:00:00:00:b3"

    [[filter]]
    match = "dst 10.9.0.1 proto udp dport 5000"
    action = "port c via 10.3.0.2"

    [[filter]]
    match = "dst 10.9.0.1 proto udp"
    action = "port b via 10.2.0.3"

    [[filter]]
    match = "dst fd00:9::1 proto udp dport 5000"
    action = "port c via fd00:3::2"

    [[filter]]
    match = "dst fd00:9::1 proto udp"
    action = "port b via fd00:2::3"
"#;

/// Numbers of workers to test. With several, another worker may own the flow of the first fragment.
const WORKERS: [usize; 2] = [1, 3];

fn with_workers(workers: usize, more: &str) -> Scenario {
    Scenario::with_settings_and(&format!("workers = {workers}"), more)
}

/// Injects frames as one batch.
fn send_together(router: &mut Scenario, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| router.router.inject("a", frame));
    router.router.run();
}

/// Returns the bytes after the network header of each fragment.
fn parts(outputs: &[Output]) -> Vec<Vec<u8>> {
    let headers = |output: &Output| if output.ether_type() == 0x0800 { 20 } else { 48 };
    outputs.iter().map(|output| output.network()[headers(output)..].to_vec()).collect()
}

fn chunks(packet: &[u8], headers: usize) -> Vec<Vec<u8>> {
    packet[headers..].chunks(200).map(<[u8]>::to_vec).collect()
}

#[test]
fn fr_10_all_fragments_get_the_treatment_of_the_first_in_order() {
    for workers in WORKERS {
        let mut router = with_workers(workers, CLASSES);
        let bound4 = Ipv4Frame::udp().ports(1000, 5000).length(4020).id(1);
        let other4 = Ipv4Frame::udp().ports(1000, 5001).length(4020).id(2);
        let bound6 = Ipv6Frame::udp().ports(1000, 5000).length(4040);
        let other6 = Ipv6Frame::udp().ports(1000, 5001).length(4040);
        for round in 0..3 {
            let mut frames = Vec::new();
            let (four, six) = ([&bound4, &other4], [&bound6, &other6]);
            let four: Vec<_> = four.iter().map(|frame| frame.pieces(200)).collect();
            let six: Vec<_> = six.iter().zip([1, 2]).map(|(frame, id)| frame.pieces(200, id)).collect();
            for at in 0..20 {
                four.iter().for_each(|pieces| frames.push(pieces[at].bytes()));
                six.iter().for_each(|pieces| frames.push(pieces[at].bytes()));
            }
            match round {
                0 => send_together(&mut router, &frames),
                _ => frames.iter().for_each(|frame| send_together(&mut router, std::slice::from_ref(frame))),
            }
            for (port, host, v4, v6) in [("c", 0xc2, &bound4, &bound6), ("b", 0xb3, &other4, &other6)] {
                let sent = router.take(port);
                assert!(sent.iter().all(|output| output.to() == station(host)), "round {round}: {sent:?}");
                let (sent4, sent6): (Vec<_>, Vec<_>) =
                    sent.into_iter().partition(|output| output.ether_type() == 0x0800);
                assert_eq!(parts(&sent4), chunks(&v4.packet(), 20), "round {round}, port {port}");
                assert_eq!(parts(&sent6), chunks(&v6.packet(), 40), "round {round}, port {port}");
            }
        }
        router.nothing();
        assert!(router.drops().is_empty());
    }
}

#[test]
fn fr_10_fragments_without_a_first_one_have_the_treatment_of_addresses_and_protocol() {
    for workers in WORKERS {
        let mut router = with_workers(workers, CLASSES);
        let four = Ipv4Frame::udp().ports(1000, 5000).length(420).id(1).pieces(200);
        let six = Ipv6Frame::udp().ports(1000, 5000).length(440).pieces(200, 1);
        let host = |router: &mut Scenario, port: &str| router.only(port).to();
        let expect = |router: &mut Scenario, at: usize, port: &str, to: u8| {
            router.send("a", &four[at]);
            assert_eq!(host(router, port), station(to), "IPv4, fragment {at}");
            router.send("a", &six[at]);
            assert_eq!(host(router, port), station(to), "IPv6, fragment {at}");
        };
        // The later fragment arrives before the first one, then again after it.
        expect(&mut router, 1, "b", 0xb3);
        expect(&mut router, 0, "c", 0xc2);
        expect(&mut router, 1, "c", 0xc2);
        router.advance(Duration::from_millis(59_900));
        expect(&mut router, 1, "c", 0xc2);
        // The router remembers the first fragment for 60 seconds only.
        router.advance(Duration::from_millis(200));
        expect(&mut router, 1, "b", 0xb3);
    }
}

/// Sends later fragments that match a first fragment in only some identifying fields. They don't get its
/// ports.
#[test]
fn fr_10_fragments_of_different_packets_are_distinguished() {
    for workers in WORKERS {
        let mut router = with_workers(workers, CLASSES);
        let first = Ipv4Frame::udp().ports(1000, 5000).length(420).id(1).pieces(200);
        router.send("a", &first[0]);
        assert_eq!(router.only("c").to(), station(0xc2));
        let later = || Ipv4Frame::raw(17).offset(200);
        for other in [later().id(2), later().id(1).src("10.1.0.3")] {
            router.send("a", &other);
            assert_eq!(router.only("b").to(), station(0xb3), "{other:?}");
        }
        // In IPv4 the protocol identifies a packet too.
        router.expect_forwarded("a", &Ipv4Frame::raw(132).offset(200).id(1), "b");
        // A fragment that arrives at another port.
        let by_c = later().id(1).to(station(0x0c)).from(station(0xc2));
        router.send("c", &by_c);
        assert_eq!(router.only("b").to(), station(0xb3));
        router.send("a", &later().id(1));
        assert_eq!(router.only("c").to(), station(0xc2));
    }
}

/// Fragments a packet within its extension headers (RFC 8200, 4.5). Only the first fragment tells the
/// packet's protocol.
#[test]
fn fr_10_fragments_behind_extension_headers_get_the_treatment_of_the_first() {
    for workers in WORKERS {
        let mut router = with_workers(workers, CLASSES);
        let whole =
            Ipv6Frame::udp().ports(1000, 5000).payload(&[7; 300]).extension(60, &[0, 1, 4, 0, 0, 0, 0]);
        let fragmented = whole.packet()[40..].to_vec();
        let piece = |part: &[u8], offset, more| Ipv6Frame::raw(60).fragment(offset, more, 5).payload(part);
        for _ in 0..2 {
            router.expect_forwarded("a", &piece(&fragmented[..160], 0, true), "c");
            router.expect_forwarded("a", &piece(&fragmented[160..], 160, false), "c");
            // The router ignores the next header of later fragments.
            let disguised = Ipv6Frame::raw(59).fragment(160, false, 5).payload(&fragmented[160..]);
            router.expect_forwarded("a", &disguised, "c");
        }
    }
}

#[test]
fn fr_10_fragments_get_the_flags_of_the_first() {
    for workers in WORKERS {
        let mut router = with_workers(
            workers,
            "[[filter]]\nmatch = \"proto tcp flags syn/syn+ack\"\naction = \"port c via 10.3.0.2\"\n",
        );
        for _ in 0..2 {
            for (flags, out) in [(2, "c"), (16, "b"), (18, "b")] {
                for piece in Ipv4Frame::tcp().flags(flags).length(100).id(flags.into()).pieces(32) {
                    router.expect_forwarded("a", &piece, out);
                }
            }
        }
    }
}
