//! Tests of valid and invalid settings of plugin files. Each error must give the remedy.

use std::time::Duration;

use millrace_config::{Config, ObjectRuntime, Submission};

fn refused(text: &str) -> String {
    match Config::parse(text, "f") {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_watchdog_waits_a_second_by_default() {
    let watchdog = |text: &str| Config::parse(text, "f").unwrap().plugins.watchdog.duration();
    assert_eq!(watchdog(""), Duration::from_secs(1));
    assert_eq!(watchdog("[plugins]\nwatchdog = \"0s\"\n"), Duration::ZERO);
    assert_eq!(watchdog("[plugins]\nwatchdog = \"60s\"\n"), Duration::from_secs(60));
    for wrong in ["1", "99", "0", "\"99ms\"", "\"61s\"", "\"-1s\""] {
        let error = refused(&format!("[plugins]\nwatchdog = {wrong}\n"));
        assert!(error.contains("f:2"), "{error}");
    }
    assert!(refused("[plugins]\nwatchdog = \"99ms\"\n").contains("100ms to 60s, or 0s"));
}

#[test]
fn plugin_file_needs_an_absolute_path() {
    let config = Config::parse("[[plugin]]\nfile = \"/a/b.wasm\"\n", "f").unwrap();
    assert_eq!(
        (config.plugin[0].file.to_str(), config.plugin[0].allow_downgrade),
        (Some("/a/b.wasm"), false)
    );
    assert!(
        refused("[[plugin]]\nfile = \"b.wasm\"\n")
            .contains("plugin file \"b.wasm\" is relative: give an absolute path")
    );
    assert!(refused("[[plugin]]\nallow-downgrade = true\n").contains("file"));
    assert!(refused("[[plugin]]\npath = \"/a\"\n").contains("path"));
}

#[test]
fn shared_object_runs_in_a_process_unless_the_configuration_says_otherwise() {
    let runtime = |line: &str| {
        let config = Config::parse(&format!("[[plugin]]\nfile = \"/a/b.so\"\n{line}"), "f").unwrap();
        config.plugin[0].runtime
    };
    assert_eq!(runtime(""), ObjectRuntime::Process);
    assert_eq!(runtime("runtime = \"process\"\n"), ObjectRuntime::Process);
    assert_eq!(runtime("runtime = \"in-process\"\n"), ObjectRuntime::InProcess);
    let error = refused("[[plugin]]\nfile = \"/a/b.so\"\nruntime = \"thread\"\n");
    assert!(error.contains("thread") && error.contains("in-process"), "{error}");
    // A loaded plugin keeps its runtime.
    let [none, one, other] = [
        "",
        "[[plugin]]\nfile = \"/a/b.so\"\n",
        "[[plugin]]\nfile = \"/a/b.so\"\nruntime = \"in-process\"\n",
    ]
    .map(|text| Config::parse(text, "f").unwrap().normalized());
    let commands: Vec<_> = none.difference(&other).changes.iter().map(ToString::to_string).collect();
    assert_eq!(commands, ["plugin load /a/b.so --runtime in-process"]);
    let changed = one.difference(&other);
    assert!(changed.changes.is_empty());
    let restart = changed.restart_message(Submission::File).to_string();
    assert_eq!(restart, "plugin \"/a/b.so\": runtime: \"process\" runs, and the file says \"in-process\"");
}

#[test]
fn limits_of_instances_have_ranges() {
    let plugins = Config::parse(
        "[plugins]\nslice = \"100us\"\nmemory = \"16MiB\"\nfaults = 3\nfault-window = \"10s\"\n",
        "f",
    )
    .unwrap()
    .plugins;
    assert_eq!((plugins.slice.microseconds(), plugins.memory.bytes(), plugins.faults), (100, 16 << 20, 3));
    assert_eq!(plugins.fault_window.duration(), Duration::from_secs(10));
    for (wrong, right) in [
        ("slice = 50", "\"50\" has no unit: write \"50us\""),
        ("slice = \"9us\"", "the time must be 10us to 10ms, not \"9us\""),
        ("memory = 4", "\"4\" has no unit: write \"4MiB\""),
        ("memory = \"0B\"", "the size must be 1MiB to 1GiB, not \"0B\""),
        ("faults = 1001", "plugins.faults must be 1 to 1000, not 1001"),
        ("fault-window = \"0s\"", "the time must be 1s to 24h, not \"0s\""),
    ] {
        let error = refused(&format!("[plugins]\n{wrong}\n"));
        assert!(error.contains(right), "{error}");
    }
}
