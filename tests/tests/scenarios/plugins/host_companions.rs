//! Plugins with a host companion on live traffic: workers send requests, and the companion answers. A failing
//! companion harms no other flow.

use std::fs;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};
use serde_json::Value;

use crate::plugins::files::build;
use crate::support::{assert_undisturbed, router, to};

const FAST: &str = include_str!("../../../../examples/plugins/gatekeeper-c/gatekeeper.c");
/// Source of the host companion.
pub const COMPANION: &str = include_str!("../../../../examples/plugins/gatekeeper-slow-c/gatekeeper_slow.c");
const PATIENCE: Duration = Duration::from_secs(10);

/// Builds a plugin and its host companion into one folder. Returns the plugin's file name.
pub fn build_with_companion(line: &Line, name: &str, companion: &str) -> String {
    let fast = build(line, name, |_| FAST.to_owned());
    let built = build(line, &format!("{name}-slow"), |_| companion.to_owned());
    fs::copy(built, fast.with_file_name("gatekeeper-slow.wasm")).unwrap();
    fast.display().to_string()
}

fn host_companion(router: &Millrace) -> Value {
    router.row("instances", "name", "g")["host_companion"].clone()
}

#[test]
fn instance_asks_its_host_companion_and_follows_the_answer() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    for workers in [1, 2] {
        ask_and_do(workers);
    }
}

fn ask_and_do(workers: u64) {
    let line = Line::new();
    let module = build_with_companion(&line, "gatekeeper", COMPANION);
    let router = Millrace::start(&line.r, &format!("--port r1 --port r2 --workers {workers}"));
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &module]);
    router.ask(&["instance", "create", "gatekeeper", "g"]);
    router.ask(&["bind", "g", "--gate", "firewall", "--filter", "proto udp dport 9000-9009"]);
    assert_eq!(
        (&host_companion(&router)["plugin"], &host_companion(&router)["health"]),
        (&"gatekeeper-slow".into(), &"well".into())
    );
    let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9100"), 1000, 64);
    let allowed = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    allowed.wait_for_arrival();
    let allowed = allowed.finish();
    assert!(allowed.received > 0 && allowed.lost() > 0, "{allowed:?}");
    let again = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    again.wait_for_arrival();
    let again = again.finish();
    assert_eq!((again.lost(), again.reordered), (0, 0), "{again:?}");
    let denied = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9007"), 500, 64);
    eventually("a filter is added", PATIENCE, || {
        router.json(&["filter", "list"]).to_string().contains("dport 9007").then_some(())
    });
    assert_eq!(denied.finish().received, 0);
    let companion = host_companion(&router);
    assert_eq!(
        (&companion["up"]["sent"], &companion["up"]["heard"], &companion["up"]["lost"]),
        (&2.into(), &2.into(), &0.into()),
        "{companion}"
    );
    assert_eq!(
        (&companion["down"]["sent"], &companion["down"]["heard"]),
        (&2.into(), &(2 * workers).into()),
        "{companion}"
    );
    // Each worker's instance receives the answers. The host companion took longer than a slice, so its calls
    // were suspended.
    assert!(companion["suspensions"].as_u64().unwrap() > 0, "{companion}");
    let map = router.json(&["instance", "map", "g", "ports"]);
    assert_eq!(map["entries"], 2 * workers, "{map}");
    // The host companion also answers operators, to a message that the plugin at the workers doesn't have.
    assert_eq!(
        router.json(&["control", "g", "read", "--companion"]),
        serde_json::json!({"asked": 2, "denied": 1})
    );
    router
        .try_ask(&["control", "g", "reed", "--companion"])
        .assert_refused(1, &["gatekeeper-slow", "reed", "read"]);
    router.try_ask(&["control", "g", "read"]).assert_refused(1, &["read"]);
    assert_undisturbed(&bystander.finish(), "beside a plugin and its host companion");
    router.ask(&["instance", "free", "g"]);
    router.ask(&["plugin", "unload", "gatekeeper"]);
    router.assert_conservation();
}

#[test]
fn a_host_companion_that_loops_or_traps_is_contained_and_can_be_replaced() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let loop_text = "for (volatile uint32_t round = 0; round < 10000000; round++)\n        ;";
    let loops = build_with_companion(
        &line,
        "loops",
        &COMPANION.replace(loop_text, "for (volatile int forever = 1; forever;)\n        ;"),
    );
    let traps = build_with_companion(&line, "traps", &COMPANION.replace(loop_text, "__builtin_trap();"));
    let works = build_with_companion(&line, "works", COMPANION);
    let strange = build_with_companion(
        &line,
        "strange",
        &COMPANION.replace("\\\"log\\\"", "\\\"log\\\",\\\"packet-make\\\""),
    );
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router
        .try_ask(&["plugin", "load", &strange])
        .assert_refused(1, &["gatekeeper-slow.wasm", "packet-make", "timers, log"]);
    router.ask(&["plugin", "load", &loops]);
    router.ask(&["instance", "create", "gatekeeper", "g"]);
    router.ask(&["bind", "g", "--gate", "firewall", "--filter", "proto udp dport 9000-9009"]);
    let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9100"), 1000, 64);
    for (kind, file, port) in [("overrun", None, 9001), ("unreachable", Some(&traps), 9002)] {
        if let Some(file) = file {
            router.ask(&["plugin", "upgrade", "gatekeeper", file]);
        }
        let victim = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 200, 64);
        eventually("the host companion fails", PATIENCE, || {
            (host_companion(&router)["faults"][kind].as_u64() >= Some(1)).then_some(())
        });
        assert_eq!(victim.finish().received, 0);
    }
    assert_eq!(router.row("instances", "name", "g")["health"], "well");
    assert!(router.log().contains("the host companion of the instance failed"));
    // An upgrade replaces the failed companion by a working one, which decides about new ports.
    router.ask(&["plugin", "upgrade", "gatekeeper", &works]);
    let allowed = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9003"), 500, 64);
    allowed.wait_for_arrival();
    drop(allowed);
    assert_eq!(host_companion(&router)["health"], "well");
    assert_undisturbed(&bystander.finish(), "beside a host companion that misbehaves");
    router.assert_conservation();
}
