//! Moves of services between levels while packets pass.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_for, build_source, read};
use crate::plugins::shared_objects::trusting;
use crate::support::{router, to};

/// Number of moves of each instance in each direction.
const MOVES: usize = 3;

#[test]
fn moved_services_lose_no_packet_and_keep_their_state() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    let line = Line::new();
    let object = build_for(&line, "native", "hello", |source| source);
    let router = trusting(&line, "");
    line.h1.run("ping -c 1 10.2.0.2");
    let load = ["--rate", "100000", "--size", "100B", "--packet", "500"];
    let level = |name: &str| router.row("instances", "name", name)["level"].clone();
    router.ask(&[&["instance", "create", "statistics", "s"][..], &load].concat());
    router.ask(&["plugin", "load", object.to_str().unwrap()]);
    router.ask(&[&["instance", "create", "hello", "c"][..], &load].concat());
    assert_eq!((level("s"), level("c")), ("offload".into(), "host".into()));
    for name in ["s", "c"] {
        let tried = router.json(&["instance", "move", name, "--level", "worker", "--dry-run"]);
        assert_eq!(tried["levels"][name], "worker", "{tried}");
        assert!(tried["components"].to_string().contains(&format!("instance {name}")), "{tried}");
    }
    assert_eq!((level("s"), level("c")), ("offload".into(), "host".into()), "a trial moves nothing");
    for (name, gate) in [("s", "monitor"), ("c", "process")] {
        router.ask(&["bind", name, "--gate", gate, "--filter", "proto udp dport 9000"]);
    }
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    flow.wait_for_arrival();
    for _ in 0..MOVES {
        for (name, from, to) in [("s", "offload", "worker"), ("c", "host", "worker")] {
            let moved = router.ask(&["instance", "move", name, "--level", to]);
            assert_eq!(moved.trim(), format!("instance {name} moved, at level {to}"));
            flow.go_on(Duration::from_millis(60));
            router.ask(&["instance", "move", name, "--level", from]);
            flow.go_on(Duration::from_millis(60));
            assert_eq!(level(name), from);
        }
    }
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    assert_eq!(read(&router, "c", "packets"), report.sent);
    assert_eq!(router.json(&["control", "s", "read"])["total"]["packets"], report.sent);
    let much = ["instance", "move", "s", "--level", "worker", "--rate", "4000000000"];
    for more in [&[] as &[&str], &["--dry-run"]] {
        let to_host = [&["instance", "move", "s", "--level", "host"][..], more].concat();
        router.try_ask(&to_host).assert_refused(1, &["built in"]);
        router.try_ask(&[&much[..], more].concat()).assert_refused(1, &["lacks", "of worker", "would fit"]);
    }
    let claims = router.json(&["admission", "show"]).to_string();
    assert!(claims.contains("instance s") && claims.contains("instance c"), "{claims}");
    router.assert_conservation();
}

#[test]
fn service_whose_load_grows_moves_to_the_offload_and_loses_no_packet() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = Millrace::start(&line.r, "--port r1 --port r2");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "s", "--rate", "10", "--packet", "100"]);
    let instance = || router.row("instances", "name", "s");
    assert_eq!(instance()["level"], "worker", "ten packets a second are next to nothing");
    router.ask(&["bind", "s", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    // The principal of the service pays, so the measured cycles count. They must exceed the admitted ones by 0.1 % of a
    // processor.
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 8000, 64);
    flow.wait_for_arrival();
    let has_moved = || {
        flow.go_on(Duration::from_millis(250));
        instance()["level"] == "offload"
    };
    assert!((0..160).any(|_| has_moved()), "{}", instance());
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    assert_eq!(instance()["service"]["rate"], 10, "its declared load stays");
    let events = router.json(&["show", "events"]).to_string();
    assert!(events.contains("service-moved"), "{events}");
    router.assert_conservation();
}

#[test]
fn instances_leave_a_level_that_a_changed_allowance_excludes_and_lose_no_packet() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let owned = |name: &str, service: &str| {
        format!("[[instance]]\nplugin = \"statistics\"\nname = \"{name}\"\nowner = \"alice\"\n{service}")
    };
    let text = format!(
        "[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n{}{}",
        owned("s", "[instance.service]\nrate = 100000\npacket = 500\n"),
        owned("plain", "")
    );
    let config = line.write("router.toml", &text);
    let router = Millrace::start(&line.r, &format!("--config {}", config.display()));
    line.h1.run("ping -c 1 10.2.0.2");
    let level = |name: &str| router.row("instances", "name", name)["level"].clone();
    let flows = [("s", 9000), ("plain", 9001)].map(|(name, port)| {
        assert_eq!(level(name), "offload");
        let filter = format!("proto udp dport {port}");
        router.ask(&["bind", name, "--gate", "monitor", "--filter", &filter]);
        Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 500, 64)
    });
    flows.iter().for_each(Flow::wait_for_arrival);
    router.ask(&["allowance", "add", "students", "user=[\"alice\"]"]);
    let dry = ["allowance", "set", "students", "level=[\"worker\"]", "--dry-run"];
    let tried = router.json(&dry);
    assert_eq!(tried["levels"]["s"], "worker", "{tried}");
    assert_eq!(tried["allowance"]["level"][0], "worker", "{tried}");
    assert!(router.ask(&dry).contains("instance s would be at level worker"));
    assert_eq!(level("s"), "offload", "a trial moves nothing");
    let events = router.json(&["show", "events"]).to_string();
    assert!(!events.contains("service-moved"), "{events}");
    for permitted in ["worker", "offload", "worker"] {
        flows.iter().for_each(|flow| flow.go_on(Duration::from_millis(60)));
        router.ask(&["allowance", "set", "students", &format!("level=[\"{permitted}\"]")]);
        assert_eq!((level("s"), level("plain")), (permitted.into(), permitted.into()));
    }
    router.try_ask(&["place", "instance plain", "offload"]).assert_refused(1, &["allowance", "excludes"]);
    let reports = flows.map(Flow::finish);
    for report in &reports {
        assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    }
    assert_eq!(router.json(&["control", "s", "read"])["total"]["packets"], reports[0].sent);
    let events = router.json(&["show", "events"]).to_string();
    assert!(events.contains("because an allowance has changed"), "{events}");
    router.assert_conservation();
}

#[test]
fn service_pinned_to_a_worker_gets_the_packets_of_all_workers() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = Millrace::start(&line.r, "--port r1 --port r2 --workers 2");
    line.h1.run("ping -c 1 10.2.0.2");
    let pin = |worker: &str| router.ask(&["instance", "move", "s", "--worker", worker]);
    router.ask(&["instance", "create", "statistics", "s", "--worker", "1"]);
    router.ask(&["bind", "s", "--gate", "monitor", "--filter", "proto udp dport 9000-9003"]);
    let flows: Vec<Flow> = (9000..9004)
        .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 200, 64))
        .collect();
    flows.iter().for_each(Flow::wait_for_arrival);
    for worker in ["0", "1", "auto", "1"] {
        pin(worker);
        flows.iter().for_each(|flow| flow.go_on(Duration::from_millis(30)));
    }
    router.try_ask(&["instance", "move", "s", "--worker", "2"]).assert_refused(1, &["2 workers"]);
    router.try_ask(&["instance", "move", "s", "--level", "offload"]).assert_refused(1, &["excludes"]);
    let reports: Vec<_> = flows.into_iter().map(Flow::finish).collect();
    assert!(reports.iter().all(|report| (report.lost(), report.duplicated) == (0, 0)), "{reports:?}");
    let sent: u64 = reports.iter().map(|report| report.sent).sum();
    assert_eq!(router.json(&["control", "s", "read"])["total"]["packets"], sent);
    assert_eq!(router.row("instances", "name", "s")["service"]["worker"], 1);
    router.assert_conservation();
}

#[test]
fn version_whose_greater_costs_fit_nowhere_is_refused_and_the_earlier_one_keeps_running() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let build = |version: &str, cycles: u64| {
        let keys = format!("{COUNTER_KEYS},\"cost\":{{\"packet\":{cycles}}}");
        build_source(&line, "counter", version, &keys, COUNTER)
    };
    let versions = [("1.0.0", 100), ("1.1.0", 1000), ("1.2.0", 1_000_000)];
    let [first, greater, most] = versions.map(|(version, cycles)| build(version, cycles));
    let router = router(&line);
    router.ask(&["plugin", "load", &first]);
    router.ask(&["instance", "create", "counter", "c", "--rate", "100000"]);
    let claimed = || {
        let shown = router.json(&["admission", "show"]);
        let components = shown["components"].as_array().unwrap();
        let workers = components.iter().find(|one| one["component"] == "workers").unwrap();
        let claims = workers["claims"].as_array().unwrap();
        let own = claims.iter().find(|claim| claim["by"] == "instance c");
        own.unwrap_or_else(|| panic!("{shown:#}"))["amount"].as_f64().unwrap()
    };
    let runs = || router.row("plugins", "name", "counter")["version"].clone();
    let before = claimed();
    router.try_ask(&["plugin", "upgrade", "counter", &most]).assert_refused(
        1,
        &["plugin counter: version 1.2.0 declares other costs", "\"c\"", "level worker: lacks"],
    );
    assert_eq!((runs(), claimed()), ("1.0.0".into(), before));
    router.ask(&["plugin", "upgrade", "counter", &greater]);
    let after = claimed();
    assert_eq!(runs(), "1.1.0");
    assert!(after > 5.0 * before, "{after} {before}");
    // The earlier version needs less, so a rollback is admitted.
    router.ask(&["plugin", "rollback", "counter"]);
    assert_eq!((runs(), claimed()), ("1.0.0".into(), before));
}
