//! Property tests: captures, traces, flow table scans and placements select the same packets as a simple
//! evaluation of their filter expressions.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_classify::{Candidate, CompiledSelection, FlowAnswer, Selection};
use millrace_forward::SharedFib;
use millrace_packet::{FlowKey, Packet, Pool};
use millrace_units::{Instant, PortId};
use millrace_wire::EtherType;
use proptest::prelude::*;

use crate::flow_reports::FlowScan;
use crate::observe::capture::{CapturePlace, Direction, capture};
use crate::observe::trace::{TraceOrder, Tracer, trace};
use crate::offloaded_flows::{Level, Placement, Placements};
use crate::parse::parse;
use crate::router::Router;

/// Filter expression of a property test.
#[derive(Clone, Debug)]
enum Wanted {
    Protocol(u8),
    SourceHost(u8),
    DestinationHost(u8),
    Host(u8),
    SourcePorts(u16, u16),
    DestinationPorts(u16, u16),
    Port(u16),
    LaterFragment,
    Not(Box<Self>),
    All(Vec<Self>),
    Either(Vec<Self>),
}

impl Wanted {
    /// Returns the expression as a user writes it.
    fn text(&self) -> String {
        let join = |parts: &[Self], word: &str| {
            parts.iter().map(|part| format!("({})", part.text())).collect::<Vec<_>>().join(word)
        };
        match self {
            Self::Protocol(protocol) => format!("proto {protocol}"),
            Self::SourceHost(host) => format!("src 10.0.0.{host}"),
            Self::DestinationHost(host) => format!("dst 10.0.0.{host}"),
            Self::Host(host) => format!("host 10.0.0.{host}"),
            Self::SourcePorts(first, last) => format!("src portrange {first}-{last}"),
            Self::DestinationPorts(first, last) => format!("dport {first}-{last}"),
            Self::Port(port) => format!("port {port}"),
            Self::LaterFragment => "exceptions fragment".to_owned(),
            Self::Not(inner) => format!("not ({})", inner.text()),
            Self::All(parts) => join(parts, " and "),
            Self::Either(parts) => join(parts, " or "),
        }
    }

    /// Evaluates the expression, one condition after the other.
    fn holds(&self, sent: &Sent) -> bool {
        let has_ports = sent.protocol != 1 && sent.header == Header::Whole;
        match self {
            Self::Protocol(protocol) => sent.protocol == *protocol,
            Self::SourceHost(host) => sent.hosts.0 == *host,
            Self::DestinationHost(host) => sent.hosts.1 == *host,
            Self::Host(host) => sent.hosts.0 == *host || sent.hosts.1 == *host,
            Self::SourcePorts(first, last) => has_ports && (*first..=*last).contains(&sent.ports.0),
            Self::DestinationPorts(first, last) => has_ports && (*first..=*last).contains(&sent.ports.1),
            Self::Port(port) => has_ports && (sent.ports.0 == *port || sent.ports.1 == *port),
            Self::LaterFragment => sent.header == Header::OfLaterFragment,
            Self::Not(inner) => !inner.holds(sent),
            Self::All(parts) => parts.iter().all(|part| part.holds(sent)),
            Self::Either(parts) => parts.iter().any(|part| part.holds(sent)),
        }
    }
}

/// Part of the transport header that a test packet contains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Header {
    Whole,
    /// No part: the packet is a later fragment.
    OfLaterFragment,
    /// The first four octets.
    Cut,
}

/// Packet that a host sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Sent {
    /// Last octets of the source and destination addresses.
    hosts: (u8, u8),
    protocol: u8,
    ports: (u16, u16),
    header: Header,
}

impl Sent {
    /// Builds the packet, and parses it as a worker does.
    fn packet(&self, pool: &Pool) -> (Packet, Candidate) {
        let offset = u8::from(self.header == Header::OfLaterFragment) * 5;
        let total_len = if self.header == Header::Cut { 24 } else { 40 };
        let hosts = [self.hosts.0, self.hosts.1].map(|host| [10, 0, 0, host]);
        let mut header = vec![0x45, 0, 0, total_len, 0, 7, 0, offset, 64, self.protocol, 0, 0];
        header.extend(hosts.concat());
        let sum = millrace_wire::checksum::sum(&header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let ports = [self.ports.0, self.ports.1].map(u16::to_be_bytes).concat();
        let bytes = [header, ports, vec![0, 20, 0, 0], vec![0; 12]].concat();
        let mut packet = pool.packet_from(&bytes).unwrap();
        packet.port = PortId(1);
        let parsed = parse(&mut packet, EtherType::IPV4).unwrap();
        let candidate = parsed.candidate(&packet);
        (packet, candidate)
    }

    /// Returns packets with the flow key of this packet: one for each case that filter expressions can
    /// distinguish, such as a later fragment or a cut header.
    fn of_same_flow(&self) -> Vec<Self> {
        // The flow key of a packet without readable ports has port numbers of 0.
        let has_ports = self.protocol != 1;
        if has_ports && self.header == Header::Whole && self.ports != (0, 0) {
            return vec![self.clone()];
        }
        let mut headers = vec![Header::Whole, Header::OfLaterFragment];
        headers.extend(has_ports.then_some(Header::Cut));
        headers.into_iter().map(|header| Self { ports: (0, 0), header, ..self.clone() }).collect()
    }
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    let ports = || (0u16..3, 0u16..3).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let leaf = prop_oneof![
        prop_oneof![Just(1u8), Just(6), Just(17)].prop_map(Wanted::Protocol),
        (1u8..3).prop_map(Wanted::SourceHost),
        (1u8..3).prop_map(Wanted::DestinationHost),
        (1u8..3).prop_map(Wanted::Host),
        ports().prop_map(|(first, last)| Wanted::SourcePorts(first, last)),
        ports().prop_map(|(first, last)| Wanted::DestinationPorts(first, last)),
        (0u16..3).prop_map(Wanted::Port),
        Just(Wanted::LaterFragment),
    ];
    leaf.prop_recursive(3, 6, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| Wanted::Not(Box::new(one))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Wanted::All),
            prop::collection::vec(inner, 1..4).prop_map(Wanted::Either),
        ]
    })
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let protocol = prop_oneof![Just(1u8), Just(6), Just(17)];
    let header = prop_oneof![
        6 => Just(Header::Whole), 1 => Just(Header::OfLaterFragment), 1 => Just(Header::Cut),
    ];
    let fields = ((1u8..3, 1u8..3), protocol, (0u16..3, 0u16..3), header);
    fields.prop_map(|(hosts, protocol, ports, header)| {
        // ICMP messages have no ports, so a cut header makes no difference.
        let is_cut = header == Header::Cut && protocol == 1;
        Sent { hosts, protocol, ports, header: if is_cut { Header::Whole } else { header } }
    })
}

/// Returns the compiled expression; `None` if no packet can match it.
fn compiled(wanted: &Wanted) -> Result<Option<CompiledSelection>, TestCaseError> {
    match wanted.text().parse::<Selection>() {
        Ok(read) => Ok(Some(read.compile(|_| None).unwrap())),
        Err(error) if error.problem.contains("no packet") => Ok(None),
        Err(error) if error.problem.contains("combin") => Err(TestCaseError::reject(error.to_string())),
        Err(error) => panic!("{}: {error}", wanted.text()),
    }
}

/// Returns the flows that a scan of the flow table finds. With `forgets`, the scan removes their records.
fn scanned(flows: &BTreeSet<Sent>, filter: &CompiledSelection, forgets: bool) -> BTreeSet<Sent> {
    let (fib, pool) = (SharedFib::new().unwrap(), Pool::new(64).unwrap());
    let mut router = Router::new(pool.clone(), fib.reader(), 1).unwrap();
    let key = |flow: &Sent| flow.packet(&pool).1.key;
    for key in flows.iter().map(key) {
        let hash = router.classifier.flows.hash(&key);
        router.classifier.flows.insert(&key, hash, 0, FlowAnswer::default(), Instant::ZERO).unwrap();
    }
    let scan = FlowScan { from: 0, records: u32::MAX, filter: filter.clone() };
    let page =
        if forgets { scan.flush(&mut router, Instant::ZERO) } else { scan.run(&router, Instant::ZERO) };
    let found: Vec<FlowKey> = page.flows.into_iter().map(|flow| flow.key).collect();
    let left = router.classifier.flows.len() as usize;
    assert_eq!(left, if forgets { flows.len() - found.len() } else { flows.len() });
    flows.iter().filter(|flow| found.contains(&key(flow))).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn captures_and_traces_take_exactly_the_matching_packets(
        wanted in any_wanted(), sent in prop::collection::vec(any_sent(), 1..16),
    ) {
        let filter = compiled(&wanted)?;
        let pool = Pool::new(32).unwrap();
        let (mut sink, mut source) = capture(1, CapturePlace::Ports, filter.clone(), 64, 1 << 12);
        let order = TraceOrder { filter: filter.clone(), every: 1, count: 100, time: Duration::from_secs(1) };
        let (trace_sink, _reader) = trace(1, order);
        let mut tracer = Tracer::new(trace_sink, 0, 1, Instant::ZERO);
        for sent in &sent {
            let expected = wanted.holds(sent);
            if filter.is_none() {
                prop_assert!(!expected, "{}", wanted.text());
                continue;
            }
            let (mut packet, candidate) = sent.packet(&pool);
            sink.offer(&packet, Some(&candidate), PortId(1), Direction::Inbound, Instant::ZERO);
            let seen = (source.next_frame().is_some(), tracer.choose(&mut packet, Some(&candidate), 0));
            prop_assert_eq!(seen, (expected, expected), "{}: {:?}", wanted.text(), sent);
        }
    }

    #[test]
    fn flow_is_selected_exactly_if_one_of_its_packets_matches(
        wanted in any_wanted(), sent in prop::collection::vec(any_sent(), 1..16),
    ) {
        let Some(filter) = compiled(&wanted)? else { return Ok(()) };
        let pool = Pool::new(32).unwrap();
        let flows: BTreeSet<Sent> = sent.iter().map(|sent| sent.of_same_flow().remove(0)).collect();
        let is_meant = |flow: &&Sent| flow.of_same_flow().iter().any(|packet| wanted.holds(packet));
        let meant: BTreeSet<Sent> = flows.iter().filter(is_meant).cloned().collect();
        for forgets in [false, true] {
            prop_assert_eq!(&scanned(&flows, &filter, forgets), &meant, "{}", wanted.text());
        }
        let placements =
            Placements::new(vec![Placement { flows: filter.clone(), level: Level::Worker }]);
        let (sink, _source) = capture(1, CapturePlace::Ports, Some(filter.clone()), 64, 1 << 12);
        let order = TraceOrder { filter: Some(filter), every: 1, count: 100, time: Duration::from_secs(1) };
        let (trace_sink, _reader) = trace(1, order);
        let tracer = Tracer::new(trace_sink, 0, 1, Instant::ZERO);
        for flow in &flows {
            let key = flow.packet(&pool).1.key;
            let placed = placements.of(&key) == Some(Level::Worker);
            let kept = (placed, sink.wants(&key, None), tracer.wants(&key));
            let expected = meant.contains(flow);
            prop_assert_eq!(kept, (expected, expected, expected), "{}: {:?}", wanted.text(), flow);
        }
    }
}
