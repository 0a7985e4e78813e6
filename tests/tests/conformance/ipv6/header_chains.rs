//! IPv6 packets whose transport header the router can't reach: none passes a filter that refuses packets (RFC
//! 7112; RFC 5722).

use millrace_packet::DropReason;
use millrace_tests::{Ipv6Frame, Scenario};

const PAD: [u8; 7] = [0, 1, 4, 0, 0, 0, 0];

fn chain(frame: Ipv6Frame, headers: usize) -> Ipv6Frame {
    (0..headers).fold(frame, |frame, _| frame.extension(60, &PAD))
}

fn refusing(action: &str, gate: &str, table: &str) -> Scenario {
    refusing_with(1, action, gate, table)
}

fn refusing_with(workers: usize, action: &str, gate: &str, table: &str) -> Scenario {
    let more = format!(
        "[[gate]]\nname = \"{gate}\"\ntable = \"{table}\"\n\
         [[filter]]\nmatch = \"proto tcp\"\naction = \"{action}\"\ngate = \"{gate}\"\n"
    );
    Scenario::with_settings_and(&format!("workers = {workers}"), &more)
}

#[test]
fn packet_with_more_extension_headers_than_are_read_is_dropped_while_a_filter_refuses() {
    for action in ["drop", "reject"] {
        for gate in ["security-in", "firewall", "route"] {
            for table in ["linear", "tuple-space", "dag"] {
                let mut router = refusing(action, gate, table);
                // The router reads eight headers.
                router.send("a", &chain(Ipv6Frame::tcp(), 8));
                assert_eq!(router.dropped(DropReason::Filter), 1, "{action} {gate} {table}");
                router.take_all();
                router.expect_forwarded("a", &chain(Ipv6Frame::udp(), 8), "b");
                for hidden in [
                    chain(Ipv6Frame::tcp(), 9),
                    chain(Ipv6Frame::udp(), 9),
                    // The header chain is cut, as in a first fragment that is too short.
                    Ipv6Frame::raw(60).payload(&[6, 9, 1, 4, 0, 0, 0, 0]),
                    Ipv6Frame::raw(60).payload(&[6, 9, 1, 4, 0, 0, 0, 0]).fragment(0, true, 7),
                    // Hop-by-hop options after another header.
                    Ipv6Frame::tcp().extension(60, &PAD).extension(0, &PAD),
                ] {
                    router.expect_drop("a", &hidden, DropReason::Ip6HeaderChain);
                }
            }
        }
    }
}

#[test]
fn readable_chains_pass_filters_that_do_not_match() {
    let mut router = refusing("drop", "firewall", "dag");
    let ah = [4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    for frame in [
        Ipv6Frame::udp().extension(51, &ah),
        Ipv6Frame::raw(50),
        Ipv6Frame::raw(59),
        Ipv6Frame::raw(253),
        Ipv6Frame::udp().extension(43, &[0, 4, 0, 0, 0, 0, 0]),
    ] {
        router.expect_forwarded("a", &frame, "b");
    }
    router.expect_drop("a", &Ipv6Frame::tcp().extension(51, &ah), DropReason::Filter);
}

#[test]
fn long_chain_is_forwarded_again_when_no_filter_refuses() {
    let mut router = Scenario::standard();
    let filter = toml::from_str("match = 'proto tcp'\naction = 'drop'\n").unwrap();
    let hidden = chain(Ipv6Frame::tcp(), 9);
    router.expect_forwarded("a", &hidden, "b");
    let id = router.router.add_filter(&filter).unwrap();
    router.expect_drop("a", &hidden, DropReason::Ip6HeaderChain);
    router.router.remove_filter(id).unwrap();
    router.expect_forwarded("a", &hidden, "b");
}

/// Sends packets with two fragment headers. Otherwise fragments of the outer packet would have no first
/// fragment, and fragments of the inner packet a wrong one.
#[test]
fn v6_18_packet_with_a_repeated_fragment_header_is_dropped() {
    let reason = DropReason::Ip6RepeatedFragment;
    let drop_tcp = "[[filter]]\nmatch = \"proto tcp\"\naction = \"drop\"\n";
    for workers in [1, 3] {
        for filters in ["", drop_tcp] {
            for settings in ["", "flows-max = 0\n"] {
                let settings = format!("workers = {workers}\n{settings}");
                let mut router = Scenario::with_settings_and(&settings, filters);
                let whole = Ipv6Frame::udp().payload(&[0; 32]);
                // The first id is used twice, because a later packet meets the state that the first one left.
                for id in [7, 7, 8] {
                    for (offset, more) in [(0, false), (0, true), (8, false), (8, true)] {
                        for outer in [true, false] {
                            let nested = whole.clone().fragment(0, outer, id).fragment(offset, more, id + 1);
                            router.expect_drop("a", &nested, reason);
                            let options = whole.clone().fragment(0, outer, id).extension(60, &PAD);
                            router.expect_drop("a", &options.fragment(offset, more, id), reason);
                        }
                    }
                    // A single fragment header, atomic or not, is not repeated. Data after the header of a
                    // later fragment isn't a header either.
                    router.expect_forwarded("a", &whole.clone().fragment(0, false, id), "b");
                    router.expect_forwarded("a", &whole.clone().fragment(0, true, id), "b");
                    let later = Ipv6Frame::raw(44).payload(&[0; 16]).fragment(32, false, id);
                    router.expect_forwarded("a", &later, "b");
                }
            }
        }
    }
}

#[test]
fn lookup_agrees_with_the_drop() {
    let mut router = refusing("drop", "firewall", "dag");
    let packet = "src fd00:1::2 dst fd00:9::1 proto 60 exceptions cut in a";
    let looked = router.router.lookup(packet).unwrap();
    assert!(looked.verdict.starts_with("dropped: ip6_header_chain"), "{looked:?}");
}

#[test]
fn later_fragment_is_judged_by_the_chain_of_the_first() {
    for workers in [1, 3] {
        for first_seen in [true, false] {
            let mut router = refusing_with(workers, "drop", "firewall", "dag");
            if first_seen {
                // The first fragment has 8 octets of options and a UDP header of 8 octets. From it the router
                // knows the packet's header chain.
                let first = Ipv6Frame::udp().payload(&[0; 24]);
                let first = first.fragment(0, true, 7).extension(60, &PAD);
                router.expect_forwarded("a", &first, "b");
            }
            for (offset, known, unknown) in
                [(8, true, true), (16, false, true), (1224, false, true), (1232, false, false)]
            {
                // Octets 8 to 15 of the first fragment are its UDP header, whatever protocol the later
                // fragment claims.
                for protocol in [17, 6, 59] {
                    let later = Ipv6Frame::raw(protocol).payload(&[0; 16]).fragment(offset, false, 7);
                    match if first_seen { known } else { unknown } {
                        true => router.expect_drop("a", &later, DropReason::Ip4Fragment),
                        false if protocol == 6 && !first_seen => {
                            router.expect_drop("a", &later, DropReason::Filter);
                        }
                        false => drop(router.expect_forwarded("a", &later, "b")),
                    }
                }
            }
        }
    }
}

/// Sends later fragments with another next header. They belong to the flow of their first fragment, also at
/// the worker that owns that flow.
#[test]
fn next_header_of_a_later_fragment_passes_no_filter_at_any_worker() {
    for workers in [1, 2, 3] {
        let mut router = Scenario::with_settings_and(
            &format!("workers = {workers}"),
            "[[filter]]\nmatch = \"proto tcp flags syn/syn+ack\"\naction = \"drop\"\n\
             [[filter]]\nmatch = \"proto 59\"\naction = \"drop\"\n",
        );
        for id in 0..16 {
            let first = |flags| Ipv6Frame::tcp().ports(1000 + id, 80).flags(flags).payload(&[0; 12]);
            let later = |id| Ipv6Frame::raw(59).payload(&[0; 16]).fragment(32, false, id);
            // A later fragment of an accepted connection, with a next header that a filter refuses.
            router.expect_forwarded("a", &first(16).fragment(0, true, id.into()), "b");
            router.expect_forwarded("a", &later(id.into()), "b");
            // A later fragment of a refused SYN. Only the first fragment contains the flags.
            let syn = u32::from(id) + 100;
            router.expect_drop("a", &first(2).fragment(0, true, syn), DropReason::Filter);
            let disguised = Ipv6Frame::raw(60).payload(&[0; 16]).fragment(32, false, syn);
            router.expect_drop("a", &disguised, DropReason::Filter);
        }
    }
}

#[test]
fn first_fragment_with_headers_beyond_the_least_mtu_is_dropped_while_a_filter_refuses() {
    // A chain of four headers of 256 octets, and one of five.
    let mut long = vec![31];
    long.extend([1, 252]);
    long.resize(255, 0);
    let first = |headers: usize| {
        let frame =
            (0..headers).fold(Ipv6Frame::udp().payload(&[0; 8]), |frame, _| frame.extension(60, &long));
        let whole = frame.packet()[40..].to_vec();
        Ipv6Frame::raw(60).payload(&whole).fragment(0, true, 9)
    };
    let mut router = refusing("drop", "firewall", "dag");
    router.expect_forwarded("a", &first(4), "b");
    router.expect_drop("a", &first(5), DropReason::Ip6HeaderChain);
    Scenario::standard().expect_forwarded("a", &first(5), "b");
}
