//! Random routers and packets: the router must do with a packet what a lookup predicts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millrace_packet::{DropReason, Pool};
use millrace_pipeline::{
    ErrorSender, Lookup, LookupStep, Parsed, Question, ReversePath, RouteTaken, StageOutcome, TraceEnd,
    TraceEvent, TraceSource, TraceStep, Verdict, Waits, parse,
};
use millrace_plugin::BindingId;
use millrace_tests::{STANDARD, Scenario};
use millrace_units::{GateId, PortId};
use millrace_wire::EtherType;
use proptest::prelude::*;

use super::packets::{Chosen, Sent, any_chosen};
use crate::flows::flow_table::{PREFIXES, any_filter, any_match, any_route, filter, one_of};

/// Additions to the standard configuration: a sub-interface, neighbours, a second gate, and instances.
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

[[neighbour]]
port = "v"
address = "fd00:4::2"
mac = "02:00:00:00:00:d2"

[[neighbour]]
port = "a"
address = "10.1.0.3"
mac = "02:00:00:00:00:a3"

[[neighbour]]
port = "a"
address = "fd00:1::3"
mac = "02:00:00:00:00:a3"

[[gate]]
name = "second"
position = "route"

[[instance]]
plugin = "null"
name = "free"

[[instance]]
plugin = "port-filter"
name = "some"
settings = { ports = "53" }
"#;

/// Scheduler of port `c`, without a rate.
const SCHEDULER: &str = r#"scheduler = { default = "rest", node = [
    { name = "top", kind = "priority" },
    { name = "voice", kind = "fifo", under = "top", level = 0 },
    { name = "rest", kind = "fifo", under = "top", level = 1 } ] }
"#;

/// Limits that the test doesn't reach.
const SETTINGS: &str = "frames = 1024\nflows-max = 1024\nicmp-rate = 1000000\nicmp-burst = 1000000\n\
                        [control-plane]\npolice = false\n";

/// Number of packets looked up and sent for each router.
const PACKETS: usize = 215;

/// Configuration of a random router.
#[derive(Clone, Debug)]
struct Settings {
    table: &'static str,
    scheduler: bool,
    filters: BTreeSet<String>,
    routes: BTreeMap<&'static str, String>,
    mtu: u16,
    down: Option<&'static str>,
    reverse_path: [(&'static str, ReversePath); 3],
    /// Whether the router has a flow table.
    remembers: bool,
}

impl Settings {
    fn text(&self) -> String {
        let mut text = format!("[router]\n{SETTINGS}{STANDARD}{MORE}");
        if self.scheduler {
            text = text.replacen("name = \"c\"\n", &format!("name = \"c\"\n{SCHEDULER}"), 1);
        }
        for gate in ["firewall", "route", "schedule"] {
            text += &format!("[[gate]]\nname = \"{gate}\"\ntable = \"{}\"\n", self.table);
        }
        self.routes.values().for_each(|route| text += &format!("[[route]]\n{route}"));
        text
    }

    fn router(&self) -> Scenario {
        let mut router = Scenario::new(&self.text());
        if !self.remembers {
            router.router.forget_flows();
        }
        // The router refuses a filter that it already has, or whose queue no port has.
        self.filters.iter().for_each(|text| drop(router.router.add_filter(&filter(text))));
        router.router.set_mtu("b", self.mtu);
        self.reverse_path.iter().for_each(|(port, mode)| router.router.set_reverse_path(port, *mode));
        self.down.iter().for_each(|port| router.router.set_up(port, false));
        router
    }
}

/// Returns a strategy for filters with actions that only this test needs, each with its gate.
fn any_further_filter() -> impl Strategy<Value = String> {
    let action = one_of(
        "queue voice at firewall | queue voice at schedule | accept at schedule | accept at firewall |
         accept at route | drop at second | reject at second | host at second | accept at second |
         police 1gbit burst 1000000B at process | instance free at schedule | instance some at process |
         instance free at security-in | drop at security-in | reject at process",
    );
    (any_match(), action, -1..=1).prop_filter_map("an action has a gate", |(matches, action, priority)| {
        let (action, gate) = action.rsplit_once(" at ")?;
        Some(format!(
            "match = \"{matches}\"\naction = \"{action}\"\ngate = \"{gate}\"\npriority = {priority}\n"
        ))
    })
}

fn any_further_route() -> impl Strategy<Value = (&'static str, String)> {
    let kinds = one_of(
        "kind = 'unreachable' | kind = 'prohibit' | kind = 'blackhole' | via = '10.3.0.66' | via = '10.4.0.2'",
    );
    (prop::sample::select(&PREFIXES[..5]), kinds)
        .prop_map(|(prefix, kind)| (prefix, format!("to = '{prefix}'\n{kind}\n")))
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let modes = || {
        prop::sample::select(
            &[ReversePath::Off, ReversePath::Off, ReversePath::Strict, ReversePath::Loose][..],
        )
    };
    let filters = prop::collection::btree_set(prop_oneof![any_filter(), any_further_filter()], 0..10);
    let routes = prop::collection::vec(prop_oneof![3 => any_route(), 1 => any_further_route()], 0..6);
    (
        prop::sample::select(&["tuple-space", "cutting-tree", "linear", "dag"][..]),
        any::<bool>(),
        filters,
        routes,
        prop::sample::select(&[1280_u16, 1500][..]),
        prop::sample::select(&[None, None, None, Some("b"), Some("c")][..]),
        (modes(), modes(), modes()),
        any::<bool>(),
    )
        .prop_map(|(table, scheduler, filters, routes, mtu, down, (a, b, v), remembers)| Settings {
            table,
            scheduler,
            filters,
            routes: routes.into_iter().collect(),
            mtu,
            down,
            reverse_path: [("a", a), ("b", b), ("v", v)],
            remembers,
        })
}

/// Returns a lookup question about a frame that a port receives. `None` for a malformed packet. Also `None`
/// for a first fragment, because a lookup can't know the later fragments.
fn question(pool: &Pool, port: PortId, sent: &Sent) -> Option<Question> {
    let mut packet = pool.packet_from(&sent.frame)?;
    let network = if sent.port == "v" { 18 } else { 14 };
    packet.port = port;
    packet.set_network(network);
    let is_v4 = sent.frame[network] >> 4 == 4;
    let ether_type = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let parsed: Parsed = parse(&mut packet, ether_type).ok()?;
    let candidate = parsed.candidate(&packet);
    let dont_fragment = is_v4 && sent.frame[network + 6] & 0x40 != 0;
    let question = Question { candidate, length: packet.network_len() as u16, dont_fragment };
    assert_eq!(question.hides_transport(), parsed.hides_transport, "{sent:?}");
    parsed.fragment.is_none_or(|fragment| !fragment.first).then_some(question)
}

/// Observed effects of a packet.
#[derive(Debug)]
struct Effects {
    steps: Vec<TraceStep>,
    drops: BTreeMap<String, u64>,
    delivered: u64,
    errors: u64,
}

/// Sends a frame, and returns its steps and its effects on the counters.
fn send(router: &mut Scenario, traces: &mut [TraceSource], sent: &Sent) -> Effects {
    let before = router.router.summary();
    let device = if sent.port == "v" { "t" } else { sent.port };
    router.router.inject(device, &sent.frame);
    router.router.run();
    let after = router.router.summary();
    let events: Vec<TraceEvent> =
        traces.iter_mut().flat_map(|trace| std::iter::from_fn(|| trace.next_event())).collect();
    let mark =
        events.iter().find(|event| matches!(event.step, TraceStep::Arrived(..))).map(|event| event.mark);
    let steps = events.iter().filter(|event| Some(event.mark) == mark).map(|event| event.step);
    let more = |reason: &String, count: u64| count - before.dropped_by.get(reason).copied().unwrap_or(0);
    let drops = after.dropped_by.iter().map(|(reason, count)| (reason.clone(), more(reason, *count)));
    Effects {
        steps: steps.collect(),
        drops: drops.filter(|(_, count)| *count > 0).collect(),
        delivered: after.to_host - before.to_host,
        errors: after.created_by["error"] - before.created_by["error"],
    }
}

impl Effects {
    fn ends(&self) -> Vec<TraceEnd> {
        let ends = self.steps.iter().filter_map(|step| match step {
            TraceStep::End(end) => Some(*end),
            _ => None,
        });
        ends.collect()
    }

    /// Returns the bindings that treated the packet, in order.
    fn bindings(&self) -> Vec<(GateId, BindingId)> {
        let gates = self.steps.iter().filter_map(|step| match step {
            TraceStep::Gate { gate, binding, .. } => Some((*gate, *binding)),
            _ => None,
        });
        gates.collect()
    }

    /// Returns whether an instance dropped the packet.
    fn dropped_by_instance(&self) -> bool {
        let is_plugin = |step: &TraceStep| {
            matches!(step, TraceStep::Gate { outcome: StageOutcome::Dropped(DropReason::Plugin), .. })
        };
        self.steps.iter().any(is_plugin)
    }

    /// Returns whether the packet entered the queue of a port, and was not dropped there.
    fn leaves_by(&self, port: PortId) -> bool {
        let is_queued =
            |step: &TraceStep| matches!(step, TraceStep::Queued { port: own, .. } if *own == port);
        let is_sent = |end: &TraceEnd| matches!(end, TraceEnd::Sent(own, _) if *own == port);
        self.steps.iter().any(is_queued) && self.ends().iter().all(is_sent)
    }
}

/// Returns the bindings that treat the packet according to a lookup, in order, without the bindings of
/// copies.
fn bindings(lookup: &Lookup) -> Vec<(GateId, BindingId)> {
    let gates = lookup.steps.iter().filter_map(|step| match step {
        LookupStep::Redirected { gate, binding, .. } => Some((*gate, *binding)),
        LookupStep::Bound { gate, binding, copies: false, .. } => Some((*gate, *binding)),
        _ => None,
    });
    gates.collect()
}

/// Returns the route of a packet, without the fields that only a trace knows.
fn route(taken: &RouteTaken) -> String {
    match *taken {
        RouteTaken::Sent { by_filter, hops, port, neighbour, .. } => {
            format!("{by_filter} {hops} {port} {neighbour}")
        }
        other => format!("{other:?}"),
    }
}

/// Queue of the leaf `voice` of port `c`; `None` until a lookup has named it.
type Voice = Option<millrace_units::QueueId>;

/// Compares the effects of a packet with its lookup's prediction.
fn assert_agree(lookup: &Lookup, effects: &Effects, voice: &mut Voice) -> Result<(), String> {
    let agree = |what: &str, agrees: bool| if agrees { Ok(()) } else { Err(what.to_owned()) };
    let (expected, met) = (bindings(lookup), effects.bindings());
    if effects.dropped_by_instance() {
        return agree("bindings up to an instance", expected.starts_with(&met));
    }
    agree("bindings", expected == met)?;
    let routed = lookup.steps.iter().find_map(|step| match step {
        LookupStep::Routed(taken) => Some(route(taken)),
        _ => None,
    });
    let taken = effects.steps.iter().find_map(|step| match step {
        TraceStep::Routed(taken) => Some(route(taken)),
        _ => None,
    });
    agree("route", taken == routed)?;
    let dropped = |reason: DropReason| {
        let ends = effects.ends();
        let is_it = |end: &TraceEnd| matches!(end, TraceEnd::Dropped(own) if *own == reason);
        ends.len() == 1 && ends.iter().all(is_it) && effects.drops.contains_key(reason.name())
    };
    match lookup.verdict {
        Verdict::Sent(port) => {
            // The drop may be that of a copy or a redirect, not of the packet.
            let has_copies = effects.steps.iter().any(|step| matches!(step, TraceStep::Copied(_)));
            let is_alone = !has_copies && effects.errors == 0;
            agree("egress port", effects.leaves_by(port) && (!is_alone || effects.drops.is_empty()))?;
            agree_on_queue(lookup, effects, voice)?;
        }
        Verdict::Held(port, address) => {
            let waits = |step: &TraceStep| matches!(step, TraceStep::Waits(Waits::Neighbour(own, to)) if (*own, *to) == (port, address));
            agree("wait", effects.steps.iter().any(waits) && effects.ends().is_empty())?;
        }
        Verdict::Dropped(reason) => agree("drop", dropped(reason))?,
        Verdict::Own => {
            let is_own = matches!(effects.ends()[..], [TraceEnd::Own]);
            agree("delivery", is_own && effects.delivered == 1)?;
        }
        Verdict::Host => agree("punt", matches!(effects.ends()[..], [TraceEnd::Host]))?,
    }
    agree_on_error(lookup, effects)
}

/// Asserts that the packet entered the scheduler leaf that the lookup names.
fn agree_on_queue(lookup: &Lookup, effects: &Effects, voice: &mut Voice) -> Result<(), String> {
    let (_, queue) = lookup.queue().ok_or("a sent packet has a queue")?;
    let leaf = effects.steps.iter().find_map(|step| match step {
        TraceStep::Queued { leaf, .. } => Some(*leaf),
        _ => None,
    });
    let pieces = effects.steps.iter().any(|step| matches!(step, TraceStep::Fragmented(_)));
    let fragmented = lookup.steps.iter().any(|step| matches!(step, LookupStep::Fragmented { .. }));
    if queue.0 != 0 {
        *voice = Some(queue);
    }
    let agrees = match leaf.flatten() {
        None => true,
        Some(leaf) if queue.0 != 0 => leaf == queue,
        Some(leaf) => Some(leaf) != *voice,
    };
    match agrees && pieces == fragmented {
        true => Ok(()),
        false => Err(format!("queue {queue:?}, fragments {fragmented}")),
    }
}

/// Asserts that the router sent an ICMP error if the lookup says so. A sent packet may cause a redirect in
/// addition.
fn agree_on_error(lookup: &Lookup, effects: &Effects) -> Result<(), String> {
    let refused = lookup.steps.iter().find_map(|step| match step {
        LookupStep::Refused { error, sender } => Some((*error, *sender)),
        _ => None,
    });
    let expected = u64::from(matches!(refused, Some((_, ErrorSender::Router(_)))));
    let is_sent = matches!(lookup.verdict, Verdict::Sent(_));
    match effects.errors == expected || is_sent && effects.errors == 1 {
        true => Ok(()),
        false => Err(format!("{} errors instead of {expected}", effects.errors)),
    }
}

/// Returns the number of random routers, by default enough to look up 20,000 packets.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lookup_says_what_happens_to_the_packet(
        settings in any_settings(),
        packets in prop::collection::vec((any_chosen(), 0..30_u8), PACKETS),
    ) {
        let mut router = settings.router();
        let mut traces = router.router.trace(1);
        let (pool, mut voice) = (Pool::new(64).expect("memory"), None);
        for (identification, (chosen, wait)) in (1..).zip(&packets) {
            let chosen: &Chosen = chosen;
            let Some(sent) = chosen.sent(identification) else { continue };
            let port = router.router.port_id(sent.port).expect("a port of the router");
            let Some(question) = question(&pool, port, &sent) else { continue };
            if *wait == 0 {
                // Neighbours that don't answer are given up.
                router.advance(Duration::from_secs(2));
                traces.iter_mut().for_each(|trace| while trace.next_event().is_some() {});
            }
            let lookup = router.router.lookup_of(question).expect("the worker answers");
            let effects = send(&mut router, &mut traces, &sent);
            let agreed = assert_agree(&lookup, &effects, &mut voice);
            prop_assert!(
                agreed.is_ok(),
                "{:?}\n{:?} at {}\n{:#?}\n{:#?}\n{:#?}\n{}",
                agreed, question, sent.port, lookup, effects, settings, settings.text()
            );
        }
    }
}
