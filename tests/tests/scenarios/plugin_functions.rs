//! What plugins ask of the router, on live traffic.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, eventually};

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

/// Counts packets in the state that is common to all flows, says the count, and traps at packets to port 9009.
const ENDURING: &str = r#"
int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
    ++((uint64_t *)millrace_service())[1];
    return 0;
}

void millrace_packets(struct millrace_call *call) {
    uint64_t *common = millrace_service();
    for (uint32_t index = 0; index < call->count; index++) {
        if (millrace_packet(call, index)->destination_port == 9009) {
            common[0] = 0;
            __builtin_trap();
        }
        common[0]++;
    }
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    (void)name, (void)name_bytes, (void)arguments, (void)bytes;
    const uint64_t *common = millrace_service();
    char memory[128];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add(&text, "{\"packets\":");
    millrace_add_number(&text, common[0]);
    millrace_add(&text, ",\"beginnings\":");
    millrace_add_number(&text, common[1]);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}
"#;

#[test]
fn what_is_common_to_all_flows_outlives_faults_and_upgrades() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
    let line = Line::new();
    let keys = r#""positions":["early","late"],"messages":{"read":"the counters"},"service-state":16"#;
    let [first, second] =
        ["1.0.0", "1.1.0"].map(|version| build_source(&line, "enduring", version, keys, ENDURING));
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &first]);
    router.ask(&["instance", "create", "enduring", "e"]);
    router.ask(&["bind", "e", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    router.ask(&["bind", "e", "--gate", "firewall", "--filter", "proto udp dport 9009"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    router.ask(&["plugin", "upgrade", "enduring", &second]);
    flow.go_on(Duration::from_millis(100));
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    assert_eq!(read(&router, "e", "packets"), flow.received);
    let beginnings = read(&router, "e", "beginnings");
    let fatal = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9009"), 100, 64);
    eventually("the instance begins anew twice", Duration::from_secs(10), || {
        (router.row("instances", "name", "e")["faults"]["unreachable"].as_u64() >= Some(2)).then_some(())
    });
    drop(fatal);
    // It begins for the last time when the next packet comes behind its pause.
    let later = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    later.wait_for_arrival();
    let later = later.finish();
    assert_eq!(read(&router, "e", "packets"), flow.received + later.received, "{later:?}");
    assert!(read(&router, "e", "beginnings") > beginnings);
    router.ask(&["plugin", "upgrade", "enduring", &first, "--without-state"]);
    assert_eq!(read(&router, "e", "packets"), 0);
    router.assert_conservation();
}
