//! Tests of whole filters, and proptest strategies for the tests of filter tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_packet::{Exceptions, FlowKey};
use millrace_units::PortId;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::Candidate;
use crate::candidate::PORTS_UNKNOWN;

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> FilterError {
    text.parse::<Filter>().expect_err(text)
}

/// Resolves port names: `lan` has the id 1, `wan` the id 2.
pub(crate) fn resolve(name: &str) -> Option<PortId> {
    ["lan", "wan"].iter().position(|known| *known == name).map(|index| PortId(index as u16 + 1))
}

pub(crate) fn compiled(text: &str) -> CompiledFilter {
    filter(text).compile(resolve).unwrap()
}

/// Random filters with few different values, so they overlap and match often.
pub(crate) fn any_filter() -> impl Strategy<Value = Filter> {
    let v4 = || {
        option::of((0u32..4, prop_oneof![Just(0u8), 30u8..=32]).prop_map(|(host, length)| {
            let address = Ipv4Addr::from(0x0a00_0000 | host);
            IpNet::new(IpAddr::V4(address), length).unwrap().trunc()
        }))
    };
    let v6 = || {
        option::of((0u128..4, prop_oneof![Just(0u8), 126u8..=128]).prop_map(|(host, length)| {
            let address = Ipv6Addr::from((0x2001 << 112) | host);
            IpNet::new(IpAddr::V6(address), length).unwrap().trunc()
        }))
    };
    let protocol = option::of(prop_oneof![Just(6u8), Just(17), Just(50)]);
    let ports = || prop_oneof![Just(PortRange::Any), (0u16..4, 0u16..4).prop_map(range)];
    let incoming = option::of(prop_oneof![Just("lan".to_owned()), Just("wan".to_owned())]);
    let flags =
        option::of((0u8..4, 1u8..4).prop_map(|(value, mask)| TcpFlagsMatch { value: value & mask, mask }));
    let exceptions = option::of(
        (0u8..16, 1u8..16).prop_map(|(value, mask)| ExceptionsMatch { value: value & mask, mask }),
    );
    let dscp = option::of((0u8..3).prop_map(|value| Dscp::parse(&value.to_string()).unwrap()));
    (
        prop_oneof![(v4(), v4()), (v6(), v6())],
        protocol,
        (ports(), ports()),
        incoming,
        flags,
        option::of(0u8..3),
        exceptions,
        dscp,
    )
        .prop_map(|(addresses, protocol, ports, incoming, tcp_flags, tag, exceptions, dscp)| {
            consistent(Filter {
                source: addresses.0,
                destination: addresses.1,
                protocol: protocol.map(Protocol),
                source_port: ports.0,
                destination_port: ports.1,
                incoming,
                tcp_flags,
                tag,
                exceptions,
                dscp,
            })
        })
}

fn range((a, b): (u16, u16)) -> PortRange {
    PortRange::Ports { first: a.min(b), last: a.max(b) }
}

/// Removes the conditions on ports or flags if other conditions contradict them.
fn consistent(mut filter: Filter) -> Filter {
    let unknown = filter.exceptions.is_some_and(|exceptions| exceptions.value & 12 != 0);
    if unknown || filter.protocol.is_some_and(|protocol| !protocol.has_ports()) {
        filter.source_port = PortRange::Any;
        filter.destination_port = PortRange::Any;
    }
    if filter.protocol != Some(Protocol::TCP) {
        filter.tcp_flags = None;
    }
    filter
}

/// Random packets whose fields have the same few values as the filters of [`any_filter`].
pub(crate) fn any_candidate() -> impl Strategy<Value = Candidate> {
    let key = (any::<bool>(), (0u32..4, 0u32..4), 0usize..4, (0u16..4, 0u16..4), 1u16..4);
    let flags = option::of(0u8..4);
    (key, flags, 0u8..3, 0u8..16, 0u8..3).prop_map(|(key, tcp_flags, tag, exceptions, dscp)| {
        let (v4, (source, destination), protocol, ports, port) = key;
        let protocol = [6, 17, 50, 58][protocol];
        let v4_address = |host| Ipv4Addr::from(0x0a00_0000 | host);
        let v6_address = |host| Ipv6Addr::from((0x2001 << 112) | u128::from(host));
        let key = if v4 {
            FlowKey::v4(v4_address(source), v4_address(destination), protocol, ports, PortId(port))
        } else {
            FlowKey::v6(v6_address(source), v6_address(destination), protocol, ports, PortId(port))
        };
        let tcp_flags = tcp_flags.filter(|_| protocol == 6);
        Candidate { key, tcp_flags, tag, exceptions: Exceptions::from_bits(exceptions), dscp }
    })
}

/// Returns the fields whose conditions a packet fails. This simple evaluation follows the description of the
/// module, and is the reference for the tests.
pub(crate) fn misses(filter: &Filter, candidate: &Candidate) -> Vec<Field> {
    let key = &candidate.key;
    let inside = |net: Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
    let admits = |range: PortRange, port| match range {
        PortRange::Any => true,
        PortRange::Ports { first, last } => {
            let readable = matches!(key.protocol, 6 | 17 | 132 | 136);
            let whole = !candidate.exceptions.contains(Exceptions::FRAGMENT)
                && !candidate.exceptions.contains(Exceptions::CUT);
            readable && whole && first <= port && port <= last
        }
    };
    let masked = |value: u8, mask: u8, bits: u8| bits & mask == value;
    let holds = |field| match field {
        Field::Source => inside(filter.source, key.source()),
        Field::Destination => inside(filter.destination, key.destination()),
        Field::Protocol => filter.protocol.is_none_or(|protocol| protocol.0 == key.protocol),
        Field::SourcePort => admits(filter.source_port, key.source_port),
        Field::DestinationPort => admits(filter.destination_port, key.destination_port),
        Field::Incoming => filter.incoming().is_none_or(|name| resolve(name) == Some(key.port)),
        Field::Flags => filter.tcp_flags.is_none_or(|flags| {
            candidate.tcp_flags.is_some_and(|bits| masked(flags.value, flags.mask, bits))
        }),
        Field::Tag => filter.tag.is_none_or(|tag| tag == candidate.tag),
        Field::Exceptions => filter
            .exceptions
            .is_none_or(|exceptions| masked(exceptions.value, exceptions.mask, candidate.exceptions.bits())),
        Field::Dscp => filter.dscp.is_none_or(|dscp| dscp.value() == candidate.dscp),
    };
    Field::ALL.into_iter().filter(|field| !holds(*field)).collect()
}

proptest! {
    #[test]
    fn printed_filter_parses_to_the_same_filter(filter in any_filter()) {
        prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter));
    }

    #[test]
    fn compiled_filter_matches_like_its_text(filter in any_filter(), candidate in any_candidate()) {
        let compiled = filter.compile(resolve).unwrap();
        let misses = misses(&filter, &candidate);
        prop_assert_eq!(compiled.matches(&candidate), misses.is_empty());
        prop_assert_eq!(compiled.mismatch(&candidate), misses.first().copied());
        // If a key has ports, the ports of its packets are readable; skip packets that contradict this.
        let is_read = (candidate.key.source_port, candidate.key.destination_port) != (0, 0);
        let is_possible = !is_read || candidate.exceptions.bits() & PORTS_UNKNOWN.bits() == 0;
        let matches = compiled.matches(&candidate) && is_possible;
        prop_assert!(!matches || compiled.may_match_flow(&candidate.key));
    }

    #[test]
    fn packets_of_a_flow_that_agree_under_the_mask_match_alike(
        filter in any_filter(), one in any_candidate(), other in any_candidate(),
    ) {
        let other = Candidate { key: one.key, ..other };
        let compiled = filter.compile(resolve).unwrap();
        let agree = (one.varying() ^ other.varying()) & compiled.varying_mask() == 0;
        prop_assert!(!agree || compiled.matches(&one) == compiled.matches(&other));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        read_or_refused(&text)?;
    }

    #[test]
    fn anything_like_a_filter_is_read_or_refused(
        words in prop::collection::vec(
            prop_oneof![
                Just("src"), Just("dst"), Just("proto"), Just("sport"), Just("dport"), Just("in"), Just("flags"),
                Just("tag"), Just("exceptions"), Just("dscp"), Just("*"), Just("tcp"), Just("10.0.0.0/8"), Just("::/0"),
                Just("80"), Just("9-5"), Just("syn/ack"), Just("<"), Just(">"), Just(","), Just("129.*"), Just("ü\u{2003}"),
            ], 0..16),
        tuple in any::<bool>(),
    ) {
        let text = words.join(" ");
        read_or_refused(&if tuple { format!(" <{text}>") } else { text })?;
    }
}

fn read_or_refused(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Filter>() {
        Ok(filter) => prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter)),
        Err(error) => {
            prop_assert!(text.get(error.offset..error.offset + error.length).is_some(), "{}", error)
        }
    }
    Ok(())
}

#[test]
fn the_documented_examples_are_read() {
    let long = filter(
        "src 129.0.0.0/8 dst 192.94.233.10 proto tcp sport * dport 80 in lan flags syn/syn+ack dscp ef tag 3",
    );
    assert_eq!(
        long.to_string(),
        "src 129.0.0.0/8 dst 192.94.233.10 proto tcp dport 80 in lan flags syn/syn+ack tag 3 dscp ef"
    );
    assert_eq!(
        filter("<129.*, 192.94.233.10, TCP, *, *, *>"),
        filter("proto tcp dst 192.94.233.10 src 129.0.0.0/8")
    );
    assert_eq!(filter("<129.*.*.*,192.94.233.10,TCP,*,*,*>"), filter("<129.*, 192.94.233.10, TCP, *, *, *>"));
    assert_eq!(
        filter("<2001:db8::/32, *, udp, 1-9, 53, wan>").to_string(),
        "src 2001:db8::/32 proto udp sport 1-9 dport 53 in wan"
    );
    assert_eq!(filter("proto udp dport 5201").to_string(), "proto udp dport 5201");
}

#[test]
fn all_wildcards_are_one_filter() {
    for text in ["", " ", "*", "src *", "sport * in * tag * flags *", "<*, *, *, *, *, *>"] {
        assert!(filter(text).is_any(), "{text:?}");
    }
    assert_eq!(Filter::any().to_string(), "*");
}

#[test]
fn refusal_has_place_reason_and_remedy() {
    for (text, message) in [
        ("proto tcp dprt 80", "column 11: \"dprt\" is not a keyword; did you mean dport?"),
        (
            "src 10.0.0.0/8 src *",
            "column 16: src is given twice; remove one src: a packet must match all conditions",
        ),
        (
            "src 10.1.0.0/8",
            "column 5: 10.1.0.0/8 has host bits set beyond its prefix length; write 10.0.0.0/8 for the \
             network or 10.1.0.0 for the host",
        ),
        ("dport 90-80", "column 7: port range 90-80 starts above its end; write 80-90"),
        ("dport", "column 6: dport has no value; write a port or a range after dport"),
        (
            "dport 80 proto icmp",
            "column 7: protocol icmp has no ports; remove dport, or write proto tcp, udp, sctp or udplite",
        ),
        (
            "src 10.0.0.0/8 dst ::1",
            "column 20: destination is IPv6 and source is IPv4, so that no packet matches; give both of one \
             family, or remove one",
        ),
        ("flags syn", "column 7: flags match TCP packets only; add proto tcp, or remove flags"),
        ("flags syn proto udp", "column 7: flags match TCP packets only; add proto tcp, or remove flags"),
        (
            "dport 1 exceptions cut",
            "column 20: later fragments and truncated packets have no readable ports, so that dport never \
             matches; remove dport or this exception",
        ),
        ("tag 32", "column 5: \"32\" is not a tag; write a number from 0 to 31"),
        (
            "<129.*, *, *>",
            "column 2: the filter has 3 fields instead of 6; write <source, destination, protocol, source \
             port, destination port, incoming port>",
        ),
        ("<*,*, TPC,*,*,*>", "column 7: \"TPC\" is not an IP protocol; did you mean tcp?"),
        ("<*,*,*,*,*,*> tag 3", "column 15: text follows the closing >; remove it"),
    ] {
        assert_eq!(refused(text).to_string(), message);
    }
}

#[test]
fn unfinished_tuples_are_refused() {
    for text in
        ["<", "<>", "<*,*,*,*,*,*", "<*,*,*,*,*,>", "<*,*,*,*,*,*>>", "*,*,*,*,*,*", "<*,*,*,*,*,a b>"]
    {
        refused(text);
    }
}

#[test]
fn a_given_address_restricts_the_family() {
    let v6 =
        Candidate::plain(FlowKey::v6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, 17, (1, 2), PortId(1)));
    let v4 =
        Candidate::plain(FlowKey::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 17, (1, 2), PortId(1)));
    assert!(compiled("*").matches(&v4) && compiled("*").matches(&v6));
    assert!(compiled("src 0.0.0.0/0").matches(&v4) && !compiled("src 0.0.0.0/0").matches(&v6));
    assert!(!compiled("dst ::/0").matches(&v4) && compiled("dst ::/0").matches(&v6));
    assert_eq!(compiled("dst ::/0").mismatch(&v4), Some(Field::Destination));
}

#[test]
fn port_conditions_never_match_unknown_ports() {
    let packet = |protocol, exceptions| Candidate {
        exceptions,
        ..Candidate::plain(FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, protocol, (0, 0), PortId(1)))
    };
    let all = compiled("dport 0-65535");
    assert!(all.matches(&packet(17, Exceptions::NONE)), "UDP of length zero still has ports");
    for (protocol, exceptions) in
        [(6, Exceptions::CUT), (6, Exceptions::FRAGMENT), (50, Exceptions::NONE), (1, Exceptions::NONE)]
    {
        let packet = packet(protocol, exceptions);
        assert!(!all.matches(&packet), "{packet:?}");
        assert_eq!(all.mismatch(&packet), Some(Field::DestinationPort));
        assert!(compiled("dport *").matches(&packet));
    }
    assert!(compiled("exceptions fragment").matches(&packet(6, Exceptions::FRAGMENT)));
}

#[test]
fn an_unknown_port_name_is_named_when_compiling() {
    let error = filter("in lna").compile(resolve).unwrap_err();
    assert_eq!(error.name, "lna");
}

#[test]
fn a_filter_is_a_string_in_json() {
    let json = serde_json::to_string(&filter("dport 80 proto tcp")).unwrap();
    assert_eq!(json, r#""proto tcp dport 80""#);
    assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter("proto tcp dport 80"));
    assert!(
        serde_json::from_str::<Filter>(r#""dprt 1""#)
            .unwrap_err()
            .to_string()
            .contains("did you mean dport?")
    );
}

#[test]
fn varying_fields_of_a_filter_equal_its_conditions() {
    let key = FlowKey::v4([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), 6, (1, 2), PortId(0));
    let packet = Candidate {
        tcp_flags: Some(0x12),
        tag: 3,
        exceptions: Exceptions::TTL,
        dscp: 46,
        ..Candidate::plain(key)
    };
    for (text, shown) in [
        (
            "proto tcp flags syn/syn+rst tag 3 exceptions none/ttl dscp 0",
            "flags syn/syn+rst tag 3 exceptions ttl dscp ef",
        ),
        ("proto tcp flags ack", "flags ack"),
        ("dscp 1", "dscp ef"),
        ("proto tcp", "*"),
    ] {
        let mask = text.parse::<Filter>().unwrap().compile(|_| None).unwrap().varying_mask;
        let filter = Filter::of_varying(packet.varying() & mask, mask);
        assert_eq!(filter.to_string(), shown, "{text}");
        assert!(filter.compile(|_| None).unwrap().matches(&packet), "{text}: {filter}");
    }
}
