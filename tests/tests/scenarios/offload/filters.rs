//! Drop filters and policers in the offload: packets are treated and counted as by a worker.

use std::time::{Duration, Instant};

use millrace_testkit::{Flow, Ground, Line, Millrace, wait_until};
use serde_json::Value;

use crate::support::{router, to};

const FLOW: &str = "proto udp dport 9000";

/// Returns a line whose hosts accept redirected frames.
pub fn line() -> Line {
    let line = Line::new();
    [&line.h1, &line.h2].iter().for_each(|host| drop(host.run("ethtool -K eth0 gro on")));
    line
}

/// Returns the flow as `flow list` shows it.
fn flow_of(router: &Millrace) -> Value {
    router.json(&["flow", "list", FLOW])["flows"][0].clone()
}

fn is_offloaded(router: &Millrace) -> bool {
    flow_of(router)["level"] == "offload"
}

fn filter(router: &Millrace, id: &str) -> Value {
    let filters = router.json(&["filter", "list"]);
    let found = filters.as_array().into_iter().flatten().find(|row| row["id"].as_u64() == id.parse().ok());
    found.cloned().unwrap_or_else(|| panic!("no filter {id}: {filters:#}"))
}

fn add(router: &Millrace, action: &str, more: &[&str]) -> String {
    let command = [&["filter", "add", FLOW, "--action", action], more].concat();
    router.json(&command)["id"].to_string()
}

#[test]
fn drop_filter_is_offloaded_and_counts_like_a_worker() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let mut dropped_before = 0;
    for gate in ["firewall", "route"] {
        let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 3000, 64);
        flow.wait_for_arrival();
        assert!(
            wait_until(Duration::from_secs(3), || is_offloaded(&router)).is_some(),
            "{:#}",
            flow_of(&router)
        );
        let id = add(&router, "drop", &["--gate", gate]);
        let arrived = flow.received();
        let down = wait_until(Duration::from_secs(3), || is_offloaded(&router));
        assert!(down.is_some(), "{gate}: {:#}", flow_of(&router));
        flow.go_on(Duration::from_millis(500));
        // Packets in flight to the receiver when the filter was added may still arrive.
        assert!(flow.received() <= arrived + 64, "{} arrived behind the filter", flow.received() - arrived);
        let report = flow.finish();
        let lost = report.lost();
        let told = wait_until(Duration::from_secs(3), || filter(&router, &id)["drops"] == lost);
        assert!(told.is_some(), "{gate}: {lost} lost: {:#}", filter(&router, &id));
        assert_eq!(filter(&router, &id)["packets"], lost, "{gate}");
        assert_eq!(router.drops("filter") - dropped_before, lost, "{gate}");
        dropped_before = router.drops("filter");
        let port = router.row("ports", "name", "r1");
        assert_eq!(port["drops"]["filter"], dropped_before, "{gate}: {port:#}");
        let metric =
            format!("millrace_dropped_packets_total{{reason=\"filter\",port=\"r1\"}} {dropped_before}");
        let metrics = router.ask(&["metrics"]);
        assert!(metrics.contains(&metric), "{metric} is not among {metrics}");
        router.assert_conservation();
        router.ask(&["filter", "remove", &id]);
        router.ask(&["flow", "flush"]);
    }
    // After `clear`, counters start at zero for offloaded packets too.
    router.ask(&["clear"]);
    assert_eq!(router.drops("filter"), 0);
    router.assert_conservation();
}

#[test]
fn token_bucket_limits_offload_and_worker_together() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    assert_token_bucket_holds(&line, &router);
    let explained = router.ask(&["lookup", "src 10.1.0.2 dst 10.2.0.2 proto udp sport 7 dport 9000 in r1"]);
    assert!(explained.contains("police to 400000 bit/s"), "{explained}");
}

#[test]
fn token_bucket_holds_in_a_time_namespace() {
    let Some(_ground) = Ground::enter_alone(&["ping", "unshare"]) else { return };
    for offset in ["86400", "-3600"] {
        let line = line();
        let by = ["unshare", "--time", "--monotonic", offset];
        let router = Millrace::try_start_by(&line.r, &by, "--port r1 --port r2").unwrap();
        assert_token_bucket_holds(&line, &router);
    }
}

/// Polices a flow that moves to the offload and back, and counts the packets that arrive.
fn assert_token_bucket_holds(line: &Line, router: &Millrace) {
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let id = add(router, "police 400kbit burst 10000B", &[]);
    assert_eq!(filter(router, &id)["action"], "police 400kbit burst 10000B");
    assert_eq!(filter(router, &id)["gate"], "firewall");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 4000, 64);
    let start = Instant::now();
    flow.wait_for_arrival();
    let down = wait_until(Duration::from_secs(3), || is_offloaded(router));
    assert!(down.is_some(), "{:#}", flow_of(router));
    // The flow uses the same token bucket at both levels.
    for _ in 0..5 {
        router.ask(&["place", FLOW, "worker"]);
        flow.go_on(Duration::from_millis(150));
        router.ask(&["place", FLOW, "auto"]);
        flow.go_on(Duration::from_millis(150));
    }
    let report = flow.finish();
    let seconds = start.elapsed().as_secs_f64();
    let told = wait_until(Duration::from_secs(3), || filter(router, &id)["packets"] == report.sent);
    assert!(told.is_some(), "{report:?} {:#}", filter(router, &id));
    let counted = filter(router, &id);
    assert_eq!(counted["drops"], report.lost(), "{report:?} {counted:#}");
    assert_eq!(router.drops("policer"), report.lost(), "{report:?}");
    let bytes = counted["bytes"].as_u64().expect("bytes") / report.sent;
    let through = (report.sent - report.lost()) * bytes;
    let most = 10_000.0 + 400_000.0 / 8.0 * seconds;
    assert!((through as f64) <= most, "{through} bytes in {seconds} s, at most {most}");
    assert!((through as f64) >= most / 2.0, "{through} bytes in {seconds} s, of {most}");
    assert!(report.lost() > report.sent / 3, "more was let through than half: {report:?}");
    assert_eq!((report.reordered, report.duplicated), (0, 0), "{report:?}");
    router.assert_conservation();
    // The configuration shows the action as given, and the router accepts it again.
    assert!(router.ask(&["show", "configuration"]).contains("action = \"police 400kbit burst 10000B\""));
}
