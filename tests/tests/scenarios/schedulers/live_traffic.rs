//! Schedulers on live traffic: rates, queues that filters name, and changes under load.

use std::net::UdpSocket;
use std::time::Duration;

use millrace_testkit::{Arrivals, Background, Flow, Ground, Line, Millrace, burst, eventually};
use nix::sys::signal::Signal;

use crate::support::{iperf3_server, rate_to_h2, router, to};

/// Starts a router with a link of 8 Mb/s to the second host. Voice has priority over all other traffic.
pub fn shaped(line: &Line) -> Millrace {
    let router = router(line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "top", "--kind", "priority"]);
    router.ask(&["scheduler", "add", "r2", "voice", "--kind", "fifo", "--under", "top", "level=0"]);
    router.ask(&["scheduler", "add", "r2", "rest", "--kind", "fq-codel", "--under", "top", "level=1"]);
    router.ask(&["scheduler", "set", "r2", "rate=8mbit", "default=rest"]);
    router
}

pub fn node(router: &Millrace, name: &str) -> serde_json::Value {
    let shown = router.json(&["scheduler", "show", "r2"]);
    let nodes = shown["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["name"] == name).unwrap_or_else(|| panic!("{name}: {shown}")).clone()
}

#[test]
fn a_rate_is_kept_and_voice_passes_a_full_queue() {
    let Some(_ground) = Ground::enter_alone(&["ping", "iperf3"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    router.ask(&["filter", "add", "proto udp dport 9000", "--action", "queue voice"]);
    let _server = iperf3_server(&line, &line.h2);
    // Voice: 50 packets a second, 64 kb/s with all headers. Beside it, a TCP flow takes all remaining
    // capacity.
    let voice = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 50, 118);
    let log = line.file("iperf3-client.log");
    let mut client = Background::start(&line.h1, "iperf3", &["-c", "10.2.0.2", "-t", "6"], log);
    voice.go_on(Duration::from_secs(2));
    let rate = rate_to_h2(&line, || voice.go_on(Duration::from_secs(3)));
    // The rate must not be exceeded. TCP itself may leave a part of it unused, especially on a busy machine.
    assert!((7.0e6..8.08e6).contains(&rate), "{rate}");
    assert!(client.wait(Duration::from_secs(20)).is_some_and(|status| status.success()), "{}", client.log());
    let voice = voice.finish();
    assert_eq!((voice.lost(), voice.reordered), (0, 0), "{voice:?}");
    assert!(node(&router, "voice")["sent_packets"].as_u64().unwrap() >= voice.received);
    assert!(node(&router, "rest")["sent_bytes"].as_u64().unwrap() > 3_000_000);
    assert_eq!(node(&router, "voice")["held_packets"], 0);
    router.assert_conservation();
}

#[test]
fn a_tree_changes_under_load_without_a_loss() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    router.ask(&["filter", "add", "proto udp dport 9001", "--action", "queue voice"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 200);
    flow.wait_for_arrival();
    flow.go_on(Duration::from_millis(200));
    router.ask(&["scheduler", "set", "r2", "--node", "voice", "threshold=65536B", "manage=codel"]);
    router.ask(&["scheduler", "set", "r2", "rate=20mbit"]);
    flow.go_on(Duration::from_millis(200));
    // The waiting packets move to another queue, and the filter sends later packets there too.
    let named = ["1 filter names", "dport 9001", "--to LEAF", "--with-filters"];
    router.try_ask(&["scheduler", "remove", "r2", "voice"]).assert_refused(1, &named);
    let said = router.ask(&["scheduler", "remove", "r2", "voice", "--to", "rest"]);
    assert!(said.contains("1 filter that named its queue now names rest"), "{said}");
    assert_eq!(router.json(&["filter", "list"])[0]["action"], "queue rest");
    flow.go_on(Duration::from_millis(200));
    router.ask(&["scheduler", "add", "r2", "voice", "--kind", "fifo", "--under", "top", "level=0"]);
    flow.go_on(Duration::from_millis(200));
    let report = flow.finish();
    assert_eq!((report.lost(), report.duplicated, report.reordered), (0, 0, 0), "{report:?}");
    let said = router.ask(&["scheduler", "remove", "r2", "top", "--with-filters"]);
    assert!(said.contains("1 filter that named its queue is removed"), "{said}");
    assert_eq!(router.json(&["filter", "list"]).as_array().map(Vec::len), Some(0));
    assert_eq!(router.json(&["scheduler", "show"]).as_array().map(Vec::len), Some(0));
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router.assert_conservation();
}

/// Checks that the router refuses a command with an error that contains these texts.
pub fn refuses(router: &Millrace, command: &str, arguments: &[&str], texts: &[&str]) {
    let all: Vec<&str> = [command].iter().chain(arguments).copied().collect();
    router.try_ask(&all).assert_refused(1, texts);
}

/// Returns the queue, in the leaf `flows`, of the flow to this UDP port of the second host.
fn flow_queue(router: &Millrace, port: u16) -> serde_json::Value {
    flow_in(&router.json(&["queue", "show", "r2", "flows"]), port)
}

/// Returns the numbers of bytes that two flows have sent, from one answer of the router.
fn sent_of(router: &Millrace, ports: [u16; 2]) -> [f64; 2] {
    let shown = router.json(&["queue", "show", "r2", "flows"]);
    ports.map(|port| flow_in(&shown, port)["sent_bytes"].as_f64().unwrap())
}

fn flow_in(shown: &serde_json::Value, port: u16) -> serde_json::Value {
    let ends = format!("dport {port} in r1");
    let found = shown["flows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|flow| flow["flow"].as_str().is_some_and(|selector| selector.ends_with(&ends)));
    found.unwrap_or_else(|| panic!("no queue of a flow to {port}: {shown}")).clone()
}

/// Starts a router with an 8 Mb/s link and a queue per flow, and two flows that each send more than the
/// link's rate.
fn two_greedy_flows(line: &Line) -> (Millrace, Flow, Flow) {
    let router = router(line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&[
        "scheduler",
        "add",
        "r2",
        "flows",
        "--kind",
        "flow-queues",
        "rate=8mbit",
        "threshold=60000B",
    ]);
    router.ask(&["scheduler", "set", "r2", "rate=8mbit"]);
    let [reserved, other] = ["10.2.0.2:9000", "10.2.0.2:9001"].map(|address| {
        let flow = Flow::start(&line.h1, &line.h2, to(address), 1250, 958);
        flow.wait_for_arrival();
        flow
    });
    (router, reserved, other)
}

#[test]
fn flow_with_a_reservation_gets_exactly_its_rate_at_any_load() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let (router, reserved, other) = two_greedy_flows(&line);
    let selector = flow_queue(&router, 9000)["flow"].as_str().unwrap().to_owned();
    let share = |time: u64| {
        // One request reads both counters, so that both cover the same period.
        let sent = || sent_of(&router, [9000, 9001]);
        let before = sent();
        reserved.go_on(Duration::from_millis(time));
        let after = sent();
        let [first, second] = [0, 1].map(|flow| after[flow] - before[flow]);
        first / (first + second)
    };
    // Without settings both flows get equal shares.
    let alike = share(1500);
    assert!((0.48..0.52).contains(&alike), "{alike}");
    // An eighth of the link is reserved for one flow, which gets exactly that. The other flow gets the rest.
    router.ask(&["queue", "set", "r2", "flows", "--flow", &selector, "rate=1mbit"]);
    assert_eq!(flow_queue(&router, 9000)["rate"], 1_000_000);
    let state = || router.json(&["flow", "list", &selector])["flows"][0]["state"].clone();
    eventually("its record is reserved", Duration::from_secs(5), || (state() == "reserved").then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    let eighth = share(3000);
    assert!((0.125 * 0.98..0.125 * 1.02).contains(&eighth), "{eighth}");
    // With a larger quantum, the flow gets more than the other flow. Without its own quantum, the shares are
    // equal again.
    router.ask(&["queue", "set", "r2", "flows", "--flow", &selector, "quantum=4614B"]);
    eventually("it is reserved no longer", Duration::from_secs(5), || {
        (state() == "established").then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
    let three_quarters = share(1500);
    assert!((0.73..0.77).contains(&three_quarters), "{three_quarters}");
    router.ask(&["queue", "set", "r2", "flows", "--flow", &selector, "quantum="]);
    std::thread::sleep(Duration::from_millis(300));
    let alike = share(1500);
    assert!((0.48..0.52).contains(&alike), "{alike}");
    // Each offered packet has been sent, waits, or has been dropped.
    let [reserved, other] = [reserved, other].map(Flow::finish);
    assert!(reserved.lost() > 0 && other.lost() > 0 && reserved.reordered + other.reordered == 0);
    router.assert_conservation();
}

#[test]
fn queues_are_shown_and_changed() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let (router, first, second) = two_greedy_flows(&line);
    // A port has 8,192 queues by default.
    let shown = router.json(&["scheduler", "show", "r2"]);
    assert!(shown["queues_limit"] == 8192 && shown["queues"].as_u64() >= Some(3), "{shown}");
    let many = ["scheduler", "set", "r2", "queues=65537"];
    router.try_ask(&many).assert_refused(1, &["65537", "1 to 65536"]);
    router
        .try_ask(&["scheduler", "set", "r2", "queues=4000"])
        .assert_refused(1, &["\"flows\"", "4096", "4000"]);
    router.ask(&["scheduler", "set", "r2", "queues=65536"]);
    assert_eq!(router.json(&["scheduler", "show", "r2"])["queues_limit"], 65_536);
    let table = router.ask(&["queue", "show", "r2", "flows"]);
    assert!(table.contains("dport 9000 in r1") && table.contains("flow-queues"), "{table}");
    let all = router.json(&["queue", "show"]);
    assert_eq!((&all[0]["name"], &all[0]["port"]), (&"flows".into(), &"r2".into()));
    // In the whole leaf and in each flow, each offered packet has been sent, waits, or has been dropped.
    let shown = eventually("a queue is above its threshold", Duration::from_secs(10), || {
        let shown = router.json(&["queue", "show", "r2", "flows"]);
        (shown["drops"]["threshold"].as_u64() > Some(0)).then_some(shown)
    });
    let arrived = |queue: &serde_json::Value| queue["offered_packets"].as_u64().unwrap();
    // The router reads the counters of the flows after those of the whole leaf.
    let of_flows: u64 = shown["flows"].as_array().unwrap().iter().map(arrived).sum();
    let of = |key: &str| shown[key].as_u64().unwrap();
    assert_eq!(of("offered_bytes"), of("sent_bytes") + of("held_bytes") + of("dropped_bytes"));
    assert!(of("peak_bytes") >= of("held_bytes"), "{shown}");
    // All packets of both flows have 1,000 bytes.
    for flow in [9000, 9001].map(|port| flow_in(&shown, port)) {
        for what in ["offered", "sent", "held"] {
            let [packets, bytes] =
                ["packets", "bytes"].map(|unit| flow[format!("{what}_{unit}")].as_u64().unwrap());
            assert_eq!(bytes, 1000 * packets, "{what}: {flow}");
        }
    }
    let sent = shown["sent_packets"].as_u64().unwrap();
    assert!(sent > 0 && sent < arrived(&shown) && arrived(&shown) <= of_flows, "{shown}");
    router.ask(&["queue", "set", "r2", "flows", "threshold=30000B"]);
    assert_eq!(router.json(&["queue", "show", "r2"])[0]["settings"]["threshold"], "30000B");
    let flow = flow_queue(&router, 9001)["flow"].as_str().unwrap().to_owned();
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "threshold=9000B"]);
    assert_eq!(flow_queue(&router, 9001)["threshold"], 9000);
    // A new threshold leaves a reservation unchanged, and a new reservation leaves a threshold unchanged.
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "rate=1mbit"]);
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "threshold=9001B"]);
    let both = flow_queue(&router, 9001);
    assert_eq!((&both["rate"], &both["threshold"]), (&1_000_000.into(), &9001.into()), "{both}");
    let text = router.json(&["show", "configuration"])["text"].as_str().unwrap().to_owned();
    let is_saved = |setting: &str| text.contains(&format!("{setting}\n"));
    let both = ["rate = \"1mbit\"", "threshold = \"9001B\""];
    assert!(both.into_iter().all(is_saved), "both are saved: {text}");
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "rate="]);
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "threshold=9000B"]);
    drop((first, second));
    router.assert_conservation();
}

#[test]
fn refused_queue_setting_keeps_the_previous_one() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let (router, first, second) = two_greedy_flows(&line);
    let flow = flow_queue(&router, 9001)["flow"].as_str().unwrap().to_owned();
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "threshold=9000B"]);
    let refused = |arguments: &[&str], texts: &[&str]| refuses(&router, "queue", arguments, texts);
    refused(&["show", "r9"], &["r9"]);
    refused(&["show", "r2", "flow"], &["did you mean \"flows\""]);
    router.ask(&["queue", "set", "r2", "flows", "queues=9"]);
    assert_eq!(router.json(&["queue", "show", "r2"])[0]["settings"]["queues"], 9);
    refused(&["set", "r2", "flows", "queues=65536"], &["\"flows\"", "queues must be 1 to 65535, not 65536"]);
    refused(
        &["set", "r2", "flows", "--flow", &flow, "rate=9mbit"],
        &["\"flows\"", "9.00 Mb/s, which must stay below the capacity of 8.00 Mb/s"],
    );
    refused(&["set", "r2", "flows", "--flow", &flow, "rate=1mbit", "quantum=1B"], &["either a rate"]);
    refused(&["set", "r2", "flows", "--flow", "proto udp", "rate=1mbit"], &["src ADDRESS"]);
    refused(&["set", "r2", "flows", "--flow", &flow, "weight=2"], &["weight", "quantum"]);
    let kept = flow_queue(&router, 9001);
    assert_eq!((&kept["threshold"], &kept["rate"]), (&9000.into(), &serde_json::Value::Null), "{kept}");
    // A setting for all queues doesn't change the setting of a single queue. A leaf's rate can't be removed
    // while it has reservations.
    router.ask(&["scheduler", "set", "r2", "--node", "flows", "threshold=25000B"]);
    assert_eq!(flow_queue(&router, 9001)["threshold"], 9000);
    assert_eq!(flow_queue(&router, 9000)["threshold"], 25_000);
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "rate=1mbit"]);
    refused(
        &["set", "r2", "flows", "rate="],
        &["node \"flows\"", "it needs a rate above 1.00 Mb/s, which is reserved for one of its flows"],
    );
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "rate="]);
    router.ask(&["queue", "set", "r2", "flows", "rate="]);
    refused(&["set", "r2", "flows", "--flow", &flow, "rate=1mbit"], &["\"flows\" has no rate", "rate=RATE"]);
    // Each packet takes 24 more bytes on the wire, and rates include them. The speed that a veth reports has
    // no meaning.
    let flows = node(&router, "flows");
    let [packets, bytes, wire] =
        ["sent_packets", "sent_bytes", "sent_wire_bytes"].map(|key| flows[key].as_u64().unwrap());
    assert_eq!(wire, bytes + 24 * packets);
    let shown = router.json(&["scheduler", "show", "r2"]);
    assert_eq!((&shown["link"], &shown["warning"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    // A flow with a reservation keeps its name while it is idle.
    router.ask(&["queue", "set", "r2", "flows", "rate=8mbit"]);
    router.ask(&["queue", "set", "r2", "flows", "--flow", &flow, "rate=1mbit"]);
    drop((first, second));
    router.ask(&["flow", "flush"]);
    assert_eq!(flow_queue(&router, 9001)["rate"], 1_000_000);
    router.assert_conservation();
}

#[test]
fn full_queue_drops_its_own_packets_and_delays_no_other_port() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo", "threshold=20000B"]);
    // With `host=direct`, the drop counters don't include the kernel's own packets.
    router.ask(&["scheduler", "set", "r2", "rate=1mbit", "host=direct"]);
    // A flow with twice the rate of the link, and a flow in the opposite direction.
    let full = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 200);
    let other = Flow::start(&line.h2, &line.h1, to("10.1.0.2:9000"), 1000, 200);
    full.go_on(Duration::from_millis(1500));
    let [full, other] = [full, other].map(Flow::finish);
    assert_eq!((other.lost(), other.reordered), (0, 0), "{other:?}");
    assert!(full.lost() > full.sent / 4 && full.reordered == 0, "{full:?}");
    // The number of lost packets equals that of queue drops.
    assert_eq!(
        (router.drops("queue_full"), node(&router, "all")["held_packets"].as_u64()),
        (full.lost(), Some(0))
    );
    router.assert_conservation();
}

/// Starts a router whose second port is a macvlan on top of `r2`. Voice has priority over all other traffic.
fn router_above_macvlan(line: &Line) -> Millrace {
    line.r.ip("address flush dev r2
         link add m2 link r2 type macvlan mode bridge
         link set m2 up
         address add 10.2.0.1/24 dev m2");
    let router = Millrace::start(&line.r, "--port r1 --port m2");
    line.h1.run("ping -c 1 10.2.0.2");
    let mode = router.json(&["show", "ports"])[1].clone();
    assert_eq!(mode["driver"], "af_xdp", "{mode}");
    router.ask(&["scheduler", "add", "m2", "top", "--kind", "priority"]);
    router.ask(&["scheduler", "add", "m2", "voice", "--kind", "fifo", "--under", "top", "level=0"]);
    router.ask(&[
        "scheduler",
        "add",
        "m2",
        "rest",
        "--kind",
        "fifo",
        "--under",
        "top",
        "level=1",
        "threshold=100000B",
    ]);
    // Without a rate, packets wait for the device only.
    router.ask(&["scheduler", "set", "m2", "default=rest", "host=direct"]);
    router.ask(&["filter", "add", "proto udp dport 9000", "--action", "queue voice"]);
    router
}

/// Keeps the transmit ring of an AF_XDP device full: a kernel token bucket below a macvlan delays the
/// completions, as a link slower than the traffic does.
#[test]
fn a_full_ring_holds_packets_back_in_the_order_of_the_scheduler() {
    let Some(_ground) = Ground::enter_alone(&["ping", "tc"]) else { return };
    let line = Line::new();
    let bucket = |what: &str, rate: &str| {
        line.r.run(&format!("tc qdisc {what} dev r2 root tbf rate {rate} burst 5000 limit 100000000"));
    };
    // The bucket sends on any processor. Without steering, the host receives on the processor that sent, and
    // reorders packets.
    line.h2.run("echo 1 | tee /sys/class/net/eth0/queues/rx-*/rps_cpus");
    let router = router_above_macvlan(&line);
    bucket("add", "2mbit");
    let node = |name: &str| {
        let shown = router.json(&["queue", "show", "m2", name]);
        ["peak_bytes", "held_packets"].map(|key| shown[key].as_u64().unwrap())
    };
    let voice = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 50, 100);
    let back = Flow::start(&line.h2, &line.h1, to("10.1.0.2:9002"), 500, 100);
    let bulk = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 4000, 200);
    eventually("ring and queue are full", Duration::from_secs(20), || {
        (router.drops("queue_full") > 0).then_some(())
    });
    voice.go_on(Duration::from_secs(1));
    let [peak, held] = node("rest");
    assert!(peak >= 100_000 && held > 300, "{peak} {held}");
    // The voice queue holds only the packets that arrive until the next ring slot is free.
    let [voice_peak, _] = node("voice");
    assert!(voice_peak < 20 * 142, "{voice_peak}");
    // Now the link becomes faster, and all waiting packets leave; not so fast that the host's kernel drops any.
    bucket("change", "50mbit");
    eventually("nothing waits", Duration::from_secs(10), || (node("rest")[1] < 100).then_some(()));
    let [voice, back, bulk] = [voice, back, bulk].map(Flow::finish);
    assert_eq!(
        (voice.lost(), voice.reordered, back.lost(), back.reordered),
        (0, 0, 0, 0),
        "{voice:?} {back:?}"
    );
    // The number of lost packets equals that of queue drops.
    assert!(bulk.lost() > 0 && bulk.reordered == 0, "{bulk:?}");
    assert_eq!(router.drops("queue_full"), bulk.lost(), "{bulk:?}");
    router.assert_conservation();
}

#[test]
fn a_slow_port_and_a_plugin_that_holds_leave_packet_memory_to_others() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let config = "[router]\nframes = 8192\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n\
                  [[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let config = line.write("small.toml", config).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {config}"));
    line.h1.run("ping -c 1 10.2.0.2");
    let unharmed = |what: &str| {
        let other = Flow::start(&line.h2, &line.h1, to("10.1.0.2:9000"), 500, 200);
        other.go_on(Duration::from_millis(1500));
        let other = other.finish();
        assert_eq!((other.lost(), other.reordered), (0, 0), "beside {what}: {other:?}");
    };
    let recovered = |what: &str| {
        let flow = crate::support::flow_for(&line, 1000, Duration::from_millis(500));
        assert_eq!((flow.lost(), flow.reordered), (0, 0), "after {what}: {flow:?}");
    };
    // The queue may hold more than the packet memory.
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo", "threshold=100000000B"]);
    router.ask(&["scheduler", "set", "r2", "rate=64kbit"]);
    let flood = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 4000, 200);
    eventually("the queue is full", Duration::from_secs(10), || {
        (router.drops("queue_full") > 0).then_some(())
    });
    unharmed("a slow port");
    drop(flood);
    router.ask(&["scheduler", "remove", "r2", "all"]);
    recovered("a slow port");
    router.assert_conservation();
    // The instance holds packets for so long that memory would run out.
    router.ask(&["instance", "create", "delay", "late", "ms=5000"]);
    router.ask(&["bind", "late", "--gate", "process", "--filter", "proto udp dport 9001"]);
    let flood = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 4000, 200);
    let dropped = || router.json(&["show", "drops"]).as_array().map_or(0, Vec::len);
    let before = dropped();
    eventually("no more is held", Duration::from_secs(10), || (dropped() > before).then_some(()));
    unharmed("an instance that holds packets");
    drop(flood);
    router.ask(&["unbind", "late", "--gate", "process", "--filter", "proto udp dport 9001"]);
    // All held packets leave at once, through the queue of the port.
    eventually("nothing is held", Duration::from_secs(10), || (router.summary("held") == 0).then_some(()));
    recovered("an instance that holds packets");
    router.assert_conservation();
}

#[test]
fn stalled_worker_catches_up_by_at_most_two_packets() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    router.ask(&["queue", "set", "r2", "voice", "threshold=500000B"]);
    router.ask(&["filter", "add", "proto udp dport 9002", "--action", "queue voice"]);
    let receiver = line.h2.within(|| UdpSocket::bind("10.2.0.2:9002").and_then(Arrivals::at)).unwrap();
    let sender = line.h1.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    // 1.3 Mb are sent at once at 8 Mb/s, so the port always has a packet.
    for _ in 0..120 {
        sender.send_to(&[0; 1358], "10.2.0.2:9002").unwrap();
    }
    std::thread::sleep(Duration::from_millis(30));
    router.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(60));
    router.signal(Signal::SIGCONT);
    let arrivals = eventually("all packets arrive", Duration::from_secs(5), || {
        let held = node(&router, "voice")["held_packets"].as_u64().unwrap();
        (held == 0).then(|| receiver.take().unwrap())
    });
    assert_eq!(arrivals.len(), 120);
    let pause = arrivals.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).max().unwrap();
    assert!(pause > Duration::from_millis(40), "{pause:?}");
    // The burst is the due packet, two packets of credit, and two chosen before the stop. The stop lasts as
    // long as 40 packets.
    let burst = burst(&arrivals, 66, 8e6) / 1424.0;
    assert!(burst < 5.1, "{burst} packets");
    router.assert_conservation();
}
