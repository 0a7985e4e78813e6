//! The committed dashboard queries only metrics that a running router has.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_testkit::{Ground, Line, repository, wait_until};
use serde_json::Value;

/// Counters that exist once an instance has failed or a queue has dropped a packet.
const LATER: [&str; 2] = ["millrace_instance_faults_total", "millrace_queue_dropped_packets_total"];

/// Collects the queries of a dashboard, at any depth.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(keys) => {
            if let Some(Value::String(query)) = keys.get("expr") {
                found.push(query.clone());
            }
            keys.values().for_each(|value| queries(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("millrace_")).map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_dashboard_is_there_in_a_router_with_traffic() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    router.ask(&["instance", "create", "port-filter", "door", "ports=9000"]);
    router.ask(&["bind", "door", "--gate", "firewall", "--filter", "proto icmp src 10.1.0.2"]);
    router.ask(&["scheduler", "add", "r2", "shared", "--kind", "fq-codel"]);
    router.ask(&["scheduler", "set", "r2", "rate=100mbit"]);
    line.h1.run("ping -c 3 -i 0.1 10.2.0.2");
    line.h1.run("sh -c 'ping -c 1 -W 1 10.99.0.1; true'");
    let text = std::fs::read_to_string(repository().join("examples/grafana/millrace.json")).unwrap();
    let mut asked = Vec::new();
    queries(&serde_json::from_str(&text).expect("JSON"), &mut asked);
    assert!(asked.len() > 10, "{asked:?}");
    let missing = || {
        let page = router.ask(&["metrics"]);
        // Only samples count: a metric with a description alone has no value.
        let samples: String =
            page.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let mut there = names(&samples);
        // These counters have no value before a failure.
        for counter in LATER {
            assert!(
                page.contains(&format!("# HELP {} ", counter.trim_end_matches("_total"))),
                "{counter}: {page}"
            );
            there.insert(counter.to_owned());
        }
        let missing: Vec<String> = asked
            .iter()
            .filter(|query| !names(query).iter().all(|name| there.contains(name)))
            .cloned()
            .collect();
        missing
    };
    let all = wait_until(Duration::from_secs(5), || missing().is_empty());
    assert!(all.is_some(), "without a value: {:#?}", missing());
}
