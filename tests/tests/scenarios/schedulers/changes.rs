//! Changes of schedulers while packets wait in them. Only packets that a change is meant to drop are lost.
//! Flows keep their order, and every drop is counted.

use std::time::Duration;

use millrace_testkit::{Flow, FlowReport, Ground, Line, Millrace, Namespace, eventually};

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait of a packet while settings of its queue change, if the queue's rate suffices for its traffic.
const STALL: Duration = Duration::from_millis(250);
/// Longest wait of a packet in a queue whose rate is temporarily too low.
const BACKLOG: Duration = Duration::from_secs(5);

/// Returns a router that has forwarded packets both ways, so that both neighbours are resolved.
fn ready(line: &Line) -> Millrace {
    let router = router(line);
    line.h1.run("ping -c 1 10.2.0.2");
    router
}

/// Adds nodes to port r2. Each text holds the arguments of `scheduler add r2`.
fn add(router: &Millrace, nodes: &[&str]) {
    for node in nodes {
        let words = ["scheduler", "add", "r2"].into_iter().chain(node.split(' '));
        router.ask(&words.collect::<Vec<_>>());
    }
}

/// Changes settings of port r2, or of one of its nodes.
fn set(router: &Millrace, words: &str) {
    let words = ["scheduler", "set", "r2"].into_iter().chain(words.split(' '));
    router.ask(&words.collect::<Vec<_>>());
}

/// Adds a filter that sends packets for a UDP port of the second host to a queue.
fn steer(router: &Millrace, port: u16, queue: &str) {
    router.ask(&["filter", "add", &format!("proto udp dport {port}"), "--action", &format!("queue {queue}")]);
}

fn flow(line: &Line, port: u16, rate: u32) -> Flow {
    Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), rate, 100)
}

fn assert_whole(reports: &[FlowReport], what: &str, longest: Duration) {
    for report in reports {
        assert!(report.received > 0, "{what}: {report:?}");
        assert_eq!((report.lost(), report.duplicated, report.reordered), (0, 0, 0), "{what}: {report:?}");
        assert!(report.longest_delay < longest, "{what}: {report:?}");
    }
}

/// Returns the number of packets that wait in a node.
fn held(router: &Millrace, name: &str) -> u64 {
    let shown = router.json(&["scheduler", "show", "r2"]);
    let node = shown["nodes"].as_array().and_then(|nodes| nodes.iter().find(|node| node["name"] == name));
    node.and_then(|node| node["held_packets"].as_u64()).unwrap_or_else(|| panic!("{name}: {shown}"))
}

fn until_waiting(router: &Millrace, name: &str, packets: u64) {
    eventually("packets wait", PATIENCE, || (held(router, name) >= packets).then_some(()));
}

fn until_empty(router: &Millrace, name: &str) {
    eventually("nothing waits", PATIENCE, || (held(router, name) <= 2).then_some(()));
}

/// Changes all kinds of shares at once: service curves, a token bucket's rate, and weights of deficit round
/// robin.
#[test]
fn curves_rates_and_weights_change_under_load_without_a_loss_or_a_stall() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = ready(&line);
    add(
        &router,
        &[
            "top --kind hfsc",
            "voice --kind fifo --under top real-time=2mbit link-sharing=2mbit",
            "shaped --kind token-bucket --under top link-sharing=10mbit rate=8mbit burst=5000B",
            "bulk --kind fifo --under shaped",
            "fair --kind deficit-round-robin --under top link-sharing=10mbit",
            "left --kind fifo --under fair quantum=1538B",
            "right --kind flow-queues --under fair quantum=3076B",
        ],
    );
    set(&router, "rate=40mbit default=right host=direct");
    for (port, queue) in [(9001, "voice"), (9002, "bulk"), (9003, "left"), (9004, "right")] {
        steer(&router, port, queue);
    }
    // Each flow stays well below the rate of its class under all of the settings.
    let flows = [9001, 9002, 9003, 9004].map(|port| flow(&line, port, 400));
    flows.iter().for_each(Flow::wait_for_arrival);
    for round in 0..12 {
        let other = round % 2 == 0;
        let pick = |one: &'static str, two: &'static str| if other { one } else { two };
        set(&router, pick("--node voice real-time=3mbit", "--node voice real-time=1mbit"));
        set(&router, pick("--node voice upper-limit=6mbit", "--node voice upper-limit="));
        set(&router, pick("--node fair link-sharing=1mbit", "--node fair link-sharing=20mbit"));
        set(&router, pick("--node shaped rate=4mbit burst=3076B", "--node shaped rate=12mbit burst=20000B"));
        set(&router, pick("--node left quantum=300B", "--node left quantum=9000B"));
        set(&router, pick("--node right threshold=200000B", "--node right threshold=100000B"));
        set(&router, pick("rate=30mbit", "rate=50mbit"));
    }
    assert_whole(&flows.map(Flow::finish), "changes of curves, rates and weights", STALL);
    let flows = [9001, 9002, 9003, 9004].map(|port| flow(&line, port, 400));
    flows.iter().for_each(Flow::wait_for_arrival);
    // The rates become too low and then sufficient again. The waiting packets leave in order.
    set(&router, "--node shaped rate=64kbit");
    until_waiting(&router, "bulk", 50);
    set(&router, "--node shaped rate=12mbit");
    until_empty(&router, "bulk");
    set(&router, "--node voice real-time= link-sharing=2mbit upper-limit=64kbit");
    until_waiting(&router, "voice", 50);
    set(&router, "--node voice upper-limit=");
    until_empty(&router, "voice");
    for node in ["voice", "shaped", "fair"] {
        set(&router, &format!("--node {node} link-sharing=1mbit"));
    }
    set(&router, "rate=1mbit");
    until_waiting(&router, "top", 100);
    set(&router, "rate=40mbit");
    until_empty(&router, "top");
    assert_whole(&flows.map(Flow::finish), "rates that are too low for a while", BACKLOG);
    router.assert_conservation();
}

/// Adds a queue of 64 kb/s in which packets wait, and a queue for all other packets.
fn slow_class(router: &Millrace) {
    add(
        router,
        &[
            "top --kind priority",
            "slow --kind token-bucket --under top level=0 rate=64kbit",
            "full --kind fifo --under slow",
            "rest --kind fifo --under top level=1",
        ],
    );
    set(router, "default=rest host=direct");
    steer(router, 9001, "full");
}

/// Removes a class, and waits until the router no longer shows it.
fn remove(router: &Millrace, words: &[&str]) {
    router.ask(&[&["scheduler", "remove", "r2"], words].concat());
    eventually("the class is gone", PATIENCE, || {
        let shown = router.json(&["scheduler", "show", "r2"]);
        let names = shown["nodes"].as_array()?.iter().map(|node| node["name"].clone()).collect::<Vec<_>>();
        (!names.contains(&words[0].into())).then_some(())
    });
}

#[test]
fn packets_of_a_removed_class_go_to_the_named_leaf_in_order() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = ready(&line);
    slow_class(&router);
    let (other, moved) = (flow(&line, 9000, 500), flow(&line, 9001, 500));
    until_waiting(&router, "full", 200);
    let received = moved.received();
    // First the leaf alone is removed. Then, with packets in it again, an inner node is removed with all its
    // descendants.
    remove(&router, &["full", "--to", "rest"]);
    eventually("what waited arrives", PATIENCE, || (moved.received() >= received + 200).then_some(()));
    add(&router, &["full --kind flow-queues --under slow"]);
    let filter = router.json(&["filter", "list"])[0]["id"].as_u64().unwrap().to_string();
    router.ask(&["filter", "remove", &filter]);
    steer(&router, 9001, "full");
    until_waiting(&router, "full", 200);
    let received = moved.received();
    remove(&router, &["slow", "--to", "rest"]);
    eventually("what waited arrives", PATIENCE, || (moved.received() >= received + 200).then_some(()));
    assert_whole(&[moved.finish()], "packets of a removed class", BACKLOG);
    assert_whole(&[other.finish()], "beside a class that was removed", STALL);
    assert_eq!(router.drops("queue_removed"), 0);
    router.assert_conservation();
}

#[test]
fn packets_of_a_removed_class_are_dropped_and_counted_without_a_named_leaf() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = ready(&line);
    slow_class(&router);
    let (other, cut) = (flow(&line, 9000, 500), flow(&line, 9001, 500));
    until_waiting(&router, "full", 200);
    remove(&router, &["slow", "--with-filters"]);
    // After the removal, packets of the flow use the default leaf.
    cut.wait_for_arrival();
    let [other, cut] = [other, cut].map(Flow::finish);
    assert_whole(&[other], "beside a class that was removed", STALL);
    assert_eq!((cut.duplicated, cut.reordered), (0, 0), "{cut:?}");
    // The router counts exactly the lost packets as dropped, and these are consecutive.
    assert!(cut.lost() >= 200, "{cut:?}");
    assert_eq!(router.drops("queue_removed"), cut.lost(), "{cut:?}");
    router.assert_conservation();
}

/// Sets a TAP device down: it accepts no packets until it is up again.
#[test]
fn stalled_tap_device_costs_only_its_own_packets() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let config = "[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n\
                  [[port]]\nname = \"mrtap\"\nkind = \"tap\"\naddress = [\"10.5.0.1/24\"]\n\
                  [port.scheduler]\nrate = \"50mbit\"\n\
                  node = [{ name = \"all\", kind = \"fifo\", threshold = \"20000B\" }]\n";
    let config = line.write("tap.toml", config).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {config}"));
    let guest = Namespace::new("guest");
    line.r.ip(&format!("link set mrtap netns {}", guest.name()));
    let up = "link set mrtap up\nroute replace default via 10.5.0.1";
    guest.ip("address add 10.5.0.2/24 dev mrtap");
    guest.ip(up);
    line.h1.run("ping -c 2 -i 0.2 10.5.0.2");
    line.h1.run("ping -c 1 10.2.0.2");
    let into = Flow::start(&line.h1, &guest, to("10.5.0.2:9000"), 500, 200);
    let beside = flow(&line, 9001, 500);
    into.wait_for_arrival();
    guest.ip("link set mrtap down");
    let lost =
        || ["transmit_failed", "queue_full", "port_down"].map(|why| router.drops(why)).iter().sum::<u64>();
    eventually("packets are lost at the port", PATIENCE, || (lost() >= 200).then_some(()));
    let shown = router.json(&["queue", "show", "mrtap", "all"]);
    assert!(shown["held_bytes"].as_u64().is_some_and(|bytes| bytes <= 20_000 + 242), "{shown}");
    guest.ip(up);
    into.wait_for_arrival();
    let [into, beside] = [into, beside].map(Flow::finish);
    assert_whole(&[beside], "beside a TAP device that took nothing", STALL);
    assert_eq!((into.duplicated, into.reordered), (0, 0), "{into:?}");
    assert!(into.lost() >= 200 && lost() >= into.lost(), "{} {into:?}", lost());
    router.assert_conservation();
}
