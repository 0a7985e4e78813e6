//! Fast path of plain flows, compared with the general path. For any packets and changes, both send the same
//! frames in the same order and count the same. A capture makes all packets take the general path. Tracing
//! changes nothing either.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_pipeline::{CaptureSource, ReversePath, TraceSource, TraceStep};
use millrace_plugin::BindingId;
use millrace_plugin_abi::Message;
use millrace_testkit::Random;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, Ipv6Frame, NdFrame, STANDARD, Scenario, station};
use proptest::prelude::*;

use crate::security::random::mutate;

/// Additions to the standard configuration: a sub-interface, and instances.
const MORE: &str = r#"
[[port]]
name = "t"
device = "trunk"

[[port]]
name = "v"
device = "trunk"
vlan = 10
mac = "02:00:00:00:00:0d"
address = ["10.4.0.1/24", "fd00:4::1/64"]

[[neighbour]]
port = "v"
address = "10.4.0.2"
mac = "02:00:00:00:00:d2"

[[route]]
to = "10.8.0.0/16"
via = "10.4.0.2"

[[instance]]
plugin = "null"
name = "free"

[[instance]]
plugin = "port-filter"
name = "door"
settings = { ports = "53" }

[[instance]]
plugin = "delay"
name = "late"
settings = { ms = 20 }
"#;
/// Maximum sizes of the flow table: the default, and 0 for no table.
const FLOW_TABLES: [u32; 2] = [1 << 20, 0];
const SETTINGS: &str = "icmp-rate = 1000000\nicmp-burst = 1000000\n";
/// Ports with devices.
const DEVICES: [&str; 4] = ["a", "b", "c", "t"];
const PORTS: [&str; 4] = ["a", "b", "c", "v"];

const FILTERS: [&str; 10] = [
    "match = \"proto udp dport 443\"\naction = \"drop\"",
    "match = \"proto udp sport 1000-1003 in a\"\naction = \"port c via 10.3.0.2\"",
    "match = \"dst 10.9.0.0/16\"\naction = \"copy-to c via 10.3.0.2\"",
    "match = \"proto udp dport 53 dscp 4\"\naction = \"drop\"",
    "match = \"src fd00:1::2/128 proto udp\"\naction = \"drop\"\npriority = 3",
    "match = \"proto tcp flags syn/syn\"\naction = \"drop\"",
    "match = \"src 10.1.0.0/24\"\naction = \"instance free\"\ngate = \"monitor\"",
    "match = \"src 10.1.0.0/24 proto udp\"\naction = \"instance door\"\ngate = \"firewall\"",
    "match = \"proto udp dport 443\"\naction = \"instance free\"\ngate = \"process\"",
    "match = \"proto udp sport 1001\"\naction = \"instance late\"\ngate = \"process\"",
];
/// Index of the filter that sends copies out of a port.
const COPYING: usize = 2;
const ROUTES: [(&str, &str); 5] = [
    ("10.9.0.0/24", "via = \"10.3.0.2\""),
    ("10.9.0.1/32", "kind = \"blackhole\""),
    ("fd00:9::/96", "via = \"fd00:3::2\""),
    ("10.9.0.0/16", "via = [\"10.2.0.2\", \"10.3.0.2\"]"),
    ("10.9.0.0/25", "via = \"10.4.0.2\""),
];

#[derive(Clone, Debug)]
enum Change {
    AddFilter(usize),
    RemoveFilter(usize),
    AddRoute(usize),
    RemoveRoute(usize),
    Mtu(u16),
    Up(usize, bool),
    ReversePath(ReversePath),
    /// Changes the MAC address of a neighbour to this last byte.
    Neighbour(u8),
    /// Sets the ports whose packets the port-filter instance `door` drops.
    Door(&'static str),
    Wait(u64),
    Nothing,
}

fn any_change() -> impl Strategy<Value = Change> {
    let modes = prop::sample::select(vec![ReversePath::Off, ReversePath::Strict, ReversePath::Loose]);
    prop_oneof![
        3 => (0..FILTERS.len()).prop_map(Change::AddFilter),
        3 => any::<usize>().prop_map(Change::RemoveFilter),
        3 => (0..ROUTES.len()).prop_map(Change::AddRoute),
        3 => (0..ROUTES.len()).prop_map(Change::RemoveRoute),
        2 => prop::sample::select(vec![1500_u16, 1280, 9000]).prop_map(Change::Mtu),
        2 => (0..4_usize, any::<bool>()).prop_map(|(port, up)| Change::Up(port, up)),
        1 => modes.prop_map(Change::ReversePath),
        3 => (0xd0..0xd3_u8).prop_map(Change::Neighbour),
        2 => prop::sample::select(vec!["53", "443", "80", ""]).prop_map(Change::Door),
        1 => prop::sample::select(vec![1, 300, 5_000, 40_000]).prop_map(Change::Wait),
        3 => Just(Change::Nothing),
    ]
}

/// Returns a frame, most often of one of a few flows. Unless `plain` is set, some frames are exceptional and
/// some malformed.
fn frame(random: &mut Random, number: u32, plain: bool) -> (&'static str, Vec<u8>) {
    let payload = [number.to_be_bytes().as_slice(), &[0; 36]].concat();
    let (source, destination) = (1000 + random.below(6) as u16, *random.pick(&[53, 443]));
    let v4 = || Ipv4Frame::udp().ports(source, destination).payload(&payload).id(number as u16);
    let v6 = || Ipv6Frame::udp().ports(source, destination).payload(&payload);
    let tcp = |flags| Ipv4Frame::tcp().ports(source, 80).flags(flags).id(number as u16);
    let kind = if plain { 26 + random.below(14) } else { random.below(40) };
    let (port, frame) = match kind {
        0 => ("a", v4().ttl(1).bytes()),
        1 => ("a", v4().ttl(2).tos(16).bytes()),
        2 => ("a", v4().options(&[1, 1, 1, 0]).bytes()),
        3 => ("a", v4().length(1400).bytes()),
        4 => ("a", v4().checksum_xor(1).bytes()),
        5 => ("a", tcp(2).bytes()),
        6..9 => ("a", tcp(16).bytes()),
        9 => ("a", NdFrame::solicitation("fd00:1::2", "fd00:1::1").source_link(station(0xa2)).bytes()),
        10..12 => ("a", v4().dst("10.3.0.50").bytes()),
        12 => ("a", Ipv4Frame::echo().payload(&payload).id(number as u16).bytes()),
        13 => ("c", v4().src("10.3.0.2").to(station(0x0c)).bytes()),
        14 => ("a", v4().tag(0x8100, 0).bytes()),
        15..18 => ("a", v4().dst("10.8.1.1").bytes()),
        18 => ("t", v4().src("10.4.0.2").dst("10.1.0.2").to(station(0x0d)).tag(0x8100, 10).bytes()),
        19 => ("b", v4().src("10.2.0.2").dst("10.1.0.2").to(station(0x0b)).pad(60).bytes()),
        20 => ("a", v4().pad(90).bytes()),
        21 => ("a", v6().hop_limit(1).bytes()),
        22 => ("a", v6().extension(60, &[0, 1, 4, 0, 0, 0, 0]).bytes()),
        23 => ("a", v4().dst("10.1.0.2").bytes()),
        24 => ("a", v4().payload(&[]).bytes()),
        25 => ("a", v6().dst("fd00:3::2").bytes()),
        26 if !plain => ("a", v4().length(1400).more_fragments().bytes()),
        26 => ("a", tcp(16).bytes()),
        27..33 => ("a", v6().bytes()),
        _ => ("a", v4().bytes()),
    };
    match random.below(12) {
        0 if !plain => (port, mutate(random, &frame, &v6().bytes())),
        _ => (port, frame),
    }
}

/// Frames transmitted by each port, in order.
type Sent = Vec<(&'static str, Vec<Vec<u8>>)>;

/// Router, with captures that make all its packets take the general path, or with traces.
struct Way {
    router: Scenario,
    captures: Vec<CaptureSource>,
    traces: Vec<TraceSource>,
    /// For each trace number, the number of traced frames whose end was not traced yet.
    open: BTreeMap<u16, i64>,
    /// Number of packets whose tracing has begun.
    begun: usize,
    filters: Vec<(usize, BindingId)>,
    sent: Sent,
}

impl Way {
    fn new((workers, flows): (usize, u32)) -> Self {
        let text = format!("[router]\nworkers = {workers}\nflows-max = {flows}\n{SETTINGS}{STANDARD}{MORE}");
        Self {
            router: Scenario::new(&text),
            captures: Vec::new(),
            traces: Vec::new(),
            open: BTreeMap::new(),
            begun: 0,
            filters: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Returns a router whose packets all take the general path.
    fn general(setting: (usize, u32)) -> Self {
        let mut way = Self::new(setting);
        way.captures = way.router.router.capture(0);
        way
    }

    /// Returns a router that traces one in `every` arriving packets.
    fn traced(setting: (usize, u32), every: u32) -> Self {
        let mut way = Self::new(setting);
        way.traces = way.router.router.trace(every);
        way
    }

    /// Reads the traced steps.
    fn read_journeys(&mut self) {
        for event in self.traces.iter_mut().flat_map(|trace| std::iter::from_fn(|| trace.next_event())) {
            let ends = match event.step {
                TraceStep::Arrived(..) => {
                    self.begun += 1;
                    1
                }
                TraceStep::Fragmented(pieces) => i64::from(pieces) - 1,
                TraceStep::End(_) => -1,
                _ => 0,
            };
            *self.open.entry(event.mark).or_default() += ends;
        }
        assert!(self.traces.iter().all(|trace| trace.lost() == 0));
    }

    fn run(&mut self) {
        self.router.router.run();
        for port in DEVICES {
            self.sent.push((port, self.router.router.take(port)));
        }
        self.read_journeys();
    }

    fn change(&mut self, change: &Change) {
        let router = &mut self.router.router;
        match change {
            Change::AddFilter(which) if self.filters.iter().all(|(there, _)| there != which) => {
                let filter = toml::from_str(FILTERS[*which]).expect("a filter");
                self.filters.push((*which, router.add_filter(&filter).expect("a right filter")));
            }
            Change::RemoveFilter(which) if !self.filters.is_empty() => {
                let (_, id) = self.filters.remove(which % self.filters.len());
                router.remove_filter(id).expect("it was added");
            }
            Change::AddRoute(which) => {
                let (to, rest) = ROUTES[*which];
                let route = toml::from_str(&format!("to = \"{to}\"\n{rest}")).expect("a route");
                router.add_route(&route).expect("a right route");
            }
            Change::RemoveRoute(which) => drop(router.remove_route(ROUTES[*which].0.parse().unwrap())),
            Change::Mtu(mtu) => router.set_mtu("b", *mtu),
            Change::Up(port, up) => router.set_up(PORTS[*port], *up),
            Change::ReversePath(mode) => router.set_reverse_path("a", *mode),
            Change::Neighbour(last) => {
                let reply = ArpFrame::reply("10.3.0.50", "10.3.0.1").to(station(0x0c));
                router.inject("c", &reply.sender(station(*last)).bytes());
            }
            Change::Door(ports) => {
                let arguments = serde_json::Map::from_iter([("ports".to_owned(), (*ports).into())]);
                let message = Message { name: "set".to_owned(), arguments };
                router.control("door", &message).expect("right ports");
            }
            Change::Wait(millis) => router.advance(Duration::from_millis(*millis)),
            Change::AddFilter(_) | Change::RemoveFilter(_) | Change::Nothing => {}
        }
        self.run();
    }

    /// Returns everything observable: the frames sent since the last call, and all counters.
    fn take_seen(&mut self) -> (Sent, String) {
        let router = &mut self.router.router;
        let filters: Vec<_> = self.filters.iter().map(|(_, id)| router.filter_counts(*id)).collect();
        let counts = (router.summary(), router.counts(), filters, router.flows());
        let counts = format!("{counts:?}");
        (std::mem::take(&mut self.sent), counts)
    }
}

/// Change, and the bursts of packets after it. Each burst has a seed and a number of packets, which arrive
/// before the router runs.
type Step = (Change, Vec<(u64, usize)>);

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let bursts = prop::collection::vec((any::<u64>(), 1..40_usize), 1..8);
    prop::collection::vec((any_change(), bursts), 1..12)
}

/// Sorts the frames that a port has sent in one run.
fn sort_frames((sent, _): &mut (Sent, String)) {
    sent.iter_mut().for_each(|(_, frames)| frames.sort());
}

/// Applies the steps to four routers and compares them: on the general path, on the fast path, with all
/// packets traced, and with a third traced. `setting` has the number of workers and the size of the flow
/// table.
fn run_alike(steps: &[Step], setting: (usize, u32)) {
    let workers = setting.0;
    let mut ways =
        [Way::general(setting), Way::new(setting), Way::traced(setting, 1), Way::traced(setting, 3)];
    assert_eq!((ways[0].captures.len(), ways[2].traces.len()), (workers, workers));
    let (mut number, mut has_copied) = (0, false);
    for (change, bursts) in steps {
        ways.iter_mut().for_each(|way| way.change(change));
        for (seed, count) in bursts {
            let mut random = Random::new(*seed);
            let plain = random.below(2) == 0;
            for _ in 0..*count {
                number += 1;
                let (port, frame) = frame(&mut random, number, plain);
                ways.iter_mut().for_each(|way| way.router.router.inject(port, &frame));
            }
            ways.iter_mut().for_each(Way::run);
        }
        let [mut general, express, mut traced, mut sampled] = ways.each_mut().map(Way::take_seen);
        assert_eq!(express, general, "after {change:?}");
        if has_copied || ways[0].filters.iter().any(|(which, _)| *which == COPYING) {
            // The order of copies differs: copies of differently treated flows leave group by group, and
            // tracing splits batches.
            has_copied = true;
            [&mut general, &mut traced, &mut sampled].into_iter().for_each(sort_frames);
        }
        assert_eq!(traced, general, "while all packets are traced, after {change:?}");
        assert_eq!(sampled, general, "while some packets are traced, after {change:?}");
    }
    ways.iter_mut().for_each(|way| way.change(&Change::Wait(60_000)));
    let [mut general, express, mut traced, mut sampled] = ways.each_mut().map(Way::take_seen);
    assert_eq!(express, general, "in the end");
    [&mut general, &mut traced, &mut sampled].into_iter().for_each(sort_frames);
    assert_eq!((&traced, &sampled), (&general, &general), "in the end, while packets are traced");
    ways[1].router.check_conservation();
    // Every traced packet has ended, and each of its ends was traced once.
    for way in &ways[2..] {
        let open: Vec<_> = way.open.iter().filter(|(_, ends)| **ends != 0).collect();
        assert!(open.is_empty(), "{open:?} of {} journeys", way.begun);
    }
    // Tracing covers the test's packets and the ARP replies of neighbours.
    assert!(ways[2].begun >= number as usize, "{} of {number}", ways[2].begun);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn plain_flows_take_the_fast_path_with_the_result_of_the_general_path(
        steps in any_steps(),
        workers in 1..3_usize,
        flows in prop::sample::select(FLOW_TABLES.to_vec()),
    ) {
        run_alike(&steps, (workers, flows));
    }
}

#[test]
fn without_a_flow_table_a_number_that_is_given_to_another_route_is_that_route() {
    let mut way = Way::new((1, 0));
    // The router reuses account numbers once a thousand are free.
    for round in 0..3000_u16 {
        let (gateway, port) = if round % 2 == 0 { ("10.2.0.2", "b") } else { ("10.3.0.2", "c") };
        let [high, low] = round.to_be_bytes();
        let (network, host) = (format!("10.{}.{low}.0/24", 20 + high), format!("10.{}.{low}.1", 20 + high));
        let route = toml::from_str(&format!("to = \"{network}\"\nvia = \"{gateway}\"")).unwrap();
        way.router.router.add_route(&route).unwrap();
        // The first packet resolves the route's adjacency, the second packet uses it.
        for _ in 0..2 {
            way.router.router.inject("a", &Ipv4Frame::udp().dst(&host).bytes());
            way.run();
        }
        let left: Vec<_> =
            std::mem::take(&mut way.sent).into_iter().filter(|(_, all)| !all.is_empty()).collect();
        assert_eq!(
            left.iter().map(|(port, all)| (*port, all.len())).collect::<Vec<_>>(),
            [(port, 1); 2],
            "{round}"
        );
        way.router.router.remove_route(network.parse().unwrap()).expect("it was added");
    }
}
