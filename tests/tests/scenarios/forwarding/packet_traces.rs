//! Traces of packets, and the log of last drops.

use std::time::Duration;

use millrace_testkit::{Background, Flow, Ground, Line, Millrace, wait_until};
use serde_json::Value;

use crate::support::{router, to};

/// Runs `trace` with these arguments during pings. Returns its output.
pub fn traced(line: &Line, router: &Millrace, arguments: &[&str]) -> String {
    let ping = Background::start(&line.h1, "ping", &["-i", "0.1", "10.2.0.2"], line.file("ping.log"));
    let out = router.ask(&[&["trace"], arguments].concat());
    drop(ping);
    out
}

/// Returns the stages of a traced packet, in order.
fn stages(packet: &Value) -> Vec<&str> {
    packet["steps"].as_array().unwrap().iter().map(|step| step["stage"].as_str().unwrap()).collect()
}

#[test]
fn trace_shows_each_stage_with_decision_and_cycles() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "stats"]);
    router.ask(&["bind", "stats", "--gate", "monitor", "--filter", "proto icmp"]);
    let out = traced(&line, &router, &["--filter", "proto icmp in r1", "--count", "2", "--json"]);
    let packets: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(packets.len(), 2, "{out}");
    let first = &packets[0];
    assert_eq!((&first["port"], &first["level"]), (&"r1".into(), &"worker 0".into()), "{first:#}");
    assert_eq!(first["verdict"], "sent out of port r2", "{first:#}");
    let expected = ["receive", "parse", "classify", "gate", "route", "queue", "rewrite", "transmit"];
    assert_eq!(stages(first), expected, "{first:#}");
    let step = |stage: &str| {
        let steps = first["steps"].as_array().unwrap();
        steps.iter().find(|step| step["stage"] == stage).unwrap_or_else(|| panic!("{stage}: {first:#}"))
    };
    assert_eq!((&step("gate")["gate"], &step("gate")["instance"]), (&"monitor".into(), &"stats".into()));
    assert_eq!((&step("gate")["filter"], &step("gate")["verdict"]), (&"proto icmp".into(), &"pass".into()));
    assert_eq!((&step("route")["port"], &step("route")["next_hop"]), (&"r2".into(), &"10.2.0.2".into()));
    assert_eq!(step("route")["prefix"], "10.2.0.0/24");
    assert!(step("rewrite")["text"].as_str().unwrap().contains("ttl 64 to 63"), "{first:#}");
    #[cfg(target_arch = "x86_64")]
    for stage in ["parse", "classify", "gate", "route", "queue"] {
        assert!(step(stage)["cycles"].as_u64().unwrap() > 0, "{stage}: {first:#}");
    }
    // The flow table knows the next packet of the flow.
    let known = packets[1]["steps"].as_array().unwrap().iter().find(|step| step["stage"] == "classify");
    assert_eq!(known.unwrap()["verdict"], "hit", "{:#}", packets[1]);
    let text = traced(&line, &router, &["--filter", "proto icmp in r1", "--count", "1"]);
    assert!(text.starts_with("Packet 1  "), "{text}");
    assert!(text.contains("gate monitor, filter "), "{text}");
    router.assert_conservation();
}

#[test]
fn trace_of_a_dropped_packet_shows_place_and_reason_also_in_a_file() {
    let Some(_ground) = Ground::enter(&["ping", "tshark"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["filter", "add", "proto icmp dst 10.2.0.2", "--action", "drop", "--gate", "firewall"]);
    let file = line.file("trace.pcapng").display().to_string();
    let out = traced(&line, &router, &["--filter", "proto icmp in r1", "--count", "1", "-w", &file]);
    assert_eq!(out, "");
    let read =
        line.h1.run(&format!("tshark -n -r {file} -T fields -e frame.interface_name -e frame.comment"));
    assert!(read.starts_with("r1"), "{read}");
    for words in ["receive: port r1", "gate firewall, filter", "dropped: filter"] {
        assert!(read.contains(words), "{words}: {read}");
    }
    let refused = router.try_ask(&["trace", "--filter", "proto nonsense", "--count", "1"]);
    refused.assert_refused(1, &["filter", "nonsense"]);
    let refused = router.try_ask(&["trace", "--count", "5000"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("4000"), "{refused:?}");
    router.assert_conservation();
}

#[test]
fn traced_flows_leave_the_offload_and_return() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    [&line.h1, &line.h2].iter().for_each(|host| drop(host.run("ethtool -K eth0 gro on")));
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
    flow.wait_for_arrival();
    let offloaded = || router.row("ports", "name", "r1")["offloaded_packets"].as_u64().unwrap();
    let goes_down = || {
        wait_until(Duration::from_secs(5), || {
            let before = offloaded();
            std::thread::sleep(Duration::from_millis(100));
            offloaded() > before + 100
        })
    };
    assert!(goes_down().is_some(), "{:#}", router.json(&["show", "ports"]));
    let out = router.ask(&["trace", "--filter", "proto udp dport 9000", "--count", "20", "--json"]);
    let packets: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(packets.len(), 20, "{out}");
    assert!(packets.iter().all(|packet| packet["verdict"] == "sent out of port r2"), "{out}");
    assert!(goes_down().is_some(), "{:#}", router.json(&["show", "ports"]));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    router.assert_conservation();
}

#[test]
fn last_drops_are_listed_with_the_dropping_filter_followed_and_written_to_a_file() {
    let Some(_ground) = Ground::enter(&["ping", "tshark"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let added = router.json(&["filter", "add", "proto icmp dst 10.2.0.2", "--action", "drop"]);
    line.h1.run("sh -c 'ping -c 3 -i 0.1 -W 1 10.2.0.2; ping -c 1 -W 1 10.99.0.1; true'");
    let seen = router.json(&["drops"]);
    let packets = seen["packets"].as_array().unwrap();
    let by_filter: Vec<_> = packets.iter().filter(|packet| packet["reason"] == "filter").collect();
    assert_eq!(by_filter.len(), 3, "{seen:#}");
    assert_eq!((&by_filter[0]["binding"], &by_filter[0]["port"]), (&added["id"], &"r1".into()), "{seen:#}");
    assert!(by_filter[0]["summary"].as_str().unwrap().starts_with("10.1.0.2 to 10.2.0.2, icmp"), "{seen:#}");
    let no_route = router.json(&["drops", "--reason", "no_route"]);
    assert_eq!(no_route["counts"][0]["packets"], 1, "{no_route:#}");
    assert_eq!(no_route["packets"].as_array().map(Vec::len), Some(1), "{no_route:#}");
    assert!(router.ask(&["drops"]).contains("no_route  1 packet ("));
    router.try_ask(&["drops", "--reason", "filte"]).assert_refused(1, &["filte", "filter"]);
    let file = line.file("drops.pcapng").display().to_string();
    router.ask(&["drops", "-w", &file]);
    let read =
        line.h1.run(&format!("tshark -n -r {file} -T fields -e frame.interface_name -e frame.comment"));
    assert_eq!(read.matches("dropped: filter, by filter ").count(), 3, "{read}");

    let mut command = router.client();
    command.args(["drops", "--follow", "--reason", "filter", "--json"]);
    let log = line.file("follow.log");
    command.stdout(std::fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let lines = || std::fs::read_to_string(&log).unwrap().lines().count();
    assert!(wait_until(Duration::from_secs(5), || lines() == 3).is_some(), "what there is comes first");
    line.h1.run("sh -c 'ping -c 2 -i 0.1 -W 1 10.2.0.2; true'");
    assert!(wait_until(Duration::from_secs(5), || lines() == 5).is_some(), "{}", lines());
    child.kill().unwrap();
    child.wait().unwrap();
    router.assert_conservation();
}
