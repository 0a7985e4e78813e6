//! Commands that the documentation shows for the first minutes.

use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Ground, Line, binary, eventually, transfer};
use serde_json::Value;

use crate::support::{assert_hosts_talk, assert_router_forwards, cells, iperf3, iperf3_server, router, to};

const FILTER: &str = "proto udp dport 5201";

fn assert_keys(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(!value[key].is_null(), "no {key} in {value:#}");
    }
}

#[test]
fn ports_summary_and_routes_have_the_fields_that_programs_read() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let ports = router.json(&["show", "ports"]);
    let names: Vec<_> = ports.as_array().unwrap().iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["r1", "r2"]);
    for port in ports.as_array().unwrap() {
        let keys = ["name", "device", "driver", "mode", "rx_packets", "rx_bytes", "tx_packets", "tx_bytes"];
        assert_keys(port, &keys);
        assert!(port["drops"].is_object(), "{port:#}");
        assert!(port["rx_packets"].as_u64() >= Some(2) && port["tx_packets"].as_u64() >= Some(2), "{port:#}");
        assert!(port["rx_bytes"].as_u64() >= Some(2 * 98), "{port:#}");
    }
    let keys = ["received", "created", "transmitted", "to_host", "consumed", "dropped", "held"];
    assert_keys(&router.json(&["show", "summary"]), &keys);
    let route = router.row("routes", "to", "10.2.0.0/24");
    assert_eq!((&route["kind"], &route["next_hops"][0]["port"]), (&"forward".into(), &"r2".into()));
    router.assert_conservation();
}

#[test]
fn first_commands_of_the_readme_work() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    std::fs::create_dir(line.file("out")).unwrap();
    std::os::unix::fs::symlink(binary(), line.file("out/millrace")).unwrap();
    // No pause between the commands: clients wait for a starting router.
    let script = "set -e
        ip netns exec ROUTER out/millrace run --port r1 --port r2 --on-death kernel --socket r.sock 2>log &
        router=$!
        trap 'kill $router' EXIT
        out/millrace --socket r.sock show ports --json
        out/millrace --socket r.sock show summary --json
        out/millrace --socket r.sock show routes --json
        out/millrace --socket r.sock instance create statistics stats1
        out/millrace --socket r.sock bind stats1 --gate monitor --filter 'proto udp dport 5201'
        out/millrace --socket r.sock control stats1 read --json
        out/millrace --socket r.sock unbind stats1 --gate monitor --filter 'proto udp dport 5201'
        trap - EXIT
        kill $router
        wait $router"
        .replace("ROUTER", line.r.name());
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "30", "sh", "-c", &script]).current_dir(line.directory.path());
    let output = command.output().unwrap();
    let log = std::fs::read_to_string(line.file("log")).unwrap_or_default();
    assert!(output.status.success(), "{output:?}\n{log}");
    assert!(!line.file("r.sock").exists());
}

#[test]
fn hosts_with_default_offloads_talk_through_the_router() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    assert_hosts_talk(&line);
    assert_router_forwards(&line, &router);
    transfer(&line.h1, &line.h2, to("[fd00:2::2]:7001"), 16 << 20);
    transfer(&line.h2, &line.h1, to("10.1.0.2:7001"), 16 << 20);
    router.assert_conservation();
}

#[test]
fn a_plugin_counts_one_flow_from_bind_to_unbind_while_traffic_runs() {
    let Some(_ground) = Ground::enter_alone(&["ping", "iperf3"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let _server = iperf3_server(&line, &line.h2);
    router.ask(&["instance", "create", "statistics", "stats1"]);
    router.ask(&["bind", "stats1", "--gate", "monitor", "--filter", FILTER]);
    let read = || {
        let counts = router.json(&["control", "stats1", "read"]);
        counts["packets"]["udp"].as_u64().unwrap_or(0)
    };

    let report = iperf3(&line.h1, "-c 10.2.0.2 -u -b 4M -l 1000 -t 1");
    let sent = report["end"]["sum"]["packets"].as_u64().unwrap();
    // iperf3 opens its stream with a datagram of its own.
    let counted = eventually("the last packet is counted", Duration::from_secs(1), || {
        Some(read()).filter(|counted| *counted > sent)
    });
    assert_eq!(counted, sent + 1, "counted, and sent by iperf3");
    assert_eq!(report["end"]["sum"]["lost_packets"], 0);

    // The filter doesn't count other flows.
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    iperf3(&line.h1, "-c 10.2.0.2 -n 1M");
    assert_eq!(read(), counted);

    router.ask(&["unbind", "stats1", "--gate", "monitor", "--filter", FILTER]);
    let report = iperf3(&line.h1, "-c 10.2.0.2 -u -b 4M -l 1000 -t 1");
    assert_eq!(report["end"]["sum"]["lost_packets"], 0);
    assert_eq!(read(), counted, "an instance that is not bound counts nothing");
    router.assert_conservation();
}

#[test]
fn tcp_runs_at_speed_in_both_directions_beside_a_bound_plugin() {
    let Some(_ground) = Ground::enter_alone(&["iperf3"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let _server = iperf3_server(&line, &line.h2);
    router.ask(&["instance", "create", "statistics", "all"]);
    router.ask(&["bind", "all", "--gate", "monitor", "--filter", ""]);
    for more in ["", "-R", "-6"] {
        let to = if more == "-6" { "fd00:2::2" } else { "10.2.0.2" };
        let report = iperf3(&line.h1, &format!("-c {to} -t 1 {more}"));
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
        // A wrong checksum or a lost GSO packet would cut the rate to a few kbit/s.
        assert!(rate > 100e6, "{more}: {rate} bit/s");
    }
    let counts = router.json(&["control", "all", "read"]);
    assert!(counts["ipv4"]["packets"]["tcp"].as_u64() > Some(1000), "{counts:#}");
    assert!(counts["ipv6"]["packets"]["tcp"].as_u64() > Some(1000), "{counts:#}");
    router.assert_conservation();
}

#[test]
fn port_filter_drops_its_ports_and_passes_others() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "port-filter", "pf", "ports=9000-9010", "protocol=udp"]);
    router.ask(&["bind", "pf", "--gate", "firewall", "--filter", "in r1"]);
    let dropped = millrace_testkit::Flow::start(&line.h1, &line.h2, to("10.2.0.2:9005"), 500, 64);
    let passing = millrace_testkit::Flow::start(&line.h1, &line.h2, to("10.2.0.2:9011"), 500, 64);
    passing.go_on(Duration::from_millis(400));
    let (dropped, passing) = (dropped.finish(), passing.finish());
    assert_eq!(dropped.received, 0);
    assert_eq!(passing.lost(), 0, "{passing:?}");
    assert_eq!(router.drops("plugin"), dropped.sent);
    router.ask(&["control", "pf", "set", "ports=9011"]);
    let passing = millrace_testkit::Flow::start(&line.h1, &line.h2, to("10.2.0.2:9005"), 500, 64);
    passing.go_on(Duration::from_millis(200));
    assert_eq!(passing.finish().lost(), 0);
    router.assert_conservation();
}

#[test]
fn lookup_and_clear_answer() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let neighbour = router.row("neighbours", "address", "10.2.0.2");
    assert_eq!(neighbour["port"], "r2");
    assert!(neighbour["mac"].is_string(), "{neighbour:#}");
    let status = router.json(&["show", "status"]);
    assert_eq!(status["pid"], router.pid());

    let packet = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in r1";
    let answer = router.json(&["lookup", packet]);
    assert!(answer["verdict"].as_str().unwrap().contains("r2"), "{answer:#}");
    let answer = router.json(&["lookup", "src 10.1.0.2 dst 10.1.0.1 proto udp in r1"]);
    assert!(!answer["verdict"].as_str().unwrap().contains("r2"), "{answer:#}");

    router.ask(&["clear"]);
    assert!(router.summary("received") < 2, "{:#}", router.json(&["show", "summary"]));
    line.h1.run("ping -c 3 -i 0.1 10.2.0.2");
    assert!(router.summary("transmitted") >= 6);
    router.assert_conservation();
}

/// Nouns of `show` in the singular, each with the name of an existing object. The name is empty if there is
/// only one object.
const NOUNS: [(&str, &str); 30] = [
    ("port", "r1"),
    ("route", "10.2.0.0/24"),
    ("neighbour", "10.2.0.2"),
    ("instance", "stats1"),
    ("gate", "monitor"),
    ("plugin", "statistics"),
    ("filter", "ID"),
    ("binding", "ID"),
    ("queue", "r2"),
    ("scheduler", "r2"),
    ("flow", "proto icmp"),
    ("token", "ci"),
    ("place", "proto udp dport 5201"),
    ("revision", "REVISION"),
    ("control-plane", "icmp"),
    ("admission", "workers"),
    ("allowance", "students"),
    ("event", "1"),
    ("audit", "root"),
    ("rate", "r1"),
    ("interface", "/ports"),
    ("drop", "ttl_expired"),
    ("quarantine", ""),
    ("lab", ""),
    ("hardware", ""),
    ("summary", ""),
    ("status", ""),
    ("router", ""),
    ("configuration", ""),
    ("openapi", ""),
];

/// Whether the output of `show NOUN NAME` is about that name. Compares whole cells of the column with the
/// name.
fn is_of(noun: &str, name: &str, shown: &str) -> bool {
    let mut rows = shown.lines().map(cells);
    match noun {
        // An allowance has a row for each user and component.
        "allowance" => {
            let names: Vec<_> = rows.skip(1).map(|row| row.first().copied()).collect();
            !names.is_empty() && names.iter().all(|one| *one == Some(name))
        }
        "scheduler" => shown.starts_with(&format!("port {name} ")),
        "flow" => rows.any(|row| row == ["protocol", name.trim_start_matches("proto ")]),
        // For events, the name is the number of lines to show.
        "event" => rows.count().to_string() == name,
        "audit" => rows.all(|row| row.get(1) == Some(&name)),
        "drop" => rows.skip(1).all(|row| row.get(2) == Some(&name)),
        // The first row must have the name; lines after the table apply to all flows.
        "place" => rows.nth(1).is_some_and(|row| row.first() == Some(&name)),
        _ => rows.skip(1).map(|row| row.first().copied()).eq([Some(name)]),
    }
}

#[test]
fn a_name_that_is_part_of_a_cell_or_stands_in_another_column_is_not_shown() {
    let table = "id  priority  match\n 1         0  dport 25\n";
    assert!(is_of("filter", "1", table));
    for other in ["0", "2", "25", "dport 25"] {
        assert!(!is_of("filter", other, table), "{other}");
    }
    assert!(!is_of("filter", "1", &format!("{table} 2         0  dport 26\n")), "two rows");
    assert!(!is_of("queue", "r2", "port  queue\nr21   r2\n"));
    let rows = "allowance  user  component\na          u     level\na          u     cpu\n";
    assert!(is_of("allowance", "a", rows) && !is_of("allowance", "a", "allowance  user\n"));
    assert!(!is_of("allowance", "a", &format!("{rows}b          u     cpu\n")));
    assert!(!is_of("drop", "ttl", "packets  per second  reason\n 1  0.3  ttl_expired\n"));
    assert!(!is_of("event", "1", "1  2026  port-up\n2  2026  port-down\n"));
}

#[test]
fn every_noun_of_show_is_shown_whole_and_by_name() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    line.h1.succeeds("ping -c 1 -t 1 -W 1 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "stats1"]);
    router.ask(&["bind", "stats1", "--gate", "monitor", "--filter", "proto icmp"]);
    router.ask(&["filter", "add", "dport 25", "--action", "drop"]);
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo"]);
    router.ask(&["token", "create", "ci", "--role", "viewer"]);
    for name in ["students", "teachers"] {
        router.ask(&["allowance", "add", name, "user=[\"alice\"]", "cpu=5%"]);
    }
    router.ask(&["place", "proto udp dport 5201", "worker"]);
    router.ask(&["save", &line.file("saved.toml").display().to_string()]);
    let saved = std::fs::read_to_string(line.file("saved.toml")).unwrap();
    let [filter, revision] = [("filter", "id"), ("revision", "number")]
        .map(|(noun, key)| router.json(&["show", noun])[0][key].to_string());
    for (noun, name) in NOUNS {
        router.ask(&["show", noun]);
        router.json(&["show", noun]);
        let name = name.replace("ID", &filter).replace("REVISION", &revision);
        let refused = router.try_ask(&["show", noun, "nosuch"]);
        assert!(matches!(refused.code, Some(1 | 2)), "show {noun} nosuch: {refused:?}");
        assert!(refused.stderr.contains("nosuch") && !refused.stderr.contains("Usage"), "{refused:?}");
        if name.is_empty() {
            continue;
        }
        let shown = router.ask(&["show", noun, &name]);
        let is_shown = if noun == "revision" { shown == saved } else { is_of(noun, &name, &shown) };
        assert!(is_shown, "show {noun} {name}:\n{shown}");
        router.json(&["show", noun, &name]);
    }
    let names =
        |value: Value| value.as_array().unwrap().iter().map(|row| row["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(router.json(&["show", "port", "r1"])), ["r1"]);
    assert_eq!(router.json(&["show", "events", "1"])["events"].as_array().map(Vec::len), Some(1));
    assert!(router.ask(&["show", "history", &revision]).contains("device = \"r1\""));
    router
        .try_ask(&["show", "filter", "777"])
        .assert_refused(1, &[&format!("filter \"777\": no such filter; filters here: {filter}, ")]);
    router.try_ask(&["show", "port", "r3"]).assert_refused(1, &["port \"r3\": no such port"]);
}

#[test]
fn wrong_requests_are_refused_by_a_running_router_in_one_line() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "statistics", "stats1"]);
    let refused = |arguments: &[&str], words: &[&str]| router.try_ask(arguments).assert_refused(1, words);
    refused(&["instance", "create", "statistic", "s2"], &["statistic", "statistics"]);
    refused(&["instance", "create", "statistics", "stats1"], &["stats1"]);
    refused(&["instance", "create", "port-filter", "p", "port=80"], &["port", "ports"]);
    refused(&["bind", "stats2", "--gate", "monitor", "--filter", ""], &["stats2", "stats1"]);
    refused(&["bind", "stats1", "--gate", "monitr", "--filter", ""], &["monitr", "monitor"]);
    refused(&["bind", "stats1", "--gate", "monitor", "--filter", "proto upd"], &["upd"]);
    refused(&["bind", "stats1", "--gate", "monitor", "--filter", "in r3"], &["r3"]);
    refused(&["unbind", "stats1", "--gate", "monitor", "--filter", "proto udp"], &["stats1"]);
    refused(&["control", "stats1", "raed"], &["raed", "read"]);
    refused(&["lookup", "dst 10.2.0.2"], &["src"]);
    refused(&["capture", "r9", "-w", "-"], &["r9"]);
    let wrong = router.try_ask(&["show", "prots"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("ports"), "{wrong:?}");
    let instance = router.row("instances", "name", "stats1");
    assert_eq!(instance["bindings"].as_array().map(Vec::len), Some(0), "nothing has changed: {instance:#}");
}
