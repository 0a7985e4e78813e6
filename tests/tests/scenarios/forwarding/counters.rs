//! Counters of routes and filters, compared with the packets that arrive at the far host.

use std::process::Stdio;
use std::time::Duration;

use millrace_testkit::{Flow, FlowReport, Ground, Line, Millrace, eventually, wait_until};
use serde_json::Value;

use crate::support::{router, to};

/// Returns the route to the second host's network, as `route list` shows it.
fn route(router: &Millrace) -> Value {
    let routes = router.json(&["route", "list", "--within", "10.2.0.0/24"]);
    let found = routes.as_array().unwrap().iter().find(|route| route["to"] == "10.2.0.0/24");
    let found = found.unwrap_or_else(|| panic!("no such route: {routes:#}")).clone();
    assert_eq!((&found["source"], &found["kind"]), (&"kernel".into(), &"forward".into()));
    found
}

/// Returns the filter with an id, as `filter list` shows it.
fn filter(router: &Millrace, id: &Value) -> Value {
    let filters = router.json(&["filter", "list"]);
    filters.as_array().unwrap().iter().find(|filter| filter["id"] == *id).unwrap().clone()
}

/// Returns the numbers of queued, sent, lost and waiting packets.
fn counted(shown: &Value) -> [Option<u64>; 4] {
    ["queued_packets", "sent_packets", "lost_packets", "waiting_packets"].map(|key| shown[key].as_u64())
}

/// Returns the numbers of queued, sent, lost and waiting packets that are expected after a flow.
fn behind(flow: &FlowReport) -> [Option<u64>; 4] {
    [flow.sent, flow.received, flow.lost(), 0].map(Some)
}

#[test]
fn packets_are_counted_before_and_behind_a_full_queue() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo", "threshold=20000B"]);
    // With `host=direct`, the filter doesn't count the kernel's own packets.
    router.ask(&["scheduler", "set", "r2", "rate=1mbit", "host=direct"]);
    let id = router.json(&["filter", "add", "proto udp dport 9000", "--action", "queue all"])["id"].clone();
    let looked = router.ask(&["lookup", "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 9000 in r1"]);
    assert!(looked.contains("port r2, node \"all\" (fifo) of the scheduler"), "{looked}");
    router.ask(&["clear"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 200);
    // A client watches the list at the same time.
    let lists = router.ask(&["route", "list", "--watch", "500ms", "--count", "2", "--json"]);
    let lists: Vec<Value> = lists.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lists.len(), 2);
    let rates = |list: &Value| {
        let to = list.as_array().unwrap().iter().find(|route| route["to"] == "10.2.0.0/24").unwrap();
        ["queued_rate", "sent_rate", "lost_rate"].map(|rate| to[rate].as_f64().unwrap())
    };
    let [queued, sent, lost] = rates(&lists[1]);
    assert!(sent > 50.0 && lost > 50.0 && queued > sent, "{queued} {sent} {lost}");
    let report = flow.finish();
    assert!(report.lost() > 100, "{report:?}");
    let filter = filter(&router, &id);
    assert_eq!(counted(&filter), behind(&report), "{filter:#}");
    assert_eq!(filter["packets"].as_u64(), Some(report.sent));
    let route = route(&router);
    assert_eq!(counted(&route), behind(&report), "{route:#}");
    // Each payload of 200 bytes has Ethernet, IPv4 and UDP headers of 42 bytes.
    assert_eq!(route["sent_bytes"].as_u64(), Some(report.received * 242), "{route:#}");
    let looked_up = router.json(&["route", "lookup", "10.2.0.2"]);
    assert_eq!(counted(&looked_up), counted(&route));
    router.assert_conservation();
}

#[test]
fn copy_counts_for_its_filter_and_a_drop_filter_queues_no_packet() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["clear"]);
    let add = |filter: &str, action: &str| {
        router.json(&["filter", "add", filter, "--action", action])["id"].clone()
    };
    let copy = add("proto udp dport 9001", "copy-to r2 via 10.2.0.2");
    let drop = add("proto udp dport 9002", "drop");
    let run = |port: &str| {
        let flow = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 500, 100);
        flow.go_on(Duration::from_millis(500));
        flow.finish()
    };
    let copied = run("9001");
    assert_eq!((copied.lost(), copied.duplicated), (0, copied.sent), "{copied:?}");
    assert_eq!(counted(&filter(&router, &copy)), behind(&copied));
    assert_eq!(counted(&route(&router)), behind(&copied));
    let dropped = run("9002");
    assert_eq!(dropped.received, 0);
    let shown = filter(&router, &drop);
    assert_eq!(counted(&shown), [0; 4].map(Some), "{shown:#}");
    assert_eq!([&shown["packets"], &shown["drops"]].map(Value::as_u64), [dropped.sent; 2].map(Some));
    router.assert_conservation();
}

#[test]
fn offloaded_packets_count_for_their_route() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    [&line.h1, &line.h2].iter().for_each(|host| drop(host.run("ethtool -K eth0 gro on")));
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router.ask(&["clear"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
    eventually("the flow is offloaded", Duration::from_secs(5), || {
        (router.row("ports", "name", "r1")["offloaded_packets"].as_u64()? > 1000).then_some(())
    });
    let report = flow.finish();
    let told = wait_until(Duration::from_secs(3), || counted(&route(&router)) == behind(&report));
    assert!(told.is_some(), "{report:?} {:#}", route(&router));
    assert_eq!(report.lost(), 0, "{report:?}");
    router.assert_conservation();
}

#[test]
fn dozens_of_monitors_watch_at_once_and_cost_no_packet() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    // There are many more routes than the command shows.
    let routes: String = (0..2000)
        .map(|number| format!("route add 10.77.{}.{}/32 via 10.2.0.2\n", number / 250, number % 250))
        .collect();
    let routes = line.write("routes", &routes).display().to_string();
    line.r.ip(&format!("-batch {routes}"));
    router.ask(&["filter", "add", "proto udp dport 9000", "--action", "port r2 via 10.2.0.2"]);
    eventually("the routes are here", Duration::from_secs(5), || {
        (router.json(&["route", "list", "--within", "10.77.0.0/16"]).as_array()?.len() == 2000).then_some(())
    });
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 100);
    flow.wait_for_arrival();
    let watch = |number: usize| {
        let noun: &[&str] = if number.is_multiple_of(2) {
            &["filter", "list"]
        } else {
            &["route", "list", "--within", "10.77.1.0/24"]
        };
        let mut client = router.client();
        client.args(noun).args(["--watch", "500ms", "--count", "3", "--json"]).stdout(Stdio::piped());
        client.spawn().unwrap()
    };
    let monitors: Vec<_> = (0..24).map(watch).collect();
    for (number, monitor) in monitors.into_iter().enumerate() {
        let ended = monitor.wait_with_output().unwrap();
        let lists: Vec<Value> = ended
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        assert_eq!((ended.status.success(), lists.len()), (true, 3), "{number}");
        let rows = lists[2].as_array().unwrap();
        if number.is_multiple_of(2) {
            assert!(rows[0]["sent_rate"].as_f64() > Some(0.0), "{rows:#?}");
        } else {
            assert_eq!(rows.len(), 250);
            assert!(rows.iter().all(|route| counted(route) == [0; 4].map(Some)), "{rows:#?}");
        }
    }
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered), (0, 0), "{report:?}");
    router.assert_conservation();
}
