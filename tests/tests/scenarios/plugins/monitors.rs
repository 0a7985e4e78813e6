//! Built-in plugins that observe or copy packets: their counters, compared with the packets sent.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, Namespace, RawSocket, eventually, transfer};
use millrace_tests::{Frame, Ipv4Frame};
use millrace_wire::MacAddr;
use serde_json::{Value, json};

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(5);
const RST: u8 = 4;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Sender of TCP segments from `h1` to port 7001 of `h2`, where no program listens.
struct Client<'a> {
    line: &'a Line,
    wire: RawSocket,
}

impl<'a> Client<'a> {
    fn new(line: &'a Line) -> Self {
        line.h1.run("ping -c 1 10.2.0.2");
        Self { line, wire: RawSocket::open(&line.h1, "eth0") }
    }

    /// Sends a segment without data.
    fn send(&self, port: u16, flags: u8, acknowledged: u32) {
        let (from, to) = (MacAddr(self.line.h1.mac_of("eth0")), MacAddr(self.line.r.mac_of("r1")));
        let segment = Ipv4Frame::tcp().from(from).to(to).src("10.1.0.2").dst("10.2.0.2");
        let segment = segment.ports(port, 7001).flags(flags).acknowledged(acknowledged).payload(&[]);
        self.wire.send(&segment.bytes());
    }
}

/// Waits until an instance has these counters. Returns the instance's answer.
fn assert_counts(router: &Millrace, instance: &str, expected: &[(&str, u64)]) -> Value {
    let mut last = Value::Null;
    let reached = millrace_testkit::wait_until(PATIENCE, || {
        last = router.json(&["control", instance, "read"]);
        expected.iter().all(|(key, count)| last[*key] == *count)
    });
    assert!(reached.is_some(), "{expected:?} is not what {instance} says: {last:#}");
    last
}

#[test]
fn syn_monitor_follows_every_handshake_and_raises_its_alarm() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "syn-monitor", "syns", "threshold=10", "interval-ms=500"]);
    router.ask(&["bind", "syns", "--gate", "monitor", "--filter", "src 10.1.0.2 proto tcp"]);
    let client = Client::new(&line);
    // 30 attempts, 5 of them repeated. Of the 30, 10 are completed, 5 are aborted, and 15 stay half-open.
    (0..30).for_each(|port| client.send(20_000 + port, SYN, 0));
    (0..5).for_each(|port| client.send(20_000 + port, SYN, 0));
    (0..10).for_each(|port| client.send(20_000 + port, ACK, 1));
    (10..15).for_each(|port| client.send(20_000 + port, RST, 0));
    let counts = [
        ("syn", 35),
        ("attempts", 30),
        ("repeated", 5),
        ("completed", 10),
        ("aborted", 5),
        ("half_open", 15),
        ("unfollowed", 0),
    ];
    let said = assert_counts(&router, "syns", &counts);
    assert_eq!(said["top"], json!([{"destination": "10.2.0.2", "half_open": 15}]));
    eventually("the alarm is raised", PATIENCE, || router.log().contains("syns").then_some(()));
    assert_eq!(router.json(&["control", "syns", "read"])["alarms"], 1);
    // A real connection counts as one attempt, which is completed. The filter doesn't match its replies.
    transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 100_000);
    assert_counts(&router, "syns", &[("attempts", 31), ("completed", 11), ("syn_ack", 0)]);
    router.assert_conservation();
}

#[test]
fn ack_monitor_counts_retransmissions_and_names_the_worst_flow() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "ack-monitor", "acks", "worst=2"]);
    router.ask(&["bind", "acks", "--gate", "monitor", "--filter", "src 10.1.0.2 proto tcp dport 7001"]);
    let client = Client::new(&line);
    // The first flow acknowledges 1000 once, 2000 four times, 1500 (old) once, and 3000 twice. The second
    // flow acknowledges each number once.
    for number in [1000, 2000, 2000, 2000, 2000, 1500, 3000, 3000] {
        client.send(20_000, ACK, number);
    }
    (1..4).for_each(|number| client.send(20_001, ACK, 100 * number));
    let counts = [("acks", 11), ("duplicates", 4), ("fast", 1), ("old", 1), ("flows", 2), ("ended", 0)];
    assert_counts(&router, "acks", &counts);
    router.ask(&["flow", "flush", "proto tcp dport 7001"]);
    let said = assert_counts(&router, "acks", &[("ended", 2), ("flows", 2)]);
    let worst = &said["worst"][0];
    let expected = [("acks", 8), ("duplicates", 4), ("fast", 1), ("longest_run", 3)];
    assert!(expected.iter().all(|(key, count)| worst[*key] == *count), "{said:#}");
    assert!(worst["flow"].as_str().unwrap().contains("sport 20000 dport 7001"), "{said:#}");
    // A real connection of two hosts.
    router.ask(&["bind", "acks", "--gate", "monitor", "--filter", "proto tcp dport 7000"]);
    transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 1 << 20);
    let said = assert_counts(&router, "acks", &[("flows", 3)]);
    assert!(said["acks"].as_u64().unwrap() > 11 + 100, "{said:#}");
    router.assert_conservation();
}

/// Returns a host behind another port of the router, as the destination of copies. At that port the router
/// has a static neighbour with `h2`'s address and the host's MAC address.
fn probe(line: &Line, number: u8) -> Namespace {
    let host = Namespace::new(&format!("h{number}"));
    line.connect(&host, "eth0", number, 1500);
    let mac = MacAddr(host.mac_of("eth0"));
    line.r.ip(&format!("neighbour add 10.2.0.2 lladdr {mac} dev r{number} nud permanent"));
    host
}

/// Returns the numbers of a flow's packets that a probe receives, in order, until no more arrive.
fn numbers(wire: &RawSocket, port: u16) -> Vec<u64> {
    let number = |frame: &[u8]| {
        let is_meant = frame.get(36..38) == Some(&port.to_be_bytes()) && frame[30..34] == [10, 2, 0, 2];
        is_meant.then(|| frame.get(42..)?.first_chunk().copied().map(u64::from_be_bytes)).flatten()
    };
    let next = || wire.receive(Duration::from_millis(300), |frame| number(frame).is_some());
    std::iter::from_fn(next).filter_map(|frame| number(&frame)).collect()
}

#[test]
fn the_mirror_sends_every_packet_to_both_ports_and_the_flow_is_undisturbed() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let (third, fourth) = (probe(&line, 3), probe(&line, 4));
    let router = Millrace::start(&line.r, "--port r1 --port r2 --port r3 --port r4");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "mirror", "m1", "to=r3", "also=r4"]);
    router.ask(&["bind", "m1", "--gate", "tap", "--filter", "proto udp dport 9000"]);
    let wires = [&third, &fourth].map(|host| RawSocket::open(host, "eth0"));
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    for wire in &wires {
        assert_eq!(numbers(wire, 9000), (0..report.sent).collect::<Vec<_>>());
    }
    let said = assert_counts(&router, "m1", &[("packets", report.sent)]);
    // Each packet has link, network and transport headers, and 64 bytes of payload.
    assert_eq!(said["bytes"], report.sent * (14 + 20 + 8 + 64));
    router.assert_conservation();
}

#[test]
fn sampler_sends_exactly_one_in_n_packets() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let third = probe(&line, 3);
    let router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "sample", "s1", "to=r3", "one-in=10"]);
    router.ask(&["bind", "s1", "--gate", "tap", "--filter", "proto udp dport 9000"]);
    let wire = RawSocket::open(&third, "eth0");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    let every_tenth: Vec<u64> = (9..report.sent).step_by(10).collect();
    assert_eq!(numbers(&wire, 9000), every_tenth);
    let sent = every_tenth.len() as u64;
    let counts = [("copies", report.sent), ("sent", sent), ("sent_bytes", sent * (14 + 20 + 8 + 64))];
    assert_counts(&router, "s1", &counts);
    // Random sampling also sends one in ten on average: of at least 500 packets, 20 to 80.
    router.ask(&["control", "s1", "set", "one-in=10", "mode=random", "seed=7"]);
    router.ask(&["control", "s1", "reset"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    eventually("500 packets have come", PATIENCE * 4, || (flow.received() >= 500).then_some(()));
    let report = flow.finish();
    let chosen = numbers(&wire, 9000);
    let tenth = report.sent / 10;
    assert!(
        (tenth * 2 / 5..=tenth * 8 / 5).contains(&(chosen.len() as u64)),
        "{} of {report:?}",
        chosen.len()
    );
    assert_ne!(chosen, (9..report.sent).step_by(10).collect::<Vec<_>>());
    assert_counts(&router, "s1", &[("copies", report.sent), ("sent", chosen.len() as u64)]);
    router.assert_conservation();
}
