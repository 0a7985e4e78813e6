//! Plugins with a host companion on live traffic: workers send requests, the companion answers, and a failing
//! companion harms no other flow.

use std::fs;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};
use serde_json::Value;

use crate::plugins::files::build;
use crate::support::{assert_undisturbed, router, to};

const FAST: &str = include_str!("../../../../examples/plugins/gatekeeper-c/gatekeeper.c");
/// Source of the host companion.
pub const SLOW: &str = include_str!("../../../../examples/plugins/gatekeeper-slow-c/gatekeeper_slow.c");
const PATIENCE: Duration = Duration::from_secs(10);

/// Builds plugin and host companion into one folder. Returns the plugin's file name.
pub fn halves(line: &Line, name: &str, slow: &str) -> String {
    let fast = build(line, name, |_| FAST.to_owned());
    let built = build(line, &format!("{name}-slow"), |_| slow.to_owned());
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
    let module = halves(&line, "gatekeeper", SLOW);
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
    let slow = host_companion(&router);
    assert_eq!(
        (&slow["up"]["sent"], &slow["up"]["heard"], &slow["up"]["lost"]),
        (&2.into(), &2.into(), &0.into()),
        "{slow}"
    );
    assert_eq!((&slow["down"]["sent"], &slow["down"]["heard"]), (&2.into(), &(2 * workers).into()), "{slow}");
    // Each worker's instance gets the answers. The host companion took longer than a slice.
    assert!(slow["suspensions"].as_u64().unwrap() > 0, "{slow}");
    let map = router.json(&["instance", "map", "g", "ports"]);
    assert_eq!(map["entries"], 2 * workers, "{map}");
    // The host companion answers operators, too. The plugin at the workers has no such message.
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
    let loops = halves(
        &line,
        "loops",
        &SLOW.replace(loop_text, "for (volatile int forever = 1; forever;)\n        ;"),
    );
    let traps = halves(&line, "traps", &SLOW.replace(loop_text, "__builtin_trap();"));
    let works = halves(&line, "works", SLOW);
    let strange = halves(&line, "strange", &SLOW.replace("\\\"log\\\"", "\\\"log\\\",\\\"packet-make\\\""));
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
    // A working companion replaces the failed one, and decides about new ports.
    router.ask(&["plugin", "upgrade", "gatekeeper", &works]);
    let allowed = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9003"), 500, 64);
    allowed.wait_for_arrival();
    drop(allowed);
    assert_eq!(host_companion(&router)["health"], "well");
    assert_undisturbed(&bystander.finish(), "beside a host companion that misbehaves");
    router.assert_conservation();
}
