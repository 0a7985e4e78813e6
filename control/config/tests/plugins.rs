//! Reading and rejection of settings of plugin files, with the remedy in each error.

use std::time::Duration;

use millrace_config::Config;

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
        ("slice = \"9us\"", "\"9us\" is out of range: 10us to 10ms"),
        ("memory = 4", "\"4\" has no unit: write \"4MiB\""),
        ("memory = \"0B\"", "\"0B\" is out of range: 1MiB to 1GiB"),
        ("faults = 1001", "plugins.faults = 1001 is out of range: give 1 to 1000"),
        ("fault-window = \"0s\"", "\"0s\" is out of range: 1s to 24h"),
    ] {
        let error = refused(&format!("[plugins]\n{wrong}\n"));
        assert!(error.contains(right), "{error}");
    }
}
