//! Offloaded flows: after any change, each flow's packets leave unchanged and in order, as without offload.

pub mod driver;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use driver::{Driver, Received};
use millrace_pipeline::{ReversePath, StaysUp};
use millrace_plugin::BindingId;
use millrace_testkit::Random;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, Ipv6Frame, NdFrame, Scenario, station};
use proptest::prelude::*;

const PORTS: [&str; 3] = ["a", "b", "c"];
const FILTERS: [&str; 9] = [
    "match = \"proto udp dport 443\"\naction = \"drop\"",
    "match = \"proto udp sport 1000-1003 in a\"\naction = \"port c via 10.3.0.2\"",
    "match = \"dst 10.9.0.0/16\"\naction = \"copy-to c via 10.3.0.2\"",
    "match = \"proto udp dport 53 dscp 4\"\naction = \"drop\"",
    "match = \"src fd00:1::2/128 proto udp\"\naction = \"drop\"\npriority = 3",
    "match = \"proto tcp flags syn/syn\"\naction = \"drop\"",
    "match = \"proto udp sport 1001-1004\"\naction = \"drop\"\ngate = \"firewall\"",
    "match = \"proto udp dport 53\"\naction = \"accept\"\ngate = \"firewall\"\npriority = 2",
    "match = \"src 10.1.0.2/32 dst 10.9.0.1/32 proto udp sport 1005 dport 443\"\naction = \"police 40kbit burst 2000B\"\ngate = \"security-in\"",
];
const ROUTES: [(&str, &str); 4] = [
    ("10.9.0.0/24", "via = \"10.3.0.2\""),
    ("10.9.0.1/32", "kind = \"blackhole\""),
    ("fd00:9::/96", "via = \"fd00:3::2\""),
    ("10.9.0.0/16", "via = [\"10.2.0.2\", \"10.3.0.2\"]"),
];

/// Router, with or without an offload below it.
struct Pair {
    router: Scenario,
    driver: Option<Driver>,
    /// Transmitted frames by port, in order.
    sent: BTreeMap<String, Vec<Vec<u8>>>,
    filters: Vec<BindingId>,
}

impl Pair {
    fn new(room: Option<u32>) -> Self {
        Self::of_workers(room, 1, 1)
    }

    /// Returns a router with `workers` workers, and `queues` receive queues at each port.
    fn of_workers(room: Option<u32>, workers: usize, queues: usize) -> Self {
        let mut router = Scenario::with_settings(&format!(
            "icmp-rate = 1000000\nicmp-burst = 1000000\nredirects = false\nworkers = {workers}"
        ));
        PORTS.iter().for_each(|port| router.router.add_queues(port, queues));
        let driver = room.map(Driver::new);
        if let Some(driver) = &driver {
            router.router.set_driver(|worker| Box::new(driver.of_worker(worker)), &PORTS);
        }
        Self { router, driver, sent: BTreeMap::new(), filters: Vec::new() }
    }

    fn receive(&mut self, port: &str, frame: &[u8]) {
        self.receive_by(port, 0, frame);
    }

    fn receive_by(&mut self, port: &str, queue: usize, frame: &[u8]) {
        let id = self.router.router.port_id(port).unwrap();
        let own = [2, 0, 0, 0, 0, 0x0a + PORTS.iter().position(|own| *own == port).unwrap() as u8];
        let now = self.router.router.now().as_nanos();
        let receive = |driver: &Driver| {
            driver.set_now(now);
            driver.receive((id, queue), own, frame)
        };
        match self.driver.as_ref().map_or(Received::Up, receive) {
            Received::Sent(out, frame) => {
                let out = PORTS.iter().find(|name| self.router.router.port_id(name) == Some(out)).unwrap();
                self.sent.entry((*out).to_owned()).or_default().push(frame);
            }
            Received::Dropped => {}
            Received::Up => self.router.router.inject_by(port, queue, frame),
        }
    }

    fn run(&mut self) {
        self.router.router.run();
        self.take();
    }

    fn take(&mut self) {
        for port in PORTS {
            self.sent.entry(port.to_owned()).or_default().extend(self.router.router.take(port));
        }
    }

    fn advance(&mut self, millis: u64) {
        self.router.advance(Duration::from_millis(millis));
        self.take();
    }

    /// Returns the transmitted frames by port and flow: source, destination and the transport ports.
    fn by_flow(&self) -> ByFlow {
        let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (port, frames) in &self.sent {
            for frame in frames {
                let mut frame = frame.clone();
                let flow = match (&frame[12..14], frame.len()) {
                    // A later fragment has no ports: the identification of its packet takes their place.
                    ([8, 0], 38..) if frame[20] & 0x1f != 0 || frame[21] != 0 => {
                        [&frame[23..24], &frame[26..34], &frame[18..20], &[0, 0]].concat()
                    }
                    ([8, 0], 38..) => {
                        if frame[23] == 1 && frame[34] != 8 {
                            // Identification and header checksum of ICMP errors differ between routers.
                            frame[18..20].fill(0);
                            frame[24..26].fill(0);
                        }
                        [&frame[23..24], &frame[26..38]].concat()
                    }
                    ([0x86, 0xdd], 58..) => [&frame[20..21], &frame[22..58]].concat(),
                    _ => frame[12..14].to_vec(),
                };
                flows.entry((port.clone(), flow)).or_default().push(frame);
            }
        }
        flows
    }

    /// Returns the counters of the present filters in the order of adding: packets, bytes, drops.
    fn filter_counts(&mut self) -> Vec<(u64, u64, u64)> {
        let counted = |id: &BindingId| {
            let counts = self.router.router.filter_counts(*id);
            (counts.packets, counts.bytes, counts.drops)
        };
        self.filters.iter().map(counted).collect()
    }

    fn change(&mut self, change: &Change) {
        let router = &mut self.router.router;
        match change {
            Change::AddFilter(text) => {
                let filter = toml::from_str(FILTERS[*text]).expect("a filter");
                match router.add_filter(&filter) {
                    Ok(id) => self.filters.push(id),
                    Err(error) => assert!(error.to_string().contains("already"), "{error}"),
                }
            }
            Change::RemoveFilter(which) if !self.filters.is_empty() => {
                let id = self.filters.remove(which % self.filters.len());
                router.remove_filter(id).expect("it was added");
            }
            Change::RemoveFilter(_) => {}
            Change::AddRoute(which) => {
                let (to, rest) = ROUTES[*which];
                let route = toml::from_str(&format!("to = \"{to}\"\n{rest}")).expect("a route");
                router.add_route(&route).expect("a right route");
            }
            Change::RemoveRoute(which) => drop(router.remove_route(ROUTES[*which].0.parse().unwrap())),
            Change::Mtu(port, mtu) => router.set_mtu(PORTS[*port], *mtu),
            Change::Up(port, up) => router.set_up(PORTS[*port], *up),
            Change::ReversePath(mode) => router.set_reverse_path("a", *mode),
            Change::Neighbour(last) => {
                let reply = ArpFrame::reply("10.3.0.50", "10.3.0.1").to(station(0x0c));
                let reply = reply.sender(station(*last)).bytes();
                self.receive("c", &reply);
                self.run();
            }
            Change::Wait(millis) => self.advance(*millis),
        }
        // While a change is in progress, packets may meet the old or the new state.
        self.run();
    }
}

/// Transmitted frames, by port and flow.
type ByFlow = BTreeMap<(String, Vec<u8>), Vec<Vec<u8>>>;

/// Replaces the ICMP errors by their number. Errors belong to many flows, whose packets may overtake each
/// other, and not every packet held for an absent host gets an error.
fn count_errors(flows: ByFlow) -> ByFlow {
    let mut counted = ByFlow::new();
    for ((port, mut flow), frames) in flows {
        if is_of_router(&flow) {
            flow.truncate(11);
            let without = vec![Vec::new(); frames.len()];
            counted.entry((port, flow)).or_default().extend(without);
        } else {
            counted.insert((port, flow), frames);
        }
    }
    counted
}

/// Whether a flow is ICMP other than an echo request.
fn is_of_router(flow: &[u8]) -> bool {
    flow[0] == 58 || (flow[0] == 1 && flow[9] != 8)
}

#[derive(Clone, Debug)]
enum Change {
    AddFilter(usize),
    RemoveFilter(usize),
    AddRoute(usize),
    RemoveRoute(usize),
    Mtu(usize, u16),
    Up(usize, bool),
    ReversePath(ReversePath),
    Neighbour(u8),
    Wait(u64),
}

/// Change, and the bursts after it: seed, and number of packets that arrive before the router runs.
type Step = (Change, Vec<(u64, usize)>);

fn any_change() -> impl Strategy<Value = Change> {
    let modes = prop::sample::select(vec![ReversePath::Off, ReversePath::Strict, ReversePath::Loose]);
    prop_oneof![
        3 => (0..FILTERS.len()).prop_map(Change::AddFilter),
        3 => any::<usize>().prop_map(Change::RemoveFilter),
        3 => (0..ROUTES.len()).prop_map(Change::AddRoute),
        3 => (0..ROUTES.len()).prop_map(Change::RemoveRoute),
        2 => (0..2_usize, prop::sample::select(vec![1500, 1280, 9000]))
            .prop_map(|(port, mtu)| Change::Mtu(port, mtu)),
        2 => (1..3_usize, any::<bool>()).prop_map(|(port, up)| Change::Up(port, up)),
        1 => modes.prop_map(Change::ReversePath),
        4 => (0xd0..0xd3_u8).prop_map(Change::Neighbour),
        2 => prop::sample::select(vec![1, 300, 5_000, 40_000]).prop_map(Change::Wait),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let bursts = prop::collection::vec((any::<u64>(), 1..12_usize), 1..12);
    prop::collection::vec((any_change(), bursts), 1..12)
}

/// Returns a packet of one of a few flows.
fn frame(random: &mut Random, number: u32) -> (&'static str, Vec<u8>) {
    let payload = [number.to_be_bytes().as_slice(), &[0; 36]].concat();
    let (source, destination) = (1000 + random.below(6) as u16, *random.pick(&[53, 443]));
    let v4 = || Ipv4Frame::udp().ports(source, destination).payload(&payload).id(number as u16);
    let v6 = || Ipv6Frame::udp().ports(source, destination).payload(&payload);
    match random.below(24) {
        0 => ("a", v4().ttl(1).bytes()),
        1 => ("a", v4().tos(16).bytes()),
        2 => ("a", v4().options(&[1, 1, 1, 0]).bytes()),
        3 => ("a", v4().length(1400).bytes()),
        4 => ("a", v4().checksum_xor(1).bytes()),
        5 => ("a", Ipv4Frame::tcp().ports(source, 80).flags(2).bytes()),
        6 => ("a", Ipv4Frame::tcp().ports(source, 80).flags(16).id(number as u16).bytes()),
        7 => ("a", NdFrame::solicitation("fd00:1::2", "fd00:1::1").source_link(station(0xa2)).bytes()),
        8 | 9 => ("a", v4().dst("10.3.0.50").bytes()),
        10 => ("a", Ipv4Frame::echo().payload(&payload).id(number as u16).bytes()),
        11 => ("c", v4().src("10.3.0.2").to(station(0x0c)).bytes()),
        12..17 => ("a", v6().bytes()),
        _ => ("a", v4().bytes()),
    }
}

/// Size of a router with an offload: flow cache capacity, workers, receive queues per port.
type Made = (u32, usize, usize);

fn runs_alike(steps: &[Step], (room, workers, queues): Made) -> u64 {
    let of = |room| Pair::of_workers(room, workers, queues);
    let (mut plain, mut with) = (of(None), of(Some(room)));
    let mut number = 0;
    for (change, bursts) in steps {
        plain.change(change);
        with.change(change);
        for (seed, count) in bursts {
            let mut random = Random::new(*seed);
            for _ in 0..*count {
                number += 1;
                let (port, frame) = frame(&mut random, number);
                let (queue, turns) = (queue_of(&frame) % queues, random.below(3));
                for pair in [&mut plain, &mut with] {
                    pair.receive_by(port, queue, &frame);
                    // Packets arrive while others are on their way between workers.
                    (0..turns).for_each(|_| pair.router.router.turn());
                    pair.take();
                }
            }
            for pair in [&mut plain, &mut with] {
                pair.run();
                pair.advance(1);
            }
        }
    }
    for pair in [&mut plain, &mut with] {
        pair.advance(30_000);
    }
    let is_in_order = (workers, queues) == (1, 1);
    let by_flow = |pair: &Pair| if is_in_order { pair.by_flow() } else { count_errors(pair.by_flow()) };
    let (below, alone) = (by_flow(&with), by_flow(&plain));
    let flows: BTreeSet<_> = below.keys().chain(alone.keys()).collect();
    for flow in flows {
        assert_eq!(below.get(flow), alone.get(flow), "{flow:02x?}, with a driver below and without");
    }
    assert_eq!(with.filter_counts(), plain.filter_counts());
    with.router.check_conservation();
    with.driver.as_ref().map_or(0, Driver::forwarded)
}

/// Returns the receive queue for a frame: the same for all frames of a flow, as with a NIC's RSS.
fn queue_of(frame: &[u8]) -> usize {
    frame[14..].iter().skip(20).take(4).map(|byte| usize::from(*byte)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_driver_below_changes_nothing_of_what_leaves(steps in any_steps(), room in prop::sample::select(vec![1_u32, 4, 64])) {
        runs_alike(&steps, (room, 1, 1));
    }

    #[test]
    fn a_driver_below_several_workers_and_queues_changes_nothing_of_what_leaves(
        steps in any_steps(),
        workers in 1..4_usize,
        queues in 1..4_usize,
    ) {
        runs_alike(&steps, (64, workers, queues));
    }
}

#[test]
fn what_is_plain_goes_down() {
    let mut pair = Pair::new(Some(64));
    for number in 0..1000_u32 {
        pair.receive("a", &Ipv4Frame::udp().ports(7, 9).id(number as u16).bytes());
        pair.receive("a", &Ipv6Frame::udp().ports(7, 9).bytes());
        pair.run();
        pair.advance(1);
    }
    let forwarded = pair.driver.as_ref().unwrap().forwarded();
    assert!(forwarded >= 1980, "{forwarded} of 2000");
    let counts = pair.router.router.driver_flows();
    assert_eq!((counts.flows, counts.inserted, counts.room), (2, 2, 62));
    // The flow table has both flows all the time. Their flow cache entries expire when the flows end.
    assert_eq!(pair.router.router.flows().records, 2);
    pair.advance(20_000);
    assert_eq!((pair.router.router.driver_flows().flows, pair.router.router.driver_flows().idle), (0, 2));
}

/// Sends packets of one flow to an address. Returns the number that the offload forwarded.
fn driven(pair: &mut Pair, to: &str, count: u64) -> u64 {
    let before = pair.driver.as_ref().unwrap().forwarded();
    for number in 0..count {
        pair.receive("a", &Ipv4Frame::udp().dst(to).ports(7, 53).id(number as u16).bytes());
        pair.run();
        pair.advance(1);
    }
    pair.driver.as_ref().unwrap().forwarded() - before
}

#[test]
fn what_does_not_concern_a_flow_leaves_it_in_the_driver() {
    let mut pair = Pair::new(Some(64));
    assert!(driven(&mut pair, "10.2.0.2", 100) >= 97);
    // Routes to other prefixes, a filter that never matches, and a station that gets no packets.
    for step in 0..10 {
        let route = toml::from_str("to = \"99.0.0.0/8\"\nvia = \"10.3.0.2\"").unwrap();
        pair.router.router.add_route(&route).unwrap();
        pair.change(&Change::AddFilter(0));
        pair.change(&Change::Neighbour(0xd0 + step));
        assert_eq!(driven(&mut pair, "10.2.0.2", 10), 10, "step {step}");
        pair.change(&Change::RemoveFilter(0));
        let _ = pair.router.router.remove_route("99.0.0.0/8".parse().unwrap());
        assert_eq!(driven(&mut pair, "10.2.0.2", 10), 10, "step {step}");
    }
    // A change of the flow's own neighbour causes one upcall.
    driven(&mut pair, "10.3.0.50", 1);
    pair.change(&Change::Neighbour(0xd1));
    assert!(driven(&mut pair, "10.3.0.50", 100) >= 97);
    pair.change(&Change::Neighbour(0xd0));
    assert_eq!(driven(&mut pair, "10.3.0.50", 10), 9);
}

#[test]
fn a_flow_that_comes_back_goes_down_at_once() {
    let mut pair = Pair::new(Some(64));
    // Neither a power of two nor a round number of packets.
    assert!(driven(&mut pair, "10.2.0.2", 300) >= 297);
    pair.advance(16_000);
    assert_eq!(pair.router.router.driver_flows().idle, 1);
    assert!(driven(&mut pair, "10.2.0.2", 10) >= 8);
}

/// Sends heavy and light flows. Returns the heavy packets that the offload forwarded in the last second.
fn crowded(pair: &mut Pair, heavy: u16, light: &[(u16, u64)], millis: u64) -> u64 {
    let mut before = 0;
    for number in 0..millis {
        if number + 1000 == millis {
            before = pair.driver.as_ref().unwrap().forwarded();
        }
        pair.receive("a", &Ipv4Frame::udp().ports(heavy, 9).id(number as u16).bytes());
        for (port, every) in light.iter().filter(|(_, every)| number % every == 0 && number + 1000 < millis) {
            pair.receive("a", &Ipv4Frame::udp().ports(*port, *every as u16).id(number as u16).bytes());
        }
        pair.run();
        pair.advance(1);
    }
    pair.driver.as_ref().unwrap().forwarded() - before
}

#[test]
fn a_heavy_flow_gets_the_place_of_a_light_one_where_the_cache_is_full() {
    let mut pair = Pair::new(Some(4));
    let light = [(1, 50), (2, 60), (3, 70), (4, 80)];
    // The light flows are offloaded first, and never idle for long.
    assert_eq!(crowded(&mut pair, 1, &light[1..], 3000), 1000);
    assert_eq!(pair.router.router.driver_flows().flows, 4);
    let down = crowded(&mut pair, 7, &light, 5000);
    let counts = pair.router.router.driver_flows();
    assert_eq!(down, 1000, "{counts:?}");
    assert!(counts.evicted >= 1, "{counts:?}");
    // A flow without room is counted once, not with each packet.
    assert!((1..=5).contains(&counts.refused), "{counts:?}");
}

#[test]
fn counters_that_are_cleared_have_nothing_of_what_the_driver_did_before() {
    let mut pair = Pair::new(Some(64));
    let filter = toml::from_str("match = \"proto udp dport 53\"\naction = \"accept\"").unwrap();
    let id = pair.router.router.add_filter(&filter).unwrap();
    assert!(driven(&mut pair, "10.2.0.2", 300) >= 290);
    pair.router.router.clear_counters();
    // By now all reports of earlier packets have arrived.
    pair.advance(2000);
    assert_eq!(pair.router.router.filter_counts(id).packets, 0);
    assert_eq!(driven(&mut pair, "10.2.0.2", 10), 10);
    pair.advance(2000);
    assert_eq!(pair.router.router.filter_counts(id).packets, 10);
}

#[test]
fn flows_that_are_alike_leave_each_other_in_the_driver() {
    let mut pair = Pair::new(Some(3));
    for number in 0..4000_u32 {
        for port in 1..=5 {
            pair.receive("a", &Ipv4Frame::udp().ports(port, 9).id(number as u16).bytes());
        }
        pair.run();
        pair.advance(1);
    }
    let counts = pair.router.router.driver_flows();
    assert_eq!((counts.flows, counts.evicted, counts.refused), (3, 0, 2), "{counts:?}");
}

#[test]
fn a_flow_whose_packets_come_up_goes_back_to_the_worker_and_stays_there_for_a_while() {
    let mut pair = Pair::new(Some(64));
    pair.router.router.set_mtu("b", 1280);
    assert!(driven(&mut pair, "10.2.0.2", 100) >= 97);
    // The router fragments these packets, which the offload can't do.
    let long = |pair: &mut Pair, count: u16| {
        for number in 0..count {
            pair.receive("a", &Ipv4Frame::udp().dst("10.2.0.2").ports(7, 53).id(number).length(1400).bytes());
            pair.run();
            pair.advance(10);
        }
        pair.router.router.driver_flows()
    };
    assert_eq!(long(&mut pair, 20).flows, 1, "a few say nothing");
    let counts = long(&mut pair, 400);
    assert_eq!((counts.flows, counts.inserted), (0, 1));
    let why = |pair: &mut Pair| pair.router.router.flow_reports().remove(0).stays_up;
    assert_eq!(why(&mut pair), Some(StaysUp::ComesUp));
    assert_eq!(long(&mut pair, 3000).inserted, 1, "it is not tried again and again");
    assert_eq!(driven(&mut pair, "10.2.0.2", 100), 0);
    // The flow is offloaded again later.
    pair.advance(30_000);
    assert!(driven(&mut pair, "10.2.0.2", 600) >= 300);
    assert_eq!(why(&mut pair), None);
}

#[test]
fn what_is_longer_than_the_mtu_of_where_it_comes_in_is_refused_as_by_a_worker() {
    let send = |pair: &mut Pair, length: usize| {
        for number in 0..200_u16 {
            let frame = Ipv4Frame::udp().dst("10.2.0.2").ports(7, 443).id(number).length(length);
            pair.receive("a", &frame.bytes());
            pair.run();
            pair.advance(1);
        }
        pair.router.drops().get("link_oversize").copied().unwrap_or_default()
    };
    for filtered in [false, true] {
        let mut pairs = [Pair::new(None), Pair::new(Some(64))];
        let outcomes = pairs.each_mut().map(|pair| {
            pair.router.router.set_mtu("a", 1280);
            if filtered {
                pair.change(&Change::AddFilter(0));
            }
            let refused = [1280, 1281, 1300, 1280].map(|length| send(pair, length));
            // By then the offload has reported all its packets to the filter.
            pair.advance(2000);
            (refused, pair.filter_counts())
        });
        assert_eq!(outcomes[0], outcomes[1], "filtered: {filtered}");
        assert!(pairs[0].by_flow() == pairs[1].by_flow(), "filtered: {filtered}: other packets left");
        assert_eq!(outcomes[0].0, [0, 200, 400, 400], "filtered: {filtered}");
        let driver = pairs[1].driver.as_ref().unwrap();
        let treated = if filtered { driver.dropped() } else { driver.forwarded() };
        assert!(treated >= 300, "{treated} in the driver");
    }
}

#[test]
fn what_filters_drop_and_police_is_dropped_in_the_driver() {
    let mut pair = Pair::new(Some(64));
    let send = |pair: &mut Pair, to: u16, count: u32| {
        for number in 0..count {
            pair.receive("a", &Ipv4Frame::udp().ports(1005, to).id(number as u16).bytes());
            pair.run();
            pair.advance(1);
        }
        let driver = pair.driver.as_ref().unwrap();
        (driver.forwarded(), driver.dropped())
    };
    pair.change(&Change::AddFilter(0));
    let (forwarded, dropped) = send(&mut pair, 443, 200);
    assert!(forwarded == 0 && dropped >= 180, "{forwarded} forwarded, {dropped} dropped");
    pair.change(&Change::RemoveFilter(0));
    pair.change(&Change::AddFilter(8));
    let (forwarded, policed) = send(&mut pair, 443, 500);
    assert!(forwarded > 40 && policed > dropped + 300, "{forwarded} forwarded, {policed} dropped");
    pair.advance(1_000);
    let counts = pair.filter_counts();
    let sent = pair.sent["b"].len() as u64;
    assert_eq!((counts[0].0, counts[0].2), (500, 500 - sent), "{counts:?}");
    // A flow without a policer stays offloaded.
    pair.change(&Change::AddFilter(7));
    let before = pair.driver.as_ref().unwrap().forwarded();
    let (forwarded, _) = send(&mut pair, 53, 100);
    assert!(forwarded >= before + 95, "{forwarded} of {before} and 100");
}

#[test]
fn padded_packets_are_charged_and_counted_alike_at_both_levels() {
    let send = |room: Option<u32>| {
        let mut pair = Pair::new(room);
        pair.change(&Change::AddFilter(8));
        for number in 0..400 {
            let mut frame = Ipv4Frame::udp().ports(1005, 443).id(number).payload(&[1]).bytes();
            frame.resize(60, 0);
            pair.receive("a", &frame);
            pair.run();
            pair.advance(1);
        }
        pair.advance(1_000);
        let driven = pair.driver.as_ref().map_or(0, Driver::forwarded);
        (pair.sent["b"].len(), pair.filter_counts()[0], driven)
    };
    let (worker, driver) = (send(None), send(Some(64)));
    assert_eq!((worker.0, worker.1), (driver.0, driver.1));
    assert!(driver.2 > 50 && worker.0 < 390, "{worker:?} {driver:?}");
}

#[test]
fn a_bound_flow_stays_up_and_one_that_becomes_bound_comes_up() {
    let mut pair = Pair::new(Some(64));
    let send = |pair: &mut Pair, count: u32| {
        for number in 0..count {
            pair.receive("a", &Ipv4Frame::udp().ports(7, 443).id(number as u16).bytes());
            pair.run();
            pair.advance(1);
        }
        pair.driver.as_ref().unwrap().forwarded()
    };
    let before = send(&mut pair, 100);
    assert!(before >= 98, "{before} of 100");
    pair.change(&Change::AddFilter(0));
    let sent = pair.sent["b"].len();
    assert_eq!(send(&mut pair, 100), before, "none goes by the driver any more");
    assert_eq!(pair.sent["b"].len(), sent, "all are dropped");
    pair.change(&Change::RemoveFilter(0));
    assert!(send(&mut pair, 100) >= before + 97);
}
