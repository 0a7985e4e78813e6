//! What plugins ask of the router, on live traffic.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line};

use crate::plugins::{COUNTER, build_source, read};
use crate::support::{router, to};

#[test]
fn a_plugin_sees_how_much_of_a_flow_waits_at_its_port() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
    let line = Line::new();
    // It lets packets pass while fewer than 20 of their flow wait, in a queue of their own at the leaf of number 1.
    let source = COUNTER.replace(
        "    packets += call->count;",
        "for (uint32_t index = 0; index < call->count; index++) {
            struct millrace_packet *packet = millrace_packet(call, index);
            struct millrace_waiting waiting;
            if (!millrace_backlog(packet, &waiting) || waiting.of != MILLRACE_OF_FLOW || waiting.queue != 1)
                millrace_drop(packet, 1);
            else if (waiting.packets >= 20)
                millrace_drop(packet, 2);
            else if (waiting.bytes < waiting.packets * 1000 || waiting.bytes > waiting.packets * 1100)
                millrace_drop(packet, 3);
            else
                packets++;
        }",
    );
    let keys = r#""positions":["early","late","queue"],"messages":{"read":"the counter"},"capabilities":["flow-backlog"]"#;
    let module = build_source(&line, "shallow", "1.0.0", keys, &source);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "flows", "--kind", "flow-queues", "rate=4mbit"]);
    router.ask(&["scheduler", "set", "r2", "rate=4mbit"]);
    router.ask(&["plugin", "load", &module]);
    for (name, gate, port) in [("early", "process", 9000), ("late", "schedule", 9001)] {
        router.ask(&["instance", "create", "shallow", name]);
        router.ask(&["bind", name, "--gate", gate, "--filter", &format!("proto udp dport {port}")]);
        // Twice what the link takes.
        let flow = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 1000, 1000);
        flow.go_on(Duration::from_millis(800));
        let flow = flow.finish();
        let drops = &router.row("instances", "name", name)["drops"];
        assert!(drops["2"].as_u64().unwrap() > 100, "{drops}");
        assert_eq!((&drops["1"], &drops["3"]), (&serde_json::Value::Null, &serde_json::Value::Null));
        assert_eq!(read(&router, name, "packets"), flow.received, "{flow:?}");
    }
    let shown = router.json(&["queue", "show", "r2", "flows"]);
    // Packets of one batch see the same backlog: a few more than 20 get in, and not a second's worth.
    let flows = shown["flows"].as_array().unwrap();
    let peaks: Vec<_> = flows.iter().map(|flow| flow["peak_bytes"].as_u64().unwrap()).collect();
    assert!(peaks.iter().any(|peak| *peak >= 20_000) && peaks.iter().all(|peak| *peak < 150_000), "{shown}");
    router.assert_conservation();
}
