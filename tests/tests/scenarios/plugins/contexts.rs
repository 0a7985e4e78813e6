//! Instances with several contexts in a forwarding router.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source, build_source_for, read};
use crate::plugins::shared_objects::trusting;
use crate::support::to;

/// Number of contexts of the instance.
const CONTEXTS: u8 = 4;

/// Returns the manifest keys of the counter with this number of contexts.
fn keys(contexts: u8) -> String {
    format!(r#"{COUNTER_KEYS},"contexts":{contexts}"#)
}

#[test]
fn upgrades_of_contexts_lose_no_packet_and_no_state() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc", "clang"]) else { return };
    for runtime in ["wasm", "native"] {
        let line = Line::new();
        let build = |version, contexts| {
            build_source_for(&line, runtime, ("counter", version), &keys(contexts), COUNTER)
        };
        let [first, second] = ["1.0.0", "1.1.0"].map(|version| build(version, CONTEXTS));
        let (fewer, more) = (build("1.2.0", 1), build("1.3.0", 2 * CONTEXTS));
        let router = trusting(&line, "");
        line.h1.run("ping -c 1 10.2.0.2");
        router.ask(&["plugin", "load", &first]);
        router.ask(&["instance", "create", "counter", "i1"]);
        router.ask(&["bind", "i1", "--gate", "monitor", "--filter", "proto udp dport 9000-9007"]);
        let flow = |number: u16| {
            Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{}", 9000 + number)), 250, 64)
        };
        let flows: Vec<_> = (0..8).map(flow).collect();
        for file in [&second, &first, &more] {
            router.ask(&["plugin", "upgrade", "counter", file]);
            flows[0].go_on(Duration::from_millis(100));
        }
        // The state of seven contexts would be lost.
        router
            .try_ask(&["plugin", "upgrade", "counter", &fewer])
            .assert_refused(1, &["fewer contexts, 1 instead of 8"]);
        assert_eq!(router.row("instances", "name", "i1")["contexts"], 2 * CONTEXTS);
        flows.iter().for_each(Flow::wait_for_arrival);
        let mut received = 0;
        for flow in flows {
            let flow = flow.finish();
            assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{runtime}: {flow:?}");
            received += flow.received;
        }
        assert_eq!(read(&router, "i1", "packets"), received, "{runtime}");
        router.ask(&["plugin", "upgrade", "counter", &fewer, "--without-state"]);
        assert_eq!(read(&router, "i1", "packets"), 0);
        router.ask(&["instance", "free", "i1"]);
        router.assert_conservation();
    }
}

#[test]
fn wrong_number_of_contexts_is_refused_with_the_range() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let file = build_source(&line, "counter", "1.0.0", &keys(17), COUNTER);
    let router = crate::support::router(&line);
    let words = &["\"contexts\": 17 is not right", "give a whole number from 1 to 16"];
    router.try_ask(&["plugin", "load", &file]).assert_refused(1, words);
}
