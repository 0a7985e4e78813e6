//! Tests of expressions, compared with a simple evaluation.

use std::net::IpAddr;

use millrace_packet::{Exceptions, FlowKey};
use proptest::prelude::*;

use super::*;
use crate::Candidate;
use crate::candidate::PORTS_UNKNOWN;
use crate::filter::tests::{any_candidate, any_filter, misses, resolve};

fn expression(text: &str) -> FilterExpression {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    text.parse::<FilterExpression>().unwrap_err().to_string()
}

fn selection(text: &str) -> Selection {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Whether a packet matches any of the compiled alternatives.
fn matches(expression: &FilterExpression, candidate: &Candidate) -> bool {
    expression.compile(resolve).unwrap().alternatives().iter().any(|filter| filter.matches(candidate))
}

/// Expression of a property test, which prints as text and evaluates itself.
#[derive(Clone, Debug)]
enum Said {
    Is(Filter),
    Not(Box<Self>),
    All(Vec<Self>),
    Either(Vec<Self>),
}

impl Said {
    fn text(&self) -> String {
        let join = |parts: &[Self], word: &str| {
            parts.iter().map(|part| format!("({})", part.text())).collect::<Vec<_>>().join(word)
        };
        match self {
            Self::Is(filter) => filter.to_string(),
            Self::Not(inner) => format!("not ({})", inner.text()),
            Self::All(parts) => join(parts, " and "),
            Self::Either(parts) => join(parts, " or "),
        }
    }

    /// Evaluates the expression condition by condition, as the reference.
    fn holds(&self, candidate: &Candidate) -> bool {
        match self {
            Self::Is(filter) => misses(filter, candidate).is_empty(),
            Self::Not(inner) => !inner.holds(candidate),
            Self::All(parts) => parts.iter().all(|part| part.holds(candidate)),
            Self::Either(parts) => parts.iter().any(|part| part.holds(candidate)),
        }
    }
}

/// Returns packets of a flow with every combination of the values that [`any_filter`] distinguishes.
fn packets_of(key: FlowKey) -> impl Iterator<Item = Candidate> {
    let has_flags = key.protocol == 6;
    let flags = (0..4).map(Some).chain([None]).filter(move |flags| has_flags || flags.is_none());
    let tags = move |tcp_flags| (0..4).map(move |tag| (tcp_flags, tag));
    let exceptions = move |(tcp_flags, tag)| (0..16).map(move |bits| (tcp_flags, tag, bits));
    let marks = move |(tcp_flags, tag, bits)| {
        (0..4).map(move |dscp| Candidate {
            key,
            tcp_flags,
            tag,
            exceptions: Exceptions::from_bits(bits),
            dscp,
        })
    };
    let is_read = (key.source_port, key.destination_port) != (0, 0);
    let unknown = |packet: &Candidate| packet.exceptions.bits() & PORTS_UNKNOWN.bits() != 0;
    flags
        .flat_map(tags)
        .flat_map(exceptions)
        .flat_map(marks)
        .filter(move |packet| !is_read || !unknown(packet))
}

fn any_said() -> impl Strategy<Value = Said> {
    // The parser refuses `not in` and `not flags`.
    let filter = any_filter().prop_map(|filter| Filter { incoming: None, tcp_flags: None, ..filter });
    filter.prop_map(Said::Is).prop_recursive(3, 5, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| Said::Not(Box::new(one))),
            prop::collection::vec(inner.clone(), 1..3).prop_map(Said::All),
            prop::collection::vec(inner, 1..3).prop_map(Said::Either),
        ]
    })
}

fn is_too_long(error: &FilterError) -> bool {
    ["expands to", "combines too many"].iter().any(|words| error.problem.contains(words))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn alternatives_match_exactly_the_packets_of_the_expression(
        said in any_said(), candidates in prop::collection::vec(any_candidate(), 1..32),
    ) {
        match said.text().parse::<FilterExpression>() {
            Ok(expression) => {
                for candidate in &candidates {
                    let found = matches(&expression, candidate);
                    prop_assert_eq!(found, said.holds(candidate), "{}: {:?}", expression, candidate);
                }
            }
            Err(error) if error.problem.contains("no packet") => {
                prop_assert!(!candidates.iter().any(|candidate| said.holds(candidate)), "{}", said.text());
            }
            Err(error) => prop_assert!(is_too_long(&error), "{}: {error}", said.text()),
        }
    }

    #[test]
    fn selection_matches_exactly_the_packets_of_the_expression(
        said in any_said(), candidates in prop::collection::vec(any_candidate(), 1..32),
    ) {
        match said.text().parse::<Selection>() {
            Ok(selection) => {
                let compiled = selection.compile(resolve).unwrap();
                for candidate in &candidates {
                    let found = compiled.matches(candidate);
                    prop_assert_eq!(found, said.holds(candidate), "{}: {:?}", selection, candidate);
                }
            }
            Err(error) if error.problem.contains("no packet") => {
                prop_assert!(!candidates.iter().any(|candidate| said.holds(candidate)), "{}", said.text());
            }
            Err(error) => prop_assert!(is_too_long(&error), "{}: {error}", said.text()),
        }
    }

    #[test]
    fn flow_may_match_exactly_if_one_of_its_packets_matches(
        said in any_said(), candidates in prop::collection::vec(any_candidate(), 1..8),
    ) {
        if let Ok(selection) = said.text().parse::<Selection>() {
            let compiled = selection.compile(resolve).unwrap();
            for key in candidates.iter().map(|candidate| candidate.key) {
                let one_does = packets_of(key).any(|packet| said.holds(&packet));
                prop_assert_eq!(compiled.may_match_flow(&key), one_does, "{}: {:?}", selection, key);
            }
        }
    }

    #[test]
    fn expressions_round_trip(said in any_said()) {
        if let Ok(expression) = said.text().parse::<FilterExpression>() {
            prop_assert_eq!(expression.to_string().parse(), Ok(expression));
        }
        if let Ok(selection) = said.text().parse::<Selection>() {
            prop_assert_eq!(selection.to_string().parse(), Ok(selection));
        }
    }

    #[test]
    fn anything_like_an_expression_is_read_or_refused(
        words in prop::collection::vec(
            prop_oneof![
                Just("("), Just(")"), Just("not"), Just("!"), Just("or"), Just("and"), Just("src"), Just("port"), Just("80,443"),
                Just("80,"), Just(","), Just("host"), Just("10.0.0.1"), Just("tcp"), Just("dport"), Just("in"), Just("lan,wan"),
                Just("ü("), Just("exceptions"), Just("ttl,cut"),
            ], 0..14),
    ) {
        let text = words.join(" ");
        if let Err(error) = text.parse::<FilterExpression>() {
            prop_assert!(text.get(error.offset..error.offset + error.length).is_some(), "{}", error);
        }
    }
}

#[test]
fn words_of_tcpdump_mean_the_same_as_keywords() {
    for (text, keywords) in [
        ("tcp dst port 80", "proto tcp dport 80"),
        ("udp src portrange 1-9", "proto udp sport 1-9"),
        ("src host 10.0.0.1 and dst net 10.1.0.0/16", "src 10.0.0.1 dst 10.1.0.0/16"),
        ("icmp6", "proto icmpv6"),
        ("ip", "src 0.0.0.0/0"),
        ("(tcp)", "proto tcp"),
        ("dport 80,80", "dport 80"),
    ] {
        assert_eq!(expression(text), expression(keywords), "{text}");
        assert_eq!(expression(text).to_string(), keywords, "{text}");
    }
    for (text, alternatives) in [
        ("host 10.0.0.1", &["src 10.0.0.1", "dst 10.0.0.1"][..]),
        ("tcp port 80", &["proto tcp sport 80", "proto tcp dport 80"]),
        ("dport 80,443,8000-8010", &["dport 80", "dport 443", "dport 8000-8010"]),
        ("proto tcp dport 80, 443", &["proto tcp dport 80", "proto tcp dport 443"]),
        ("in lan,wan", &["in lan", "in wan"]),
        ("proto udp or dport 80", &["proto udp", "dport 80"]),
        ("not src 128.0.0.0/1", &["src 0.0.0.0/1", "src ::/0"]),
        ("tcp and not exceptions none/ttl", &["proto tcp exceptions ttl"]),
    ] {
        let made: Vec<String> = expression(text).alternatives().iter().map(Filter::to_string).collect();
        assert_eq!(made, alternatives, "{text}");
    }
    assert_eq!(expression("  tcp   port 80 ").to_string(), "tcp port 80", "as it was written");
}

#[test]
fn invalid_expressions_are_refused_with_a_remedy() {
    for (text, problem) in [
        ("tcp or udp and dport 80", "`and` and `or` are mixed without parentheses; add parentheses"),
        (
            "not tcp dport 80",
            "`not` is followed by several conditions, and its scope is ambiguous; put `and` between the \
             conditions",
        ),
        ("port 80 or 443", "\"443\" is not a keyword"),
        ("(tcp", "closing parenthesis is missing"),
        ("tcp)", "closing parenthesis without an opening one"),
        ("tcp or", "a condition is missing"),
        ("not in lan", "list the ports to match, as in `in wan,dmz`"),
        ("tcp and udp", "the conditions contradict each other"),
        ("tcp dport 80,x", "\"x\" is not a port"),
        ("tcp dport 80 or dprt 443", "did you mean dport?"),
    ] {
        assert!(refused(text).contains(problem), "{text}: {}", refused(text));
    }
    let deep = format!("{}tcp", "not ".repeat(1000));
    assert!(refused(&deep).contains("more than 32"));
}

#[test]
fn a_typo_of_each_word_leads_to_the_word() {
    for (typo, word) in [
        ("prt 22", "port"),
        ("prot 22", "port"),
        ("pot 22", "port"),
        ("porrt 22", "port"),
        ("potr 22", "port"),
        ("prots tcp", "proto"),
        ("porto tcp", "proto"),
        ("prto tcp", "proto"),
        ("poto tcp", "proto"),
        ("scr 10.0.0.1", "src"),
        ("sr 10.0.0.1", "src"),
        ("srcc 10.0.0.1", "src"),
        ("dts 10.0.0.1", "dst"),
        ("dest 10.0.0.1", "dst"),
        ("sprt 5", "sport"),
        ("srpot 5", "sport"),
        ("dprt 5", "dport"),
        ("dpotr 5", "dport"),
        ("hots 10.0.0.1", "host"),
        ("hst 10.0.0.1", "host"),
        ("hosts 10.0.0.1", "host"),
        ("nte 10.0.0.0/8", "net"),
        ("nets 10.0.0.0/8", "net"),
        ("portrnge 1-9", "portrange"),
        ("prtrange 1-9", "portrange"),
        ("falgs syn", "flags"),
        ("flag syn", "flags"),
        ("tga 3", "tag"),
        ("execptions ttl", "exceptions"),
        ("exception ttl", "exceptions"),
        ("dcsp ef", "dscp"),
        ("dsp ef", "dscp"),
        ("tpc", "tcp"),
        ("upd", "udp"),
        ("sctpp", "sctp"),
        ("imcp", "icmp"),
        ("imcp6", "icmp6"),
        ("ipp6", "ip6"),
        ("nto tcp", "not"),
        ("tcp adn udp", "and"),
    ] {
        let help = format!("did you mean {word}?");
        assert!(refused(typo).contains(&help), "{typo}: {}", refused(typo));
    }
    assert!(refused("zebra 22").contains("write one of src, dst,"), "{}", refused("zebra 22"));
}

#[test]
fn expressions_that_combine_many_filters_are_refused_before_combination() {
    let ports = |first: u16| (0..60).map(|port| (first + 2 * port).to_string()).collect::<Vec<_>>().join(",");
    let many = format!("udp sport {} dport {}", ports(100), ports(1000));
    let text = format!("({many}){}", " and udp".repeat(1500));
    assert!(refused(&text).contains("combines too many conditions"), "{}", refused(&text));
    // An expression of the same length with few filters is accepted.
    assert!(format!("udp dport 53{}", " and udp".repeat(1500)).parse::<FilterExpression>().is_ok());
}

#[test]
fn a_filter_of_several_alternatives_is_refused_where_one_is_needed() {
    let error = "tcp port 80".parse::<Filter>().unwrap_err().to_string();
    assert!(error.contains("expands to 2 filters"), "{error}");
}

#[test]
fn the_complement_of_ports_holds_packets_without_ports() {
    let not_80 = expression("not port 80");
    assert!(not_80.alternatives().len() < 300, "{}", not_80.alternatives().len());
    let icmp =
        Candidate::plain(FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1, (0, 0), PortId(1)));
    assert!(matches(&not_80, &icmp));
}

#[test]
fn packet_is_compared_only_with_alternatives_of_its_protocol() {
    let compiled = selection("not port 80").compile(resolve).unwrap();
    let count = |protocol| compiled.compared(protocol);
    assert!(selection("not port 80").terms() > 250 && count(6) <= 6 && count(50) == count(6) + 1);
    let flow = |port| FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, (port, 4000), PortId(1));
    assert!(compiled.may_match_flow(&flow(22)) && !compiled.may_match_flow(&flow(80)));
}

/// Returns one packet for each pair of hosts of the same family.
fn between(hosts: &[&str]) -> Vec<Candidate> {
    let hosts: Vec<IpAddr> = hosts.iter().map(|host| host.parse().unwrap()).collect();
    let pairs = hosts.iter().flat_map(|source| hosts.iter().map(move |destination| (*source, *destination)));
    pairs
        .filter_map(|pair| match pair {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(FlowKey::v4(source, destination, 6, (1, 2), PortId(1)))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(FlowKey::v6(source, destination, 6, (1, 2), PortId(1)))
            }
            _ => None,
        })
        .map(Candidate::plain)
        .collect()
}

const HOSTS: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.0",
    "10.0.1.1",
    "192.0.2.7",
    "2001:db8::1",
    "2001:db8::",
    "2001:db8:1::1",
    "fd00::7",
];

#[test]
fn the_complement_of_an_address_fits_into_a_filter_table() {
    for (text, count) in [
        ("not src 10.0.0.1", 33),
        ("not src 10.0.0.0/8", 9),
        ("not host 10.0.0.1,10.0.0.9", 1157),
        ("not src 2001:db8::1", 129),
        // Neither the source prefix nor the destination prefix of a filter may contain the host. So each of
        // both is one of the 32 sibling prefixes of the host: this yields 32 times 32 filters for IPv4, and
        // one filter for IPv6.
        ("not host 10.0.0.1", 1025),
        ("tcp and not host 10.0.0.1", 1025),
        ("not net 10.0.0.0/8", 65),
        ("not net 2001:db8::/32", 1025),
        ("not ip", 1),
        ("src 10.0.0.0/8 and not src 10.1.0.0/16", 8),
        ("src 10.0.0.0/8 and not host 10.0.0.1", 24 * 32),
    ] {
        let expression = expression(text);
        assert_eq!(expression.alternatives().len(), count, "{text}");
        let compiled = selection(text).compile(resolve).unwrap();
        for candidate in between(&HOSTS) {
            assert_eq!(
                matches(&expression, &candidate),
                compiled.matches(&candidate),
                "{text}: {candidate:?}"
            );
        }
    }
}

#[test]
fn complement_beyond_a_filter_table_is_refused_with_its_size_and_a_remedy() {
    for (text, number) in [
        ("not host 2001:db8::1", "expands to 16385 filters"),
        ("not net 2001:db8::/64", "expands to 4097 filters"),
        ("not host 10.0.0.1,192.0.2.7", "expands to 3845 filters"),
    ] {
        let refused = refused(text);
        assert!(
            refused.contains(number) && refused.contains("the limit for an expression is 1280"),
            "{text}: {refused}"
        );
        assert!(refused.contains("a filter of higher priority with the action accept"), "{text}: {refused}");
    }
    let ports: Vec<String> = (0..40).map(|port| (2 * port).to_string()).collect();
    let refused = refused(&format!("udp sport {0} and udp dport {0}", ports.join(",")));
    assert!(
        refused.contains("1600 combinations of conditions")
            && refused.contains("split the expression into several filters"),
        "{refused}"
    );
}

#[test]
fn a_selection_counts_a_comparison_for_each_term_and_each_excluded_prefix() {
    for (text, comparisons) in
        [("dport 80", 1), ("dport 80 or udp", 2), ("not src 10.0.0.1", 2), ("not host fd00::7", 3)]
    {
        assert_eq!(selection(text).comparisons(), comparisons, "{text}");
    }
}

#[test]
fn expression_of_many_excluded_hosts_is_refused_before_combination() {
    let hosts = |side: &str, net: u32| {
        let hosts: Vec<String> = (1..=362).map(|host| format!("not {side} {net:x}::{host:x}")).collect();
        hosts.join(" or ")
    };
    let text = format!("({}) and ({})", hosts("src", 1), hosts("dst", 2));
    let refused = text.parse::<Selection>().unwrap_err();
    assert!(refused.problem.contains("too many"), "{refused}");
}

#[test]
fn a_selection_takes_complements_of_any_address_in_one_term() {
    for (text, named) in [
        ("not host 10.0.0.1", &["10.0.0.1"][..]),
        ("not host 2001:db8::1", &["2001:db8::1"]),
        ("not host 10.0.0.1,2001:db8::1,fd00::7", &["10.0.0.1", "2001:db8::1", "fd00::7"]),
        (
            "not (host 10.0.0.1 or net 2001:db8::/32)",
            &["10.0.0.1", "2001:db8::1", "2001:db8::", "2001:db8:1::1"],
        ),
        ("not host 2001:db8::1 and not host 10.0.0.0", &["2001:db8::1", "10.0.0.0"]),
    ] {
        let selection = selection(text);
        assert_eq!((selection.terms(), selection.to_string()), (1, text.to_owned()), "{text}");
        let compiled = selection.compile(resolve).unwrap();
        for candidate in between(&HOSTS) {
            let addresses = [candidate.key.source(), candidate.key.destination()].map(|one| one.to_string());
            let is_named = addresses.iter().any(|address| named.contains(&address.as_str()));
            assert_eq!(compiled.matches(&candidate), !is_named, "{text}: {addresses:?}");
            assert_eq!(compiled.may_match_flow(&candidate.key), !is_named, "{text}: {addresses:?}");
        }
    }
    assert_eq!(
        selection("(src 10.1.0.0/16 and not src 10.0.0.0/8) or udp").terms(),
        1,
        "nothing is left of the first"
    );
    for nothing in ["not (ip or ip6)", "src 10.0.0.0/8 and not src 10.0.0.0/9 and not src 10.128.0.0/9"] {
        assert!(nothing.parse::<Selection>().unwrap_err().problem.contains("no packet"), "{nothing}");
    }
}
