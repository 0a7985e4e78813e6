//! Texts for operators about plugins and instances: properties, and causes of errors.

use std::fs;

use millrace_testkit::{Flow, Ground, Line, Millrace, run_to_end};
use serde_json::Value;

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source, read};
use crate::support::{router, to};

#[test]
fn every_built_in_plugin_documents_its_settings_and_messages() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    for plugin in router.json(&["plugin", "list"]).as_array().unwrap() {
        let name = plugin["name"].as_str().unwrap();
        let told = router.json(&["plugin", "inspect", name]);
        assert_eq!(told["runtime"], "built in", "{name}");
        assert!(!told["messages"].as_object().unwrap().is_empty(), "{name}");
        assert_eq!(told["settings"]["additionalProperties"], false, "{name}");
        for (setting, property) in told["settings"]["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{name}: {setting}");
            assert!(property["type"] != Value::Null || property["enum"] != Value::Null, "{name}: {setting}");
        }
        let (positions, codes) = (told["positions"].as_array().unwrap(), told["codes"].as_object().unwrap());
        assert_eq!(positions.len(), codes.len(), "{name}");
        // The router offers the features that the plugin needs.
        let offered = router.json(&["show", "status"])["plugin_interface"]["features"].clone();
        for feature in told["features"].as_array().unwrap() {
            assert!(offered.as_array().unwrap().contains(feature), "{name}: {feature}");
        }
    }
    // The plugin code consists of position and index: statistics is the third in the list, so its index is 2.
    assert_eq!(router.json(&["plugin", "inspect", "statistics"])["codes"]["copy"], 5 << 16 | 2);
    let text = router.ask(&["plugin", "inspect", "sample"]);
    let row = text.lines().find(|line| line.starts_with("one-in")).unwrap().to_owned();
    for word in ["integer", "1 to 4294967295", "the number N: one of every N copies is sent"] {
        assert!(row.contains(word), "{row}");
    }
    router.ask(&["instance", "create", "statistics", "s1"]);
    assert_eq!(router.json(&["plugin", "inspect", "statistics"])["instances"], serde_json::json!(["s1"]));
    router
        .try_ask(&["plugin", "inspect", "statistcs"])
        .assert_refused(1, &["did you mean \"statistics\"?", "no file"]);
}

/// Arguments of a command, and texts that its refusal contains.
type Case<'a> = (&'a [&'a str], &'a [&'a str]);

/// Wrong commands, each with the texts that its error contains.
const WRONG: &[Case<'static>] = &[
    (&["plugin", "unload", "statistics"], &["\"statistics\"", "built in", "plugin load"]),
    (&["plugin", "unload", "statistcs"], &["no plugin \"statistcs\"", "did you mean \"statistics\"?"]),
    (&["plugin", "rollback", "statistics"], &["statistics", "not upgraded"]),
    (&["plugin", "upgrade", "nothing", "/etc/hostname"], &["no plugin \"nothing\"", "plugins here: delay"]),
    (&["plugin", "load", "/etc/passwd"], &["/etc/passwd", "\\0asm", "\\x7fELF"]),
    (&["instance", "create", "statistcs", "s2"], &["no plugin \"statistcs\""]),
    (&["instance", "create", "statistics", "s1"], &["\"s1\"", "use another name"]),
    (&["instance", "create", "statistics", "s 2"], &["\"s 2\"", "letters, digits"]),
    (&["instance", "create", "statistics", "s2", "wat=size"], &["wat", "did you mean \"what\"?"]),
    (&["instance", "create", "statistics", "s2", "what=sizes"], &["\"sizes\"", "protocol, size or all"]),
    (&["instance", "create", "null", "n1", "a=1"], &["a: there is no such setting", "settings here: work"]),
    (&["instance", "create", "delay", "d2", "ms=soon"], &["ms", "\"soon\"", "a number from 0 to 10000"]),
    (&["instance", "create", "delay", "d2", "ms=10001"], &["10001", "a number from 0 to 10000"]),
    (&["instance", "create", "sample", "c1"], &["to: it is missing", "the name of a port"]),
    (&["instance", "create", "sample", "c1", "to=r3"], &["no port \"r3\"", "r1"]),
    (&["instance", "create", "sample", "c1", "to=r1", "one-in=0"], &["one-in", "from 1 to 4294967295"]),
    (&["instance", "create", "spread", "p1", "to=s3"], &["no instance \"s3\""]),
    (&["instance", "create", "port-filter", "f1", "protocol=icmp"], &["\"icmp\"", "tcp, udp or any"]),
    (&["instance", "set", "s1", "wat=1"], &["did you mean \"what\"?"]),
    (&["instance", "set", "d1", "ms=true"], &["true is not right", "a number"]),
    (&["instance", "set", "s3", "what=all"], &["no instance \"s3\""]),
    (&["instance", "rename", "s1", "d1"], &["\"d1\"", "use another name"]),
    (&["instance", "rename", "s3", "s4"], &["no instance \"s3\""]),
    (&["instance", "free", "s3"], &["no instance \"s3\""]),
    (&["instance", "release", "s1"], &["\"s1\" is not in quarantine"]),
    (&["instance", "map", "s1", "seen"], &["\"s1\" has no maps"]),
    (&["control", "s3", "read"], &["no instance \"s3\""]),
    (&["control", "s1", "raed"], &["no message \"raed\"", "read, reset, configure"]),
    (&["control", "s1", "read", "all=1"], &["all: message \"read\" takes no arguments"]),
    (&["control", "s1", "read", "--companion"], &["\"s1\" has no host companion"]),
    (&["bind", "s3", "--gate", "monitor", "--filter", "proto udp"], &["no instance \"s3\""]),
    (
        &["bind", "s1", "--gate", "schedule", "--filter", "proto udp"],
        &["position queue", "early, late, copy"],
    ),
];

#[test]
fn errors_are_reported_with_a_remedy() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "statistics", "s1"]);
    router.ask(&["instance", "create", "delay", "d1", "ms=5"]);
    let look = || (router.json(&["show", "instances"]), router.json(&["plugin", "list"]));
    let before = look();
    for (arguments, words) in WRONG {
        router.try_ask(arguments).assert_refused(1, words);
        assert_eq!(look(), before, "{arguments:?}");
        let with_json = [*arguments, &["--json"]].concat();
        let told = router.try_ask(&with_json);
        assert_eq!((told.code, &*told.stdout), (Some(1), ""), "{told:?}");
        let error: Value = serde_json::from_str(&told.stderr).unwrap_or_else(|_| panic!("{told:?}"));
        assert_eq!(error["code"], 1, "{error}");
        assert!(words.iter().all(|word| error["error"].as_str().unwrap().contains(word)), "{error}");
    }
    let usage = router.try_ask(&["plugin", "lod", "--json"]);
    let error: Value = serde_json::from_str(&usage.stderr).unwrap_or_else(|_| panic!("{usage:?}"));
    assert_eq!((usage.code, &error["code"]), (Some(2), &2.into()), "{usage:?}");
    assert!(error["error"].as_str().unwrap().contains("lod"), "{error}");
}

#[test]
fn plugin_that_needs_unavailable_features_is_refused_by_name() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let module = build_source(&line, "later", "0.1.0", COUNTER_KEYS, COUNTER);
    let before = router.json(&["plugin", "list"]);
    let folder = std::path::Path::new(&module).parent().unwrap();
    let source = folder.join("plugin.c");
    let text = fs::read_to_string(&source).unwrap();
    let manifest = "\\\"abi\\\":1,";
    let later = text.replace(
        manifest,
        "\\\"abi\\\":1,\\\"features\\\":[\\\"hold\\\",\\\"teleport\\\"],\\\"teleports\\\":4,",
    );
    fs::write(&source, later).unwrap();
    // `plugin build` already reports the error, and writes the file nevertheless.
    let words = ["\"teleport\"", "this router does not offer", "offered there: flow-state, "];
    let built = run_to_end(&line.r, &["plugin", "build", folder.to_str().unwrap()]);
    assert!(built.code == Some(1) && words.iter().all(|word| built.stderr.contains(word)), "{built:?}");
    for ask in [["plugin", "load"], ["plugin", "inspect"], ["plugin", "test"]] {
        router.try_ask(&[&ask[..], &[&module]].concat()).assert_refused(1, &words);
    }
    assert_eq!(router.json(&["plugin", "list"]), before);
}

/// Returns a router with a counter bound to packets. A further version of its plugin is built as a file.
fn with_counter(line: &Line) -> Millrace {
    let old =
        COUNTER.replace("int32_t millrace_save(void) {", "int32_t millrace_save(void) { __builtin_trap();");
    let module = build_source(line, "counter", "0.1.0", COUNTER_KEYS, &old);
    let router = router(line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &module]);
    router.ask(&["instance", "create", "counter", "c"]);
    router.ask(&["bind", "c", "--gate", "monitor", "--filter", "proto udp"]);
    router
}

#[test]
fn upgrade_in_which_the_old_version_faults_keeps_it_running() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let router = with_counter(&line);
    let new = build_source(&line, "counter", "0.2.0", COUNTER_KEYS, COUNTER);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    for _ in 0..20 {
        router.try_ask(&["plugin", "upgrade", "counter", &new]).assert_refused(
            1,
            &["instance \"c\"", "the old instance hands over no state", "unreachable", "0.1.0 keeps running"],
        );
        let row = router.row("instances", "name", "c");
        assert_eq!(row["health"], "well", "{row}");
    }
    let flow = flow.finish();
    assert_eq!((router.drops("plugin_failed"), flow.reordered), (0, 0), "{flow:?}");
    assert_eq!(router.row("plugins", "name", "counter")["version"], "0.1.0");
    // With `--without-state` the upgrade works, and the new version starts without the old state.
    router.ask(&["plugin", "upgrade", "counter", &new, "--without-state"]);
    assert_eq!(read(&router, "c", "packets"), 0);
    router.try_ask(&["plugin", "load", &new]).assert_refused(1, &["\"counter\"", "upgrade it"]);
    let trial = router.try_ask(&["plugin", "upgrade", "counter", &new, "--shadow", "0"]);
    assert!(trial.code == Some(2) && trial.stderr.contains("--shadow"), "{trial:?}");
    router.assert_conservation();
}

#[test]
fn a_trial_of_a_plugin_that_fails_is_a_failure() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let test = |source: &str, version: &str, more: &[&str]| {
        let module = build_source(&line, "tried", version, COUNTER_KEYS, source);
        run_to_end(&line.r, &[&["plugin", "test", &module], more].concat())
    };
    let well = test(COUNTER, "0.1.0", &["--control", "read"]);
    assert_eq!(well.code, Some(0), "{well:?}");
    let refused = test(COUNTER, "0.1.1", &["--control", "raed"]);
    refused.assert_refused(1, &["plugin tried: 1 message was refused"]);
    let traps = COUNTER.replace("packets += call->count;", "__builtin_trap();");
    test(&traps, "0.1.2", &[]).assert_refused(1, &["1 call failed"]);
    test(COUNTER, "0.1.3", &["--settings", "a=1"]).assert_refused(1, &["a", "the plugin takes no settings"]);
}
