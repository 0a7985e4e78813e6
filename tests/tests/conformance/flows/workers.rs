//! Several workers: the router sends the same as with one worker, and the packets of a flow stay in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_plugin_abi::{
    Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
};
use millrace_testkit::Random;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, NdFrame, Scenario, station};
use serde_json::{Map, Value};

/// Settings that in effect disable the limits on ICMP errors. The limits apply per worker, so results would
/// differ.
const SETTINGS: &str = "icmp-rate = 1000000\nicmp-burst = 1000000";

fn router(workers: usize, more: &str) -> Scenario {
    let standard = millrace_tests::STANDARD;
    // Policing is off, because its result depends on the number of packets at one worker.
    let policing = "[control-plane]\npolice = false";
    Scenario::new(&format!("[router]\nworkers = {workers}\n{SETTINGS}\n{policing}\n{standard}{more}"))
}

/// Returns the frames of a packet of one of many flows, with its number in the payload.
fn frames(random: &mut Random, number: u32) -> Vec<Vec<u8>> {
    // The bytes of long packets stay in the memory of the worker that received them.
    let length = *random.pick(&[36, 36, 200, 600, 1400]);
    let rest: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
    let payload = [number.to_be_bytes().as_slice(), &rest].concat();
    let (source, destination) = (1000 + random.below(40) as u16, *random.pick(&[53, 80, 443]));
    let v4 = || Ipv4Frame::udp().ports(source, destination).payload(&payload).id(number as u16);
    let v6 = || Ipv6Frame::udp().ports(source, destination).payload(&payload);
    match random.below(16) {
        0 => vec![v4().ttl(1).bytes()],
        1 => vec![v4().dst("198.51.100.1").bytes()],
        2 => vec![v6().dst("2001:db8::1").bytes()],
        // Unknown neighbours: packets wait, and the router finally drops them with an ICMP error.
        3 => vec![v4().dst(&format!("10.3.0.{}", 100 + number % 128)).bytes()],
        4 => vec![Ipv4Frame::echo().dst("10.1.0.1").id(number as u16).payload(&payload).bytes()],
        5 => vec![Ipv6Frame::echo().dst("fd00:2::1").payload(&payload).bytes()],
        // Later fragments have no ports but belong to the flow of their first fragment.
        6 => v4().length(1400).pieces(600).iter().map(Frame::bytes).collect(),
        7 => v6().length(1400).pieces(600, number).iter().map(Frame::bytes).collect(),
        8 => vec![v4().dst("10.3.0.2").bytes()],
        9 => vec![v4().checksum_xor(1).bytes()],
        10 => vec![
            NdFrame::solicitation("fd00:1::2", "fd00:1::1").source_link(station(0xa2)).bytes(),
            v6().dst("fd00:3::2").bytes(),
        ],
        11..13 => vec![v6().bytes()],
        _ => vec![v4().bytes()],
    }
}

/// Returns the sent frames by flow, in order. Clears the fields that each router numbers itself.
fn by_flow(sent: Vec<(String, Vec<u8>)>) -> BTreeMap<(String, Vec<u8>), Vec<Vec<u8>>> {
    let mut flows: BTreeMap<_, Vec<Vec<u8>>> = BTreeMap::new();
    for (port, mut frame) in sent {
        let flow = match (&frame[12..14], frame.len()) {
            ([8, 0], 34..) => {
                let fragment = u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff > 0;
                if frame[23] == 1 {
                    // Each router chooses the identification of ICMP errors itself, so identification and
                    // header checksum are cleared.
                    frame[18..20].fill(0);
                    frame[24..26].fill(0);
                }
                // A later fragment has no ports, so the packet's identification stands in their place.
                let ports = if fragment { 18..20 } else { 34..38 };
                [&frame[23..24], &frame[26..34], &frame[ports]].concat()
            }
            ([0x86, 0xdd], 58..) => [&frame[20..21], &frame[22..58]].concat(),
            _ => frame[12..14].to_vec(),
        };
        flows.entry((port, flow)).or_default().push(frame);
    }
    flows
}

/// Whether packets of a flow must stay in order. The router's own packets, and held packets, may overtake
/// each other; the test compares their flows as sets.
fn is_ordered(flow: &[u8]) -> bool {
    flow[0] == 17
}

/// Frames transmitted by each port and flow, in order.
type Sent = BTreeMap<(String, Vec<u8>), Vec<Vec<u8>>>;

fn run(workers: usize, seed: u64, more: &str) -> (Sent, Scenario) {
    let mut random = Random::new(seed);
    let mut router = router(workers, more);
    let mut sent = Vec::new();
    for number in 0..3000 {
        for frame in frames(&mut random, number) {
            router.router.inject("a", &frame);
        }
        if number % 64 == 63 {
            router.router.run();
            for port in router.router.ports() {
                sent.extend(router.router.take(&port).into_iter().map(|frame| (port.clone(), frame)));
            }
            router.advance(Duration::from_millis(random.below(300) as u64));
        }
    }
    router.advance(Duration::from_secs(20));
    for port in router.router.ports() {
        sent.extend(router.router.take(&port).into_iter().map(|frame| (port.clone(), frame)));
    }
    router.check_conservation();
    let mut flows = by_flow(sent);
    flows.iter_mut().filter(|((_, flow), _)| !is_ordered(flow)).for_each(|(_, frames)| frames.sort());
    (flows, router)
}

fn assert_same(workers: usize, seed: u64, more: &str) {
    let ((one, mut single), (several, mut router)) = (run(1, seed, more), run(workers, seed, more));
    let names = |flows: &BTreeMap<_, _>| flows.keys().cloned().collect::<Vec<(String, Vec<u8>)>>();
    assert_eq!(names(&several), names(&one), "{workers} workers, seed {seed}: other flows");
    for (flow, frames) in &one {
        let counts = (several[flow].len(), frames.len());
        assert!(&several[flow] == frames, "{workers} workers, seed {seed}, {flow:02x?}: {counts:?}");
    }
    let (one, several) = (single.router.summary(), router.router.summary());
    assert_eq!(several.received, one.received);
    assert_eq!((several.held, several.unaccounted), (0, 0), "{several:?}");
    assert_eq!(several.dropped_by, one.dropped_by);
    assert!(several.transmitted > 1500, "{several:?}");
    for port in ["a", "b", "c"] {
        assert_eq!(router.router.drops(port), single.router.drops(port), "drops at {port}");
    }
}

#[test]
fn several_workers_send_the_packets_of_one_in_the_order_of_each_flow() {
    for (workers, seed) in [(2, 1), (3, 2), (5, 3), (16, 4)] {
        assert_same(workers, seed, "");
    }
}

#[test]
fn several_workers_treat_flows_by_filters_as_one_does() {
    let filters = r#"
[[instance]]
plugin = "statistics"
name = "stats"

[[bind]]
instance = "stats"
gate = "monitor"
filter = "proto udp"

[[filter]]
match = "proto udp dport 443"
action = "drop"
gate = "firewall"

[[filter]]
match = "dst 10.0.0.0/8 proto udp dport 53 sport 1000-1010"
action = "port c via 10.3.0.2"
"#;
    assert_same(3, 5, filters);
    let message = millrace_plugin_message("read");
    let (mut one, mut three) = (run(1, 6, filters).1, run(3, 6, filters).1);
    let counts = |router: &mut Scenario| router.router.control("stats", &message).unwrap();
    assert!(counts(&mut one)["packets"]["udp"].as_u64() > Some(1000));
    assert_eq!(counts(&mut three), counts(&mut one));
}

#[test]
fn neighbours_are_learned_by_the_ports_worker_and_known_to_all() {
    let mut router = router(4, "");
    let frame = |source| Ipv4Frame::udp().dst("10.3.0.77").ports(source, 9);
    (1..=8).for_each(|source| router.send("a", &frame(source)));
    let sent = router.take_all();
    assert!(sent.keys().eq(["c"]), "{sent:?}");
    assert!(sent["c"].iter().all(|request| request.ether_type() == 0x0806), "{sent:?}");
    assert_eq!(sent["c"].len(), 1, "one worker asks: {sent:?}");
    let reply = millrace_tests::ArpFrame::reply("10.3.0.77", "10.3.0.1").to(station(0x0c));
    router.send("c", &reply);
    assert_eq!(router.take("c").len(), 8);
    (1..=8).for_each(|source| router.send("a", &frame(source)));
    assert_eq!(router.take("c").len(), 8);
}

#[test]
fn lookup_names_the_scheduler_node_of_a_packet_on_any_worker() {
    let node = r#"scheduler = { rate = "1mbit", default = "rest", node = [
    { name = "top", kind = "priority" },
    { name = "voice", kind = "fifo", under = "top", level = 0 },
    { name = "rest", kind = "fq-codel", under = "top", level = 1 } ] }
"#;
    let standard = millrace_tests::STANDARD.replacen("name = \"b\"\n", &format!("name = \"b\"\n{node}"), 1);
    let filter = "[[filter]]\nmatch = \"proto udp dport 5060\"\naction = \"queue voice\"\n";
    for workers in [1, 3] {
        let mut router = Scenario::new(&format!("[router]\nworkers = {workers}\n{standard}{filter}"));
        let mut waits = |destination: &str, port: u16| {
            let packet = format!("src 10.1.0.2 dst {destination} proto udp sport 9 dport {port} in a");
            let looked = router.router.lookup(&packet).unwrap();
            looked.steps.into_iter().find(|step| step.stage == "queue").unwrap().text
        };
        assert_eq!(waits("10.9.0.1", 5060), "port b, node \"voice\" (fifo) of the scheduler");
        assert_eq!(waits("10.9.0.1", 53), "port b, node \"rest\" (fq-codel) of the scheduler");
        // A port without a scheduler still uses its FIFO.
        assert_eq!(waits("10.3.0.2", 5060), "port c, FIFO");
    }
}

fn millrace_plugin_message(name: &str) -> millrace_plugin_abi::Message {
    millrace_plugin_abi::Message { name: name.into(), arguments: Default::default() }
}

#[test]
fn counters_are_cleared_after_uneven_handovers() {
    let mut router = router(2, "");
    for source in 0..50 {
        router.send("a", &Ipv4Frame::udp().ports(1000 + source, 53));
    }
    router.router.clear_counters();
    let back = Ipv4Frame::udp().to(station(0x0b)).src("10.2.0.2").dst("10.1.0.2");
    for source in 0..50 {
        router.send("b", &back.clone().ports(1000 + source, 53));
    }
    let summary = router.router.summary();
    assert_eq!((summary.received, summary.transmitted, summary.unaccounted), (50, 50, 0), "{summary:?}");
}

/// Plugin that overwrites the last byte of each packet in place.
struct Stamp;

impl Plugin for Stamp {
    fn name(&self) -> &'static str {
        "stamp"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Overwrites the last byte of each packet."
    }

    fn positions(&self) -> &[Position] {
        &[Position::Early, Position::Route, Position::Late, Position::Queue]
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(Stamp))
    }
}

impl Instance for Stamp {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, packet| {
            if let Some(last) = packet.data_mut().last_mut() {
                *last = 0xa5;
            }
            Verdict::Pass
        });
        Progress::Done
    }

    fn needs_linear_packets(&self) -> bool {
        true
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(Value::Null)
    }
}

#[test]
fn instance_writes_bytes_that_another_worker_has_lent() {
    for (gate, waits) in [("firewall", ""), ("schedule", ""), ("firewall", "queue = true\n")] {
        let standard = millrace_tests::STANDARD;
        let text = format!(
            "[router]\nworkers = 4\n{standard}[[instance]]\nplugin = \"stamp\"\nname = \"stamp\"\n\
             [[principal]]\nname = \"payer\"\ncpu = \"10 %\"\n\
             [[bind]]\ninstance = \"stamp\"\ngate = \"{gate}\"\nfilter = \"*\"\nprincipal = \"payer\"\n{waits}"
        );
        let mut router = Scenario::with_plugin(&text, Arc::new(Stamp));
        for source in 1..=64 {
            router.router.inject("a", &Ipv4Frame::udp().ports(source, 9).length(1400).bytes());
        }
        router.advance(Duration::from_secs(1));
        let sent = router.take("b");
        assert_eq!(sent.len(), 64, "{gate} {waits}: {:?}", router.router.summary());
        for frame in sent {
            let bytes = frame.network();
            assert_eq!((bytes.len(), bytes.last()), (1400, Some(&0xa5)), "{gate} {waits}");
        }
        router.check_conservation();
    }
}
