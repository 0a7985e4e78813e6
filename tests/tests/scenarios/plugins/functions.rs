//! Functions of the router that plugins call, tested on live traffic.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};

use crate::plugins::files::{COUNTER, build_source, read};
use crate::support::{cells, router, to};

#[test]
fn plugin_sees_the_backlog_of_a_flow_at_its_port() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    // The plugin passes packets of a flow while fewer than 20 of them wait in the flow's queue, at leaf
    // number 1.
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
        // The flow sends twice the rate of the link.
        let flow = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 1000, 1000);
        flow.go_on(Duration::from_millis(800));
        let flow = flow.finish();
        let drops = &router.row("instances", "name", name)["drops"];
        assert!(drops["2"].as_u64().unwrap() > 100, "{drops}");
        assert_eq!((&drops["1"], &drops["3"]), (&serde_json::Value::Null, &serde_json::Value::Null));
        assert_eq!(read(&router, name, "packets"), flow.received, "{flow:?}");
    }
    let shown = router.json(&["queue", "show", "r2", "flows"]);
    // All packets of a batch see the same backlog. So the queue gets a few more than 20 packets, but not the
    // packets of a whole second.
    let flows = shown["flows"].as_array().unwrap();
    let peaks: Vec<_> = flows.iter().map(|flow| flow["peak_bytes"].as_u64().unwrap()).collect();
    assert!(peaks.iter().any(|peak| *peak >= 20_000) && peaks.iter().all(|peak| *peak < 150_000), "{shown}");
    router.assert_conservation();
}

/// Plugin that counts packets in its service state and answers with the count. It traps at packets to port
/// 9009.
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
fn service_state_survives_faults_and_upgrades() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
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
    eventually("the instance restarts twice", Duration::from_secs(10), || {
        (router.row("instances", "name", "e")["faults"]["unreachable"].as_u64() >= Some(2)).then_some(())
    });
    drop(fatal);
    // The last restart happens when the next packet arrives after the instance's pause.
    let later = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    later.wait_for_arrival();
    let later = later.finish();
    assert_eq!(read(&router, "e", "packets"), flow.received + later.received, "{later:?}");
    assert!(read(&router, "e", "beginnings") > beginnings);
    router.ask(&["plugin", "upgrade", "enduring", &first, "--without-state"]);
    assert_eq!(read(&router, "e", "packets"), 0);
    router.assert_conservation();
}

/// Plugin that counts the packets of each source in a map. A packet to port 9002 removes its source from the
/// map.
const LEARNS: &str = r#"
int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
    return 0;
}

void millrace_packets(struct millrace_call *call) {
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        const uint8_t *source = (const uint8_t *)millrace_at(packet->window) + packet->network + 12;
        uint32_t seen = 0;
        if (packet->destination_port == 9002)
            millrace_map_remove(0, source, 4);
        else if (millrace_map_get(0, source, 4, &seen, 4) != MILLRACE_REFUSED && (seen += 1))
            millrace_map_set(0, source, 4, &seen, 4);
    }
}
"#;

/// Plugin that drops packets whose source is in a map.
const BLOCKS: &str = r#"
static uint64_t map = 99;

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    struct millrace_json list = millrace_json_get(settings, bytes, "\"list\"");
    return list.start && millrace_json_number(list, 100, &map) ? 0 : millrace_fail("list: name a map");
}

void millrace_packets(struct millrace_call *call) {
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        const uint8_t *source = (const uint8_t *)millrace_at(packet->window) + packet->network + 12;
        uint32_t seen;
        if (millrace_map_get((uint32_t)map, source, 4, &seen, 4) == MILLRACE_DONE)
            millrace_drop(packet, 1);
    }
}
"#;

/// Sends eight flows, to the ports from 9010 on, so that each of two workers has some. Returns whether
/// packets arrived, and whether none was lost. The results of all flows must agree.
fn arrival_of_all(line: &Line) -> (bool, bool) {
    let flows: Vec<_> = (9010..9016)
        .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 200, 64))
        .collect();
    flows[0].go_on(Duration::from_millis(100));
    let all = flows.into_iter().map(|flow| flow.finish());
    let all: Vec<_> = all.map(|flow| (flow.received > 0, flow.lost() == 0)).collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0]
}

/// Checks the listing of instance `l`'s maps; the map `sources` must have one entry.
fn assert_map_is_listed(router: &Millrace) {
    let listed = router.ask(&["instance", "map", "l"]);
    // Columns: name, bytes of a key, bytes of a value, entries, maximum number of entries, refused entries.
    let row = listed.lines().nth(1).map(cells);
    assert_eq!(row.as_deref(), Some(&["sources", "4", "4", "1", "100", "0"][..]), "{listed}");
    assert!(router.ask(&["instance", "map", "l", "sources"]).contains("0a010002"));
    router.try_ask(&["instance", "map", "l", "surces"]).assert_refused(1, &["did you mean \"sources\"?"]);
}

/// Checks the count of the first host's packets in a map. The counts of the router tell whether all packets have met
/// the instance.
fn assert_arrivals_are_counted(router: &Millrace, entry: &serde_json::Value, arrived: u64) {
    let count = u32::try_from(arrived).unwrap().to_le_bytes().map(|byte| format!("{byte:02x}"));
    let counts = || ["instances", "bindings", "ports", "drops"].map(|what| router.json(&["show", what]));
    assert_eq!(
        (entry["key"].as_str(), entry["value"].as_str()),
        (Some("0a010002"), Some(&*count.concat())),
        "{:?}",
        counts()
    );
}

#[test]
fn plugin_writes_a_map_that_another_reads_on_any_worker() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let keys = r#""positions":["early"],"capabilities":["map-read","map-write"],
        "maps":[{"name":"sources","key":4,"value":4,"entries":100}]"#
        .replace('\n', "");
    let [first, second] =
        ["1.0.0", "1.1.0"].map(|version| build_source(&line, "learns", version, &keys, LEARNS));
    let other = build_source(&line, "learns", "1.2.0", &keys.replace("100", "200"), LEARNS);
    let keys = r#""positions":["early"],"capabilities":["map-read"],
        "settings":{"type":"object","properties":{"list":{"type":"string","format":"map"}}}"#
        .replace('\n', "");
    let blocks = build_source(&line, "blocks", "1.0.0", &keys, BLOCKS);
    let ungranted = build_source(&line, "blocks", "1.1.0", &keys.replace("map-read", "log"), BLOCKS);
    for workers in ["1", "2"] {
        let router = Millrace::start(&line.r, &format!("--port r1 --port r2 --workers {workers}"));
        line.h1.run("ping -c 1 10.2.0.2");
        router.try_ask(&["plugin", "load", &ungranted]).assert_refused(1, &["map-read"]);
        for module in [&first, &blocks] {
            router.ask(&["plugin", "load", module]);
        }
        router.ask(&["instance", "create", "learns", "l"]);
        router
            .try_ask(&["instance", "create", "blocks", "b", "list=l/source"])
            .assert_refused(1, &["did you mean \"sources\"?"]);
        router.ask(&["instance", "create", "blocks", "b", "list=l/sources"]);
        router.ask(&["bind", "l", "--gate", "security-in", "--filter", "proto udp dport 9000-9002"]);
        router.ask(&["bind", "b", "--gate", "firewall", "--filter", "proto udp dport 9010-9017"]);
        let arrives = || arrival_of_all(&line);
        let shown = || router.json(&["instance", "map", "l", "sources"]);
        assert_eq!((arrives(), shown()["entries"].as_u64()), ((true, true), Some(0)));
        let seen = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
        seen.wait_for_arrival();
        assert_eq!(arrives(), (false, false));
        // The map survives an upgrade. The router refuses an upgrade that would remove the map.
        router.ask(&["plugin", "upgrade", "learns", &second]);
        router.try_ask(&["plugin", "upgrade", "learns", &other]).assert_refused(1, &["sources", "\"b\""]);
        let counted = || router.row("bindings", "instance", "l")["packets"].as_u64();
        let before = counted();
        router.try_ask(&["instance", "free", "l"]).assert_refused(1, &["\"b\"", "reads its maps"]);
        assert!(counted() > before, "the binding was removed and came back: {before:?} {:?}", counted());
        assert_eq!(arrives(), (false, false));
        seen.go_on(Duration::from_millis(50));
        let seen = seen.finish();
        let map = shown();
        assert_eq!((&map["entries"], &map["refused"], &map["more"]), (&1.into(), &0.into(), &false.into()));
        assert_arrivals_are_counted(&router, &map["content"][0], seen.received);
        assert_map_is_listed(&router);
        if workers == "1" {
            // A worker removes only entries that it wrote itself, so this needs one worker.
            let forgets = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 100, 64);
            forgets.wait_for_arrival();
            drop(forgets);
            assert_eq!((arrives(), shown()["entries"].as_u64()), ((true, true), Some(0)));
        }
        router.assert_conservation();
    }
}
