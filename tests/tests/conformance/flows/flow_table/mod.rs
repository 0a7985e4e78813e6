//! Flow table compared with filters and routes. One router has a history of packets and changes. It must
//! treat packets as a new router with the same configuration and no flow table does.

pub(crate) mod packets;

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_config::{Filter, Route};
use millrace_packet::DropReason;
use millrace_pipeline::ReversePath;
use millrace_plugin::BindingId;
use millrace_tests::{Ipv4Frame, Output, STANDARD, Scenario};
use packets::{Chosen, Packet, any_packet, chosen};
use proptest::prelude::*;

/// Additions to the standard configuration: static neighbours, and limits that the test doesn't reach.
const MORE: &str = r#"
[[neighbour]]
port = "a"
address = "10.1.0.3"
mac = "02:00:00:00:00:a3"

[[neighbour]]
port = "a"
address = "fd00:1::3"
mac = "02:00:00:00:00:a3"

[[instance]]
plugin = "null"
name = "free"

[[instance]]
plugin = "port-filter"
name = "some"
settings = { ports = "53" }
"#;

const SETTINGS: &str = "frames = 1024\nflows-max = 1024\nicmp-rate = 1000000\nicmp-burst = 1000000\n\
                        [control-plane]\npolice = false\n";

/// Configuration that the test changes.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// Kind of filter table at the gates `firewall` and `route`.
    table: &'static str,
    filters: Vec<String>,
    routes: BTreeMap<&'static str, String>,
    mtu: Option<u16>,
    down: Option<&'static str>,
    reverse_path: BTreeMap<&'static str, ReversePath>,
}

impl Settings {
    fn text(&self) -> String {
        let mut text = format!("[router]\n{SETTINGS}{STANDARD}{MORE}");
        for gate in ["firewall", "route"] {
            text += &format!("[[gate]]\nname = \"{gate}\"\ntable = \"{}\"\n", self.table);
        }
        self.filters.iter().for_each(|filter| text += &format!("[[filter]]\n{filter}"));
        self.routes.values().for_each(|route| text += &format!("[[route]]\n{route}"));
        text
    }

    /// Returns a new router with this configuration and without a flow table.
    fn fresh(&self) -> Scenario {
        let mut router = Scenario::new(&self.text());
        router.router.forget_flows();
        self.mtu.iter().for_each(|mtu| router.router.set_mtu("b", *mtu));
        self.reverse_path.iter().for_each(|(port, mode)| router.router.set_reverse_path(port, *mode));
        self.down.iter().for_each(|port| router.router.set_up(port, false));
        router
    }
}

#[derive(Clone, Debug)]
enum Change {
    AddFilter(String),
    RemoveFilter(prop::sample::Index),
    AddRoute(&'static str, String),
    RemoveRoute(&'static str),
    Mtu(u16),
    /// Sets this port down, and all other ports up.
    Down(Option<&'static str>),
    ReversePath(&'static str, ReversePath),
    Wait(u64),
    Nothing,
}

/// Returns a strategy for one of the texts, which are separated by bars.
pub(crate) fn one_of(texts: &'static str) -> impl Strategy<Value = &'static str> {
    prop::sample::select(texts.split('|').map(str::trim).collect::<Vec<_>>())
}

/// Returns a strategy for conditions that don't contradict each other.
pub(crate) fn any_match() -> impl Strategy<Value = String> {
    let addresses = prop_oneof![
        4 => Just(""),
        1 => one_of("src 10.1.0.2 | dst 10.9.0.0/16 | src 10.1.0.0/24 dst 10.9.0.1 | src 203.0.113.0/24"),
        1 => one_of("src fd00:1::2 | dst fd00:9::/48 | src fd00:1::/64 dst fd00:9::1"),
    ];
    let upper = prop_oneof![
        2 => one_of(" | proto tcp | proto udp | proto icmp | proto 60 | proto esp"),
        2 => one_of("dport 53 | dport 0-100 | sport 1000 | proto tcp dport 80 | proto tcp dport 0 | proto udp dport 53"),
        1 => one_of("proto tcp sport 0-80 dport 53-1000 | proto udp sport 53 dport 80"),
        2 => one_of("proto tcp flags syn/syn+ack | proto tcp flags fin/fin | proto tcp dport 80 flags syn/syn+ack"),
    ];
    let varying = one_of(" | | dscp 46 | dscp 0 | dscp 46 tag 0");
    let odd =
        one_of(" | | | | | | | | exceptions ttl | exceptions fragment | exceptions cut | exceptions none");
    let incoming = one_of(" | | | | | | in a | in b");
    (addresses, upper, varying, odd, incoming).prop_map(|(addresses, upper, varying, odd, incoming)| {
        let contradict = upper.contains("port") && (odd.contains("fragment") || odd.contains("cut"));
        let odd = if contradict { "" } else { odd };
        let words = [addresses, upper, varying, odd, incoming].join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() { "*".to_owned() } else { words }
    })
}

/// Returns a strategy for actions, each with its gate.
fn any_action() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        2 => one_of("drop at firewall | drop at route | drop at monitor | reject at firewall | reject at route"),
        2 => one_of("port c via 10.3.0.2 at route | port b via fd00:2::2 at route | host at route"),
        1 => one_of("ports b via 10.2.0.2,c via 10.3.0.2 at route | copy free at tap"),
        1 => one_of("copy-to c via 10.3.0.2 at tap | copy-to b via 10.2.0.2,a via 10.1.0.3 at tap"),
        1 => one_of("instance free at firewall | instance free at route"),
        1 => one_of("instance some at firewall | instance some at monitor"),
    ]
}

pub(crate) fn any_filter() -> impl Strategy<Value = String> {
    (any_match(), any_action(), -1..=1).prop_filter_map("IPv6 needs an IPv6 neighbour", |parts| {
        let (matches, (action, gate), priority) = (parts.0, parts.1.rsplit_once(" at ")?, parts.2);
        if matches.contains("fd00") && action.contains("10.") {
            return None;
        }
        Some(format!(
            "match = \"{matches}\"\naction = \"{action}\"\ngate = \"{gate}\"\npriority = {priority}\n"
        ))
    })
}

pub(crate) const PREFIXES: [&str; 10] = [
    "10.9.0.0/17",
    "10.9.1.0/24",
    "10.9.0.1/32",
    "0.0.0.0/0",
    "203.0.113.0/24",
    "fd00:9::/49",
    "fd00:9:0:1::/64",
    "fd00:9::1/128",
    "::/0",
    "2001:db8::/40",
];

pub(crate) fn any_route() -> impl Strategy<Value = (&'static str, String)> {
    let ways = one_of(
        "via = '10.2.0.2' | via = '10.3.0.2' | via = ['10.2.0.2', '10.3.0.2'] | kind = 'blackhole' | kind = 'prohibit'
        | via = '10.1.0.3'",
    );
    (prop::sample::select(&PREFIXES[..]), ways).prop_map(|(prefix, way)| {
        let mut way = way.to_owned();
        if prefix.contains(':') {
            for net in 1..=3 {
                way = way.replace(&format!("10.{net}.0."), &format!("fd00:{net}::"));
            }
        }
        (prefix, format!("to = '{prefix}'\n{way}\n"))
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let modes = [ReversePath::Off, ReversePath::Strict, ReversePath::Loose];
    let port = || prop::sample::select(&["a", "b"][..]);
    prop_oneof![
        12 => any_filter().prop_map(Change::AddFilter),
        8 => any::<prop::sample::Index>().prop_map(Change::RemoveFilter),
        6 => any_route().prop_map(|(prefix, route)| Change::AddRoute(prefix, route)),
        4 => prop::sample::select(&PREFIXES[..]).prop_map(Change::RemoveRoute),
        1 => prop::sample::select(&[1280u16, 1500][..]).prop_map(Change::Mtu),
        1 => prop::sample::select(&[None, None, Some("b"), Some("c")][..]).prop_map(Change::Down),
        1 => (port(), prop::sample::select(modes.to_vec())).prop_map(|(port, mode)| Change::ReversePath(port, mode)),
        1 => (1..40u64).prop_map(Change::Wait),
        4 => Just(Change::Nothing),
    ]
}

/// Observable outcome of some packets.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: BTreeMap<String, Vec<Output>>,
    drops: BTreeMap<String, u64>,
    delivered: u64,
    consumed: u64,
    created: BTreeMap<&'static str, u64>,
}

/// Injects all frames before the router runs, and returns the outcome.
fn outcome(router: &mut Scenario, frames: &[(&str, Vec<u8>)]) -> Outcome {
    router.take_all();
    let before = router.router.summary();
    frames.iter().for_each(|(port, frame)| router.router.inject(port, frame));
    router.router.run();
    let after = router.router.summary();
    let more = |reason: &String, count: u64| count - before.dropped_by.get(reason).copied().unwrap_or(0);
    let drops = after.dropped_by.iter().map(|(reason, count)| (reason.clone(), more(reason, *count)));
    let created = after.created_by.iter().map(|(reason, count)| (*reason, count - before.created_by[reason]));
    let sent = router
        .take_all()
        .into_iter()
        .map(|(port, frames)| (port, frames.into_iter().map(without_identification).collect()));
    Outcome {
        sent: sent.collect(),
        drops: drops.filter(|(_, count)| *count > 0).collect(),
        delivered: after.to_host - before.to_host,
        consumed: after.consumed - before.consumed,
        created: created.filter(|(_, count)| *count > 0).collect(),
    }
}

/// Clears the identification of ICMP packets, since each router chooses its own.
fn without_identification(output: Output) -> Output {
    if output.ether_type() != 0x0800 || output.ipv4().protocol().0 != 1 {
        return output;
    }
    let mut bytes = output.bytes;
    bytes[18..20].fill(0);
    bytes[24..26].fill(0);
    Output::new(bytes)
}

/// Router with a history, and the configuration from which the new router is built.
struct Pair {
    settings: Settings,
    router: Scenario,
    ids: Vec<BindingId>,
    fresh: Option<Scenario>,
    identification: u32,
    flows: Vec<Packet>,
}

impl Pair {
    fn new(table: &'static str, flows: Vec<Packet>) -> Self {
        let settings = Settings { table, ..Settings::default() };
        let router = Scenario::new(&settings.text());
        Self { settings, router, ids: Vec::new(), fresh: None, identification: 0, flows }
    }

    fn change(&mut self, change: &Change) {
        let (settings, router) = (&mut self.settings, &mut self.router.router);
        self.fresh = None;
        match change {
            Change::AddFilter(text) => {
                let filter: Filter = toml::from_str(text).expect("a filter");
                // The router refuses a filter that it already has.
                if let Ok(id) = router.add_filter(&filter) {
                    self.ids.push(id);
                    settings.filters.push(text.clone());
                }
            }
            Change::RemoveFilter(index) if !self.ids.is_empty() => {
                let at = index.index(self.ids.len());
                settings.filters.remove(at);
                router.remove_filter(self.ids.remove(at)).expect("the filter is there");
            }
            Change::AddRoute(prefix, text) => {
                let route: Route = toml::from_str(text).expect("a route");
                router.add_route(&route).expect("the route is right");
                settings.routes.insert(prefix, text.clone());
            }
            Change::RemoveRoute(prefix) => {
                if settings.routes.remove(prefix).is_some() {
                    router.remove_route(prefix.parse().expect("a prefix")).expect("the route is there");
                }
            }
            Change::Mtu(mtu) => {
                settings.mtu = Some(*mtu);
                router.set_mtu("b", *mtu);
            }
            Change::Down(port) => {
                settings.down.into_iter().for_each(|port| router.set_up(port, true));
                port.iter().for_each(|port| router.set_up(port, false));
                settings.down = *port;
            }
            Change::ReversePath(port, mode) => {
                settings.reverse_path.insert(port, *mode);
                router.set_reverse_path(port, *mode);
            }
            Change::Wait(seconds) => router.advance(Duration::from_secs(*seconds)),
            Change::RemoveFilter(_) | Change::Nothing => {}
        }
    }

    /// Injects all frames into each of the two routers before it runs, and compares the outcomes.
    fn compare(&mut self, packets: &[Chosen]) -> Result<(), TestCaseError> {
        let mut frames = Vec::new();
        for chosen in packets {
            self.identification += 1;
            let (port, packet) = (chosen.port, chosen.packet(&self.flows));
            frames.extend(packet.frames(port, self.identification).into_iter().map(|frame| (port, frame)));
        }
        let settings = &self.settings;
        let fresh = self.fresh.get_or_insert_with(|| settings.fresh());
        let (known, expected) = (outcome(&mut self.router, &frames), outcome(fresh, &frames));
        prop_assert_eq!(
            known,
            expected,
            "{:#?}\nafter {:?}\n{}",
            packets,
            self.settings,
            self.settings.text()
        );
        Ok(())
    }
}

/// Returns the number of test runs: 60 by default, because a run takes a fifth of a second.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packet_of_a_known_flow_is_treated_like_a_first_packet(
        table in prop::sample::select(&["tuple-space", "cutting-tree", "linear", "dag"][..]),
        flows in prop::collection::vec(any_packet(), 1..4),
        steps in prop::collection::vec((any_change(), prop::collection::vec(chosen(), 1..7)), 1..60),
    ) {
        let mut pair = Pair::new(table, flows);
        for (change, packets) in &steps {
            pair.change(change);
            pair.compare(packets)?;
        }
    }
}

/// Injects frames one after the other. Returns the outcome of all frames, with each port's frames sorted.
fn outcome_one_by_one(router: &mut Scenario, frames: &[(&str, Vec<u8>)]) -> Outcome {
    let each = frames.iter().map(|frame| outcome(router, std::slice::from_ref(frame)));
    let all = each.reduce(|mut all, one| {
        one.sent.into_iter().for_each(|(port, sent)| all.sent.entry(port).or_default().extend(sent));
        one.drops.into_iter().for_each(|(reason, count)| *all.drops.entry(reason).or_default() += count);
        one.created.into_iter().for_each(|(reason, count)| *all.created.entry(reason).or_default() += count);
        all.delivered += one.delivered;
        all.consumed += one.consumed;
        all
    });
    in_order_of_bytes(all.expect("there are frames"))
}

fn in_order_of_bytes(mut outcome: Outcome) -> Outcome {
    outcome.sent.values_mut().for_each(|sent| sent.sort_by(|one, other| one.bytes.cmp(&other.bytes)));
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares a batch with single packets: the router looks up the new flows of a batch together, but the
    /// flow of a single packet alone.
    #[test]
    fn packets_of_a_batch_are_treated_like_single_packets(
        table in prop::sample::select(&["tuple-space", "cutting-tree", "linear", "dag", "dag-patricia", "dag-tree-bitmap"][..]),
        filters in prop::collection::btree_set(any_filter(), 0..12),
        routes in prop::collection::btree_map(prop::sample::select(&PREFIXES[..]), any_route(), 0..6),
        packets in prop::collection::vec(any_packet(), 4..60),
        remembers in any::<bool>(),
    ) {
        let routes = routes.into_values().collect::<BTreeMap<_, _>>();
        let settings = Settings { table, routes, ..Settings::default() };
        let mut routers = [Scenario::new(&settings.text()), Scenario::new(&settings.text())];
        for Scenario { router, .. } in &mut routers {
            if !remembers {
                router.forget_flows();
            }
            // The router refuses a filter that it already has.
            filters.iter().for_each(|text| drop(router.add_filter(&filter(text))));
        }
        let frames = (1..).zip(&packets).flat_map(|(identification, packet)| packet.frames("a", identification));
        let frames: Vec<_> = frames.map(|frame| ("a", frame)).collect();
        let [together, alone] = &mut routers;
        prop_assert_eq!(
            in_order_of_bytes(outcome(together, &frames)),
            outcome_one_by_one(alone, &frames),
            "{:#?}\n{}", filters, settings.text()
        );
    }
}

pub(crate) fn filter(text: &str) -> Filter {
    toml::from_str(text).expect("a filter")
}

/// Adds a filter that distinguishes packets inside a known flow, which earlier filters did not distinguish.
#[test]
fn filter_on_varying_fields_applies_to_all_matching_packets_of_a_flow() {
    let mut router = Scenario::standard();
    let packet = |flags: u8, dscp: u8| Ipv4Frame::tcp().flags(flags).tos(dscp << 2);
    let flags = filter("match = \"proto tcp flags syn/syn+ack\"\naction = \"port c via 10.3.0.2\"\n");
    router.router.add_filter(&flags).expect("the filter is right");
    router.expect_forwarded("a", &packet(16, 0), "b");
    router.expect_forwarded("a", &packet(2, 0), "c");
    let class = filter("match = \"dscp 46\"\naction = \"drop\"\npriority = 1\n");
    router.router.add_filter(&class).expect("the filter is right");
    router.expect_forwarded("a", &packet(2, 0), "c");
    router.expect_drop("a", &packet(2, 46), DropReason::Filter);
}
