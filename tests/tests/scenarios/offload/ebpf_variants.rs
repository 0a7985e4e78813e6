//! eBPF variants of plugins: in the offload, packets of bound flows are treated and counted exactly as by the
//! instance at a worker.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, wait_until};
use serde_json::Value;

use crate::offload::filters::line;
use crate::support::{router, to};

const FLOW: &str = "proto udp dport 9000";
/// Number of moves of an instance in each direction.
const MOVES: usize = 8;

fn begin(line: &Line) -> Millrace {
    let router = router(line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router
}

fn is_at(router: &Millrace, level: &str) -> bool {
    let flows = router.json(&["flow", "list", FLOW]);
    let flows = flows["flows"].as_array().cloned().unwrap_or_default();
    !flows.is_empty() && flows.iter().all(|flow| flow["level"] == level)
}

fn comes_to(router: &Millrace, level: &str) {
    let there = wait_until(Duration::from_secs(5), || is_at(router, level));
    assert!(there.is_some(), "{level}: {:#}", router.json(&["flow", "list", FLOW]));
}

fn read(router: &Millrace, instance: &str) -> Value {
    router.json(&["control", instance, "read"])
}

/// Returns the number of frames that the offload has sent out of both ports.
fn driven(router: &Millrace) -> u64 {
    let sent = |port| router.row("ports", "name", port)["offloaded_packets"].as_u64().unwrap_or_default();
    sent("r1") + sent("r2")
}

/// Moves the instance `stats` to the worker and back several times, while a flow sends.
fn move_to_worker_and_back(router: &Millrace, flow: &Flow) {
    for _ in 0..MOVES {
        let placed = router.json(&["place", "stats", "worker"]);
        assert_eq!((&placed["flow"], &placed["worker"]), (&"instance stats".into(), &2.into()), "{placed:#}");
        let before = driven(router);
        flow.go_on(Duration::from_millis(60));
        // The placement is in force when the command returns.
        assert_eq!(driven(router), before);
        router.json(&["place", "stats", "offload"]);
        comes_to(router, "offload");
        read(router, "stats");
    }
}

#[test]
fn statistics_count_each_packet_once_at_either_level() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = begin(&line);
    router.ask(&["instance", "create", "statistics", "stats"]);
    router.ask(&["bind", "stats", "--gate", "monitor", "--filter", FLOW]);
    let there = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 3000, 64);
    let back = Flow::start(&line.h2, &line.h1, to("10.1.0.2:9000"), 3000, 200);
    there.wait_for_arrival();
    back.wait_for_arrival();
    // The router offloads the flow without a command.
    comes_to(&router, "offload");
    let instance = router.row("instances", "name", "stats");
    let level = (&instance["level"], &instance["why_worker"]);
    assert_eq!(level, (&"offload".into(), &Value::Null), "{instance:#}");
    move_to_worker_and_back(&router, &there);
    // The gathered statistics and other settings change while packets flow.
    router.ask(&["control", "stats", "configure", "what=size"]);
    router.ask(&["instance", "set", "stats", "what=all"]);
    comes_to(&router, "offload");
    let offloaded = driven(&router);
    let (there, back) = (there.finish(), back.finish());
    let sent = there.sent + back.sent;
    for report in [&there, &back] {
        assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    }
    assert!(offloaded > sent / 50, "{offloaded} of {sent} were offloaded");
    let counted = read(&router, "stats");
    let bytes = there.sent * (14 + 28 + 64) + back.sent * (14 + 28 + 200);
    assert_eq!((&counted["total"]["packets"], &counted["total"]["bytes"]), (&sent.into(), &bytes.into()));
    let sizes = &counted["sizes"];
    assert_eq!(sizes["64-127"], there.sent, "{counted:#}");
    assert_eq!(sizes["128-255"], back.sent, "{counted:#}");
    // While `what=size` was in force, the instance gathered no statistics by protocol.
    let udp = counted["ipv4"]["packets"]["udp"].as_u64().expect("a number");
    assert!(udp <= sent && udp > sent / 2, "{counted:#}");
    // The counters of the binding are equal.
    let is_told = || {
        let bound = router.row("instances", "name", "stats")["bindings"][0].clone();
        (&bound["packets"], &bound["bytes"]) == (&sent.into(), &bytes.into())
    };
    assert!(
        wait_until(Duration::from_secs(3), is_told).is_some(),
        "{:#}",
        router.row("instances", "name", "stats")
    );
    let metric =
        format!("millrace_instance_packets_total{{plugin_instance=\"stats\",plugin=\"statistics\"}} {sent}");
    let metrics = router.ask(&["metrics"]);
    assert!(metrics.contains(&metric), "{metric} is not among {metrics}");
    router.assert_conservation();
    let zero = router.json(&["control", "stats", "reset"]);
    assert_eq!(zero["total"]["packets"], 0, "{zero:#}");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    comes_to(&router, "offload");
    let report = flow.finish();
    assert_eq!(read(&router, "stats")["total"]["packets"], report.sent);
}

#[test]
fn offloaded_port_filter_drops_exactly_its_ports() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = begin(&line);
    router.ask(&["instance", "create", "port-filter", "web", "ports=80,8000-8999", "protocol=udp"]);
    router.ask(&["bind", "web", "--gate", "firewall", "--filter", "proto udp"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 3000, 64);
    flow.wait_for_arrival();
    comes_to(&router, "offload");
    let before = flow.received();
    flow.go_on(Duration::from_millis(300));
    assert!(flow.received() > before, "port 9000 is in no range");
    // When the command has returned, no packet of these ports passes.
    router.ask(&["control", "web", "set", "ports=80,9000-9001"]);
    let arrived = flow.received();
    flow.go_on(Duration::from_millis(300));
    assert!(flow.received() <= arrived + 64, "{} arrived behind the filter", flow.received() - arrived);
    comes_to(&router, "offload");
    let dropped = driven(&router);
    flow.go_on(Duration::from_millis(200));
    assert_eq!(driven(&router), dropped, "what is dropped is not sent");
    router.json(&["place", "web", "worker"]);
    flow.go_on(Duration::from_millis(200));
    router.json(&["place", "web", "auto"]);
    comes_to(&router, "offload");
    flow.go_on(Duration::from_millis(200));
    let report = flow.finish();
    let lost = report.lost();
    let counted = read(&router, "web");
    assert_eq!(
        (&counted["packets"], &counted["dropped"]),
        (&report.sent.into(), &lost.into()),
        "{counted:#}"
    );
    assert_eq!(counted["ranges"][1]["dropped"], lost, "{counted:#}");
    let told = wait_until(Duration::from_secs(3), || {
        router.row("instances", "name", "web")["drops"]["0"] == lost && router.drops("plugin") == lost
    });
    assert!(told.is_some(), "{lost}: {:#}", router.row("instances", "name", "web"));
    assert!(lost > report.sent / 4, "{report:?}");
    router.assert_conservation();
    // A new instance of the same name starts with counters of zero, and so do its flows.
    router.ask(&["unbind", "web", "--gate", "firewall", "--filter", "proto udp"]);
    router.ask(&["instance", "free", "web"]);
    router.ask(&["instance", "create", "port-filter", "web", "ports=9000"]);
    assert_eq!(read(&router, "web")["packets"], 0);
}

#[test]
fn placed_instances_are_part_of_the_configuration() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = line();
    let ports = "[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let instance = "[[instance]]\nplugin = \"statistics\"\nname = \"stats\"\n";
    let place = "[[place]]\nflow = \"instance stats\"\nlevel = \"worker\"\n";
    let file = line.write("placed.toml", &format!("{ports}{instance}{place}"));
    let router = Millrace::start(&line.r, &format!("--config {}", file.display()));
    let file = file.display().to_string();
    let level = || router.row("instances", "name", "stats")["level"].clone();
    assert_eq!(level(), "worker");
    let why = router.row("instances", "name", "stats")["why_worker"].clone();
    assert_eq!(why, "a placement pins it to the worker");
    router.ask(&["place", "instance stats", "auto"]);
    assert_eq!(level(), "offload");
    assert!(router.try_ask(&["diff", &file]).stdout.contains("place 'instance stats' worker"));
    router.ask(&["apply", &file]);
    assert_eq!(level(), "worker");
    router.ask(&["instance", "rename", "stats", "counts"]);
    let listed = router.json(&["place", "list"]);
    assert_eq!(listed["placements"][0]["flow"], "instance counts", "{listed:#}");
    router.ask(&["instance", "free", "counts"]);
    assert_eq!(router.json(&["place", "list"])["placements"], serde_json::json!([]));
    let plugin = router.json(&["plugin", "inspect", "statistics"]);
    assert_eq!(plugin["ebpf_variant"]["settings"], 1, "{plugin:#}");
    let unknown = line.write("unknown.toml", &format!("{ports}{place}"));
    let refused = millrace_testkit::run_to_end(&line.r, &["check", &unknown.display().to_string()]);
    refused.assert_refused(1, &["instance", "stats"]);
}
