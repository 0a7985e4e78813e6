//! Verdicts of instances, each with the frames that leave the router, and the ports by which they do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_plugin_abi::{
    Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
};
use millrace_tests::{Ipv4Frame, Output, STANDARD, Scenario};
use millrace_units::{InstanceId, PortId, QueueId};
use serde_json::{Map, Value};

/// Ports of the standard scenario, by number.
const A: PortId = PortId(0);
const B: PortId = PortId(1);
const C: PortId = PortId(2);
/// Drop reason of the instance that always drops.
const REASON: u8 = 7;

/// Verdicts of the next packets; packets without one pass. A hold counts from the time of the call.
type Script = Arc<Mutex<VecDeque<Verdict>>>;

/// Plugin whose instances give the verdicts of a script, or always one verdict.
struct Judge(Script);

enum Judging {
    ByScript(Script),
    Always(Verdict),
}

impl Plugin for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Gives the verdicts of a test."
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(match settings.get("drops") {
            Some(_) => Judging::Always(Verdict::Drop(REASON)),
            None => Judging::ByScript(self.0.clone()),
        }))
    }
}

impl Instance for Judging {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        packets.for_each(|_, packet| match self {
            Self::Always(verdict) => *verdict,
            Self::ByScript(script) => match script.lock().unwrap().pop_front().unwrap_or_default() {
                Verdict::Hold(until) => Verdict::Hold(now + until.since(Instant::ZERO)),
                Verdict::Classify => {
                    packet.tag = 5;
                    Verdict::Classify
                }
                verdict => verdict,
            },
        });
        Progress::Done
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(Value::Null)
    }
}

struct World {
    script: Script,
    router: Scenario,
}

impl World {
    fn new(gate: &str, more: &str) -> Self {
        Self::with(STANDARD, gate, more)
    }

    fn with(standard: &str, gate: &str, more: &str) -> Self {
        let script = Script::default();
        let text = format!(
            "[plugins]\nfaults = 1000\nfault-window = \"1s\"\n{standard}\n[[instance]]\nplugin = \"judge\"\nname = \"judge\"\n\
             [[bind]]\ninstance = \"judge\"\ngate = \"{gate}\"\nfilter = \"*\"\n{more}"
        );
        let router = Scenario::with_plugin(&text, Arc::new(Judge(script.clone())));
        Self { script, router }
    }

    /// Sends a packet from `a` to a host behind `b`, for which the instance gives a verdict.
    fn send(&mut self, verdict: Verdict) {
        self.script.lock().unwrap().push_back(verdict);
        self.router.send("a", &Ipv4Frame::udp());
    }

    /// Returns the payloads of the IPv4 packets that left by each port.
    fn left(&mut self) -> [Vec<Vec<u8>>; 3] {
        let payloads = |outputs: Vec<Output>| {
            let of_ipv4 = outputs.into_iter().filter(|output| output.ether_type() == 0x0800);
            of_ipv4.map(|output| output.ipv4().payload().to_vec()).collect()
        };
        let left = ["a", "b", "c"].map(|port| payloads(self.router.take(port)));
        self.router.check_conservation();
        left
    }

    fn counts(&mut self) -> [usize; 3] {
        self.left().map(|frames| frames.len())
    }
}

/// Gates at which an instance may choose the egress port.
const GATES: [&str; 3] = ["security-in", "route", "process"];

/// Neighbours that answer for the host behind `b` at the other ports, too.
const NEIGHBOURS: &str = "[[neighbour]]\nport = \"a\"\naddress = \"10.9.0.1\"\nmac = \"02:00:00:00:00:a9\"\n\
                          [[neighbour]]\nport = \"c\"\naddress = \"10.9.0.1\"\nmac = \"02:00:00:00:00:c9\"\n";

#[test]
fn port_replaces_the_route() {
    for gate in GATES {
        let mut world = World::new(gate, NEIGHBOURS);
        world.send(Verdict::Pass);
        assert_eq!(world.counts(), [0, 1, 0], "{gate}");
        for (port, expected) in [(A, [1, 0, 0]), (B, [0, 1, 0]), (C, [0, 0, 1])] {
            world.send(Verdict::Port(port));
            assert_eq!(world.counts(), expected, "{gate} {port}");
        }
        world.send(Verdict::Port(PortId(9)));
        assert_eq!(world.counts(), [0, 0, 0], "{gate}: no such port");
        assert_eq!(world.router.dropped(DropReason::PluginFailed), 1, "{gate}");
    }
}

#[test]
fn ports_send_one_equal_packet_each() {
    for gate in GATES {
        for length in [100, 1_500] {
            let mut world = World::new(gate, NEIGHBOURS);
            for (set, ports) in
                [(0b110, [0, 1, 1]), (0b111, [1, 1, 1]), (0b001, [1, 0, 0]), (0b101, [1, 0, 1])]
            {
                world.script.lock().unwrap().push_back(Verdict::Ports(set));
                world.router.send("a", &Ipv4Frame::udp().length(length));
                let left = world.left();
                let counts = [0, 1, 2].map(|port| left[port].len());
                assert_eq!(counts, ports, "{gate} {length} {set:#b}");
                let sent: Vec<_> = left.iter().filter(|frames| !frames.is_empty()).collect();
                assert!(sent.windows(2).all(|pair| pair[0] == pair[1]), "{gate} {length} {set:#b}");
            }
            world.send(Verdict::Ports(0));
            assert_eq!(
                (world.counts(), world.router.dropped(DropReason::PluginFailed)),
                ([0; 3], 1),
                "{gate}"
            );
        }
    }
}

#[test]
fn source_of_a_rejected_packet_gets_an_icmp_error() {
    for gate in ["security-in", "route", "process", "schedule"] {
        let mut world = World::new(gate, "");
        world.send(Verdict::Reject(REASON));
        let [error] = &world.router.take("a")[..] else { panic!("{gate}: one packet goes back") };
        let icmp = error.icmp();
        // Destination unreachable, communication administratively prohibited (RFC 1812, 5.2.7.1).
        assert_eq!((icmp.kind, icmp.code, icmp.destination), (3, 13, "10.1.0.2".parse().unwrap()), "{gate}");
        assert_eq!((world.counts(), world.router.dropped(DropReason::Plugin)), ([0, 0, 0], 1), "{gate}");
        world.send(Verdict::Pass);
        assert_eq!(world.counts(), [0, 1, 0], "{gate}");
    }
    // The packet goes on; its copy is dropped without an error.
    let mut world = World::new("tap", "");
    world.send(Verdict::Reject(REASON));
    assert_eq!(world.counts(), [0, 1, 0]);
    // No error answers an error (RFC 1122, 3.2.2).
    let mut world = World::new("process", "");
    world.script.lock().unwrap().push_back(Verdict::Reject(REASON));
    world.router.send("a", &Ipv4Frame::icmp(3, 1));
    assert_eq!((world.counts(), world.router.dropped(DropReason::Plugin)), ([0, 0, 0], 1));
}

#[test]
fn packet_enters_the_queue_that_the_verdict_names() {
    let scheduler = "name = \"b\"\nscheduler = { rate = \"1mbit\", default = \"rest\", node = [\n\
                     { name = \"top\", kind = \"priority\" },\n\
                     { name = \"voice\", kind = \"fifo\", under = \"top\", level = 0 },\n\
                     { name = \"rest\", kind = \"fifo\", under = \"top\", level = 1 } ] }\n";
    for gate in ["security-in", "route", "process", "schedule"] {
        let standard = STANDARD.replacen("name = \"b\"\n", scheduler, 1);
        let mut world = World::with(&standard, gate, "");
        // The nodes have numbers in the order of the configuration.
        let voice = QueueId(2);
        let payload = |number: u8| Ipv4Frame::udp().payload(&[number; 1000]);
        for number in 0..20 {
            let verdict = if number < 15 { Verdict::Pass } else { Verdict::Queue(voice) };
            world.script.lock().unwrap().push_back(verdict);
            world.router.send("a", &payload(number));
        }
        world.router.advance(Duration::from_secs(2));
        let [_, left, _] = world.left();
        let order: Vec<u8> = left.iter().filter_map(|payload| payload.last().copied()).collect();
        let place = |number: u8| order.iter().position(|other| *other == number).expect("the packet");
        assert_eq!(order.len(), 20, "{gate}");
        // All in the queue with priority overtake those that waited behind the first few.
        assert!((15..20).all(|number| place(number) < place(14)), "{gate} {order:?}");
        assert!(place(15) < 8 && place(19) < 12, "{gate} {order:?}");
    }
}

#[test]
fn held_packet_leaves_at_its_time_and_not_before() {
    for gate in ["security-in", "route", "process", "schedule"] {
        let mut world = World::new(gate, "");
        world.send(Verdict::Hold(Instant::from_millis(10)));
        world.router.advance(Duration::from_millis(9));
        assert_eq!(world.counts(), [0, 0, 0], "{gate}");
        world.router.advance(Duration::from_millis(2));
        assert_eq!(world.counts(), [0, 1, 0], "{gate}");
    }
}

#[test]
fn packet_is_classified_again_with_its_tag() {
    for gate in ["route", "process"] {
        let mut world =
            World::new(gate, "[[filter]]\nmatch = \"tag 5\"\naction = \"drop\"\ngate = \"firewall\"\n");
        world.send(Verdict::Classify);
        assert_eq!((world.counts(), world.router.dropped(DropReason::Filter)), ([0, 0, 0], 1), "{gate}");
        let mut world = World::new(gate, "");
        // The instance gets the packet a second time, and passes it.
        world.send(Verdict::Classify);
        assert_eq!(world.counts(), [0, 1, 0], "{gate}");
    }
}

#[test]
fn other_instance_decides_about_a_packet_passed_on_to_it() {
    for gate in ["security-in", "route", "process", "schedule"] {
        let dropper = "[[instance]]\nplugin = \"judge\"\nname = \"dropper\"\nsettings = { drops = true }\n";
        let mut world = World::new(gate, dropper);
        world.send(Verdict::Instance(InstanceId(1)));
        assert_eq!((world.counts(), world.router.dropped(DropReason::Plugin)), ([0, 0, 0], 1), "{gate}");
        world.send(Verdict::Instance(InstanceId(9)));
        assert_eq!(
            (world.counts(), world.router.dropped(DropReason::PluginFailed)),
            ([0, 0, 0], 1),
            "{gate}"
        );
        // After the fault, the instance pauses.
        world.router.advance(Duration::from_secs(2));
        world.send(Verdict::Pass);
        assert_eq!(world.counts(), [0, 1, 0], "{gate}");
    }
}
