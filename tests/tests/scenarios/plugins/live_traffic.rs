//! Plugins on live traffic: from an empty folder to packets, and the limits of a misbehaving plugin.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, eventually};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build, build_source, read};
use crate::support::{assert_undisturbed, router, to};

const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn a_new_plugin_is_built_loaded_and_sees_live_traffic() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let module = build(&line, "hello", |source| source);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", module.to_str().unwrap()]);
    assert_eq!(router.row("plugins", "name", "hello")["version"], "0.1.0");
    router.ask(&["instance", "create", "hello", "i1", "longest=300"]);
    let short = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let long = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 900);
    router.ask(&["bind", "i1", "--gate", "monitor", "--filter", "proto udp dport 9000-9001"]);
    eventually("packets are seen", PATIENCE, || (read(&router, "i1", "packets") > 300).then_some(()));
    let counted = read(&router, "i1", "dropped");
    assert!(counted > 0);
    let short = short.finish();
    assert_eq!((short.lost(), short.reordered, short.duplicated), (0, 0, 0), "{short:?}");
    assert!(long.finish().lost() >= counted);
    // A plugin in use can't be unloaded. After `free` and `unload` it is gone.
    router.try_ask(&["plugin", "unload", "hello"]).assert_refused(1, &["hello", "i1"]);
    router.ask(&["instance", "free", "i1"]);
    router.ask(&["plugin", "unload", "hello"]);
    router.try_ask(&["instance", "create", "hello", "i2"]).assert_refused(1, &["hello"]);
    router.assert_conservation();
}

#[test]
fn a_plugin_that_loops_traps_or_lies_harms_no_other_flow() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let loops = build(&line, "loops", |source| {
        source.replace("packets++;", "for (volatile int forever = 1; forever;) packets++;")
    });
    let lies = build(&line, "lies", |source| source.replace("packets++;", "packet->verdict = 77;"));
    let traps = build(&line, "traps", |source| source.replace("packets++;", "__builtin_trap();"));
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
    for (module, name, port, kind) in [
        (&loops, "loops", "9001", "overrun"),
        (&traps, "traps", "9002", "unreachable"),
        (&lies, "lies", "9003", "wrong_verdict"),
    ] {
        router.ask(&["plugin", "load", module.to_str().unwrap()]);
        router.ask(&["instance", "create", name, name]);
        let victim = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 500, 64);
        router.ask(&["bind", name, "--gate", "process", "--filter", &format!("dport {port}")]);
        eventually("the instance is put into quarantine", Duration::from_secs(20), || {
            let row = router.row("instances", "name", name);
            (row["health"] == "quarantined" && row["faults"][kind].as_u64() >= Some(8)).then_some(())
        });
        victim.go_on(Duration::from_millis(100));
        assert!(router.drops("plugin_failed") > 0);
        drop(victim);
        router.ask(&["instance", "free", name]);
    }
    assert_undisturbed(&bystander.finish(), "beside plugins that misbehave");
    router.assert_conservation();
}

#[test]
fn invalid_plugin_is_refused_and_changes_nothing() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    let before = router.json(&["plugin", "list"]);
    let text = line.write("text.wasm", "no module").display().to_string();
    for (file, words) in
        [(&*text, ["text.wasm", "module"]), ("/nowhere.wasm", ["/nowhere.wasm", "No such file"])]
    {
        router.try_ask(&["plugin", "load", file]).assert_refused(1, &words);
    }
    let pipe = line.write("pipe", "").with_file_name("pipe.wasm");
    line.r.run(&format!("mkfifo {}", pipe.display()));
    router.try_ask(&["plugin", "load", pipe.to_str().unwrap()]).assert_refused(1, &["not a regular file"]);
    router.try_ask(&["plugin", "unload", "nul"]).assert_refused(1, &["did you mean \"null\"?"]);
    assert_eq!(router.json(&["plugin", "list"]), before);
}

#[test]
fn packets_are_delayed_as_configured() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "delay", "far", "ms=20"]);
    router.ask(&["bind", "far", "--gate", "process", "--filter", "proto icmp"]);
    let times = line.h1.run("ping -c 10 -i 0.05 10.2.0.2");
    let least =
        times.lines().find_map(|line| line.split_once(" = ")?.1.split('/').next()?.parse::<f64>().ok());
    // The request and the reply are delayed by 20 ms each. Only the fastest ping is compared, because others
    // depend on the load of the processors.
    assert!((40.0..44.0).contains(&least.unwrap()), "{times}");
    assert_eq!(read(&router, "far", "packets"), 20);
    router.assert_conservation();
}

#[test]
fn a_plugin_is_upgraded_and_rolled_back_under_load_without_a_loss() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let [first, second] =
        ["1.0.0", "1.1.0"].map(|version| build_source(&line, "counter", version, COUNTER_KEYS, COUNTER));
    let refuses = COUNTER.replace("if (bytes != sizeof packets)", "if (bytes)");
    let refuses = build_source(&line, "counter", "1.2.0", COUNTER_KEYS, &refuses);
    let drops = COUNTER.replace(
        "packets += call->count;",
        "for (uint32_t index = 0; index < call->count; index++) millrace_drop(millrace_packet(call, index), 3);",
    );
    let drops = build_source(&line, "counter", "1.3.0", COUNTER_KEYS, &drops);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &first]);
    router.try_ask(&["plugin", "rollback", "counter"]).assert_refused(1, &["no earlier version"]);
    router.ask(&["instance", "create", "counter", "i1"]);
    router.ask(&["bind", "i1", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 5000, 64);
    for round in 0..10 {
        let file = if round % 2 == 0 { &second } else { &first };
        router.ask(&["plugin", "upgrade", "counter", file]);
        flow.go_on(Duration::from_millis(20));
    }
    assert_eq!(router.row("plugins", "name", "counter")["version"], "1.0.0");
    router.ask(&["plugin", "rollback", "counter"]);
    assert_eq!(router.row("plugins", "name", "counter")["version"], "1.1.0");
    // If a version can't take over the state, the old version keeps running. The shadow run reports different
    // verdicts.
    router
        .try_ask(&["plugin", "upgrade", "counter", &refuses])
        .assert_refused(1, &["that is no count", "version 1.1.0 keeps running"]);
    router
        .try_ask(&["plugin", "upgrade", "counter", &drops, "--shadow", "100"])
        .assert_refused(1, &["100 of 100 packets", "drops it for reason 3", "accept-differences"]);
    let same = router.json(&["plugin", "upgrade", "counter", &first, "--shadow", "100"]);
    assert_eq!((&same["shadow"]["packets"], &same["shadow"]["different"]), (&100.into(), &0.into()));
    flow.wait_for_arrival();
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    assert_eq!(read(&router, "i1", "packets"), flow.received);
    // A shadow run without packets proves nothing, so the upgrade fails.
    router
        .try_ask(&["plugin", "upgrade", "counter", &first, "--shadow", "100"])
        .assert_refused(1, &["not every instance got 100 packets", "old version keeps running"]);
    router.assert_conservation();
}

#[test]
fn packets_of_a_failed_call_continue_if_the_binding_bypasses() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let traps = COUNTER.replace("packets += call->count;", "__builtin_trap();");
    let traps = build_source(&line, "traps", "1.0.0", COUNTER_KEYS, &traps);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &traps]);
    router.ask(&["instance", "create", "traps", "t"]);
    let bind = ["bind", "t", "--gate", "process", "--filter", "dport 9000", "--on-fault", "bypass"];
    router.ask(&bind);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    eventually("the instance is put into quarantine", Duration::from_secs(20), || {
        (router.row("instances", "name", "t")["health"] == "quarantined").then_some(())
    });
    flow.wait_for_arrival();
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    let log = router.log();
    assert!(log.contains("failed") && log.contains("unreachable") && log.contains("quarantined"), "{log}");
    router.assert_conservation();
}

#[test]
fn rollback_reports_or_ends_a_quarantine() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
    let line = Line::new();
    let traps = COUNTER.replace("packets += call->count;", "__builtin_trap();");
    let build = |version, source: &str| build_source(&line, "counter", version, COUNTER_KEYS, source);
    let (good, bad) = (build("1.0.0", COUNTER), build("1.1.0", &traps));
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let health = || router.row("instances", "name", "c")["health"].clone();
    let trap = || {
        let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
        eventually("the instance is put into quarantine", PATIENCE, || {
            (health() == "quarantined").then_some(())
        });
        // The end of the flow frees its address for the next flow.
        flow.finish();
    };
    let load = |file: &str| {
        router.ask(&["plugin", "load", file]);
        router.ask(&["instance", "create", "counter", "c"]);
        router.ask(&["bind", "c", "--gate", "process", "--filter", "dport 9000"]);
    };
    load(&bad);
    trap();
    let words = [
        "no earlier version",
        "in quarantine: c;",
        "millrace instance release c",
        "millrace plugin upgrade counter FILE",
    ];
    router.try_ask(&["plugin", "rollback", "counter"]).assert_refused(1, &words);
    router.ask(&["unbind", "c"]);
    router.ask(&["instance", "free", "c"]);
    router.ask(&["plugin", "unload", "counter"]);
    load(&good);
    router.ask(&["plugin", "upgrade", "counter", &bad]);
    trap();
    let said = router.ask(&["plugin", "rollback", "counter"]);
    assert!(said.contains("1.1.0 replaced by 1.0.0, in 1 instance"), "{said}");
    assert_eq!(health(), "well");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    drop(flow);
    router.assert_conservation();
}

#[test]
fn plugins_keep_state_for_flows_and_send_packets_on() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    // The instance redirects the first ten packets of a flow to another instance, tags the next ten, and
    // drops later ones.
    let steers = COUNTER.replace(
        "    packets += call->count;",
        "for (uint32_t index = 0; index < call->count; index++) {
            struct millrace_packet *packet = millrace_packet(call, index);
            uint32_t *seen = millrace_at(packet->state);
            if (packet->tag == 5) continue;
            packets++;
            (*seen)++;
            if (*seen <= 10) {
                packet->verdict = 6;
                packet->target = NUMBER;
            } else if (*seen <= 20) {
                packet->verdict = 7;
                packet->tag = 5;
            } else {
                millrace_drop(packet, 4);
            }
        }",
    );
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "direct"]);
    router.ask(&["instance", "create", "statistics", "tagged"]);
    let number = router.row("instances", "name", "direct")["number"].to_string();
    let keys = r#""positions":["early","late"],"messages":{"read":"the counter"},"flow-state":4"#;
    let source = steers.replace("NUMBER", &number);
    let steers = build_source(&line, "steers", "1.0.0", keys, &source);
    let wider = build_source(&line, "steers", "1.1.0", &keys.replace("state\":4", "state\":8"), &source);
    router.ask(&["plugin", "load", &steers]);
    router.ask(&["instance", "create", "steers", "s"]);
    router.ask(&["bind", "tagged", "--gate", "monitor", "--filter", "tag 5"]);
    router.ask(&["bind", "s", "--gate", "firewall", "--filter", "proto udp dport 9000-9001"]);
    let flows = ["10.2.0.2:9000", "10.2.0.2:9001"]
        .map(|address| Flow::start(&line.h1, &line.h2, to(address), 1000, 64));
    for flow in flows {
        flow.go_on(Duration::from_millis(100));
        let report = flow.finish();
        assert_eq!((report.received, report.reordered, report.duplicated), (20, 0, 0), "{report:?}");
    }
    let states = &router.json(&["show", "status"])["flow_states"];
    assert!(states["flows"].as_u64().unwrap() >= 2 && states["bytes"].as_u64().unwrap() > 0, "{states}");
    assert_eq!(states["refused"], 0);
    let seen = |instance: &str| router.json(&["control", instance, "read"])["total"]["packets"].as_u64();
    assert_eq!((seen("direct"), seen("tagged")), (Some(20), Some(20)));
    let drops = router.row("instances", "name", "s")["drops"]["4"].as_u64();
    assert_eq!(drops, Some(read(&router, "s", "packets") - 40));
    // The new version has a flow state of another size, which the upgrade reports.
    let upgraded = router.json(&["plugin", "upgrade", "steers", &wider]);
    let lost = "s: its flow state is lost: the size per flow changed from 4 to 8 bytes";
    assert_eq!(upgraded["lost"], serde_json::json!([lost]), "{upgraded}");
    router.assert_conservation();
}

/// Builds a plugin that makes another packet of each packet, to the next port. On its timer it requests a
/// filter, a route and an operation that doesn't exist. Returns its file name.
fn build_echoes(line: &Line) -> String {
    let echoes = COUNTER.replace(
        "    packets += call->count;",
        "for (uint32_t index = 0; index < call->count; index++) {
            struct millrace_packet *packet = millrace_packet(call, index);
            uint8_t copy[1500];
            uint32_t bytes = millrace_read(packet, packet->network, copy, sizeof copy);
            copy[23]++;
            copy[26] = copy[27] = 0;
            if (millrace_make(copy, bytes, packet->port)) packets++;
        }
        if (packets == call->count) {
            millrace_log(1, \"it begins\");
            millrace_timer(1000000);
        }",
    ) + r#"
void millrace_periodic(uint64_t now) {
    (void)now;
    millrace_request("{\"add-filter\":{\"match\":\"proto udp dport 9003\",\"action\":\"drop\"}}");
    millrace_request("{\"reboot\":{}}");
    millrace_request("{\"add-route\":{\"to\":\"10.9.0.0/16\",\"via\":[\"10.2.0.2\"]}}");
}
"#;
    let keys = r#""positions":["early","late"],"messages":{"read":"the counter"},"window":128,
        "capabilities":["packet-read","packet-make","log","timer","request-filters"]"#
        .replace('\n', "");
    build_source(line, "echoes", "1.0.0", &keys, &echoes)
}

#[test]
fn plugins_make_packets_write_to_the_log_and_ask_for_changes() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let echoes = build_echoes(&line);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &echoes]);
    router.ask(&["instance", "create", "echoes", "e"]);
    router.ask(&["instance", "create", "statistics", "made"]);
    router.ask(&["bind", "made", "--gate", "monitor", "--filter", "proto udp dport 9001"]);
    router.ask(&["bind", "e", "--gate", "process", "--filter", "proto udp dport 9000"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(200));
    flow.wait_for_arrival();
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    let made = router.json(&["control", "made", "read"])["total"]["packets"].as_u64().unwrap();
    assert_eq!((made, read(&router, "e", "packets")), (report.received, report.received));
    let filters = router.json(&["filter", "list"]).to_string();
    assert!(filters.contains("\"proto udp dport 9003\""), "{filters}");
    let log = router.log();
    assert!(log.contains("it begins") && log.contains("request is refused"), "{log}");
    // The manifest doesn't permit requests for routes.
    assert!(log.contains("its manifest doesn't name the capability \"request-routes\""), "{log}");
    assert!(!router.json(&["route", "list"]).to_string().contains("10.9.0.0"));
    // While revision 3 awaits confirmation, the router refuses a plugin's request for a filter. The saved
    // configuration is revision 2.
    router.ask(&["instance", "create", "echoes", "later"]);
    router.ask(&["bind", "later", "--gate", "process", "--filter", "proto udp dport 9005"]);
    let saved = line.file("saved.toml");
    router.ask(&["save", &saved.display().to_string()]);
    let more = "\n[[filter]]\nmatch = \"proto udp dport 7\"\naction = \"drop\"\n";
    let more = line.write("more.toml", &(std::fs::read_to_string(&saved).unwrap() + more));
    router.ask(&["apply", &more.display().to_string(), "--confirm", "1h"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9005"), 100, 64);
    eventually("the request is refused", Duration::from_secs(10), || {
        router.log().contains("request is refused: revision 3 waits to be confirmed").then_some(())
    });
    drop(flow);
    router.assert_conservation();
}

#[test]
fn plugin_that_answers_its_own_packets_reaches_an_end() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
    let line = Line::new();
    let twice = COUNTER.replace(
        "    packets += call->count;",
        "for (uint32_t index = 0; index < call->count; index++) {
            struct millrace_packet *packet = millrace_packet(call, index);
            uint8_t copy[1500];
            uint32_t bytes = millrace_read(packet, packet->network, copy, sizeof copy);
            packets++;
            millrace_make(copy, bytes, packet->port);
            millrace_make(copy, bytes, packet->port);
        }",
    );
    let keys = r#""positions":["early","late"],"messages":{"read":"the counter"},"window":128,
        "capabilities":["packet-read","packet-make"]"#
        .replace('\n', "");
    let twice = build_source(&line, "twice", "1.0.0", &keys, &twice);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &twice]);
    router.ask(&["instance", "create", "twice", "t"]);
    router.ask(&["bind", "t", "--gate", "process", "--filter", "proto udp dport 9000"]);
    line.h1.run("bash -c 'echo x > /dev/udp/10.2.0.2/9000'");
    // Of 2 packets that each packet makes, one more than there are packets exceeds the limit of 4 passes in the end.
    let packets = eventually("the last one has ended", Duration::from_secs(2), || {
        let packets = read(&router, "t", "packets");
        (packets > 0 && router.drops("plugin_loop") == packets + 1).then_some(packets)
    });
    // The first packet makes 2 packets, which make 4, then 8, then 16. There are fewer if packets of several generations
    // are in one call: the latest of them counts.
    assert!((1 + 2 + 2 + 2 + 2..=1 + 2 + 4 + 8 + 16).contains(&packets), "{packets}");
    router.assert_conservation();
}

#[test]
fn an_instance_gets_other_settings_under_load_without_a_loss() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "s", "what=protocol"]);
    router.ask(&["bind", "s", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 5000, 64);
    for round in 0..10 {
        let what = if round % 2 == 0 { "what=all" } else { "what=size" };
        router.ask(&["instance", "set", "s", what]);
        flow.go_on(Duration::from_millis(20));
    }
    assert_eq!(router.row("instances", "name", "s")["settings"], serde_json::json!({"what": "size"}));
    // With `what=size` the instance gathers nothing by protocol, and keeps the earlier counts.
    let counts = || {
        let read = router.json(&["control", "s", "read"]);
        (read["packets"]["udp"].as_u64().unwrap(), read["total"]["packets"].as_u64().unwrap())
    };
    let (udp, total) = counts();
    flow.wait_for_arrival();
    let later = counts();
    assert!(udp > 0 && later.0 == udp && later.1 > total, "{udp} of {total}, then {later:?}");
    // The router refuses a wrong value and changes nothing. A setting with an empty value is removed.
    router
        .try_ask(&["instance", "set", "s", "what=nothing"])
        .assert_refused(1, &["what", "protocol, size or all"]);
    router.try_ask(&["instance", "set", "t", "what=all"]).assert_refused(1, &["no instance \"t\""]);
    assert_eq!(router.row("instances", "name", "s")["settings"], serde_json::json!({"what": "size"}));
    router.ask(&["instance", "set", "s", "what="]);
    assert_eq!(router.row("instances", "name", "s")["settings"], serde_json::json!({}));
    flow.wait_for_arrival();
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    assert_eq!(counts().1, flow.received);
    router.assert_conservation();
}
