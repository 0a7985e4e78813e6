//! What is said of plugins that are files: what is read, and what is refused with its remedy.

use std::time::Duration;

use millrace_config::Config;

fn refused(text: &str) -> String {
    match Config::parse(text, "f") {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_watchdog_waits_a_second_or_as_it_is_told() {
    let watchdog = |text: &str| Config::parse(text, "f").unwrap().plugins.watchdog.duration();
    assert_eq!(watchdog(""), Duration::from_secs(1));
    assert_eq!(watchdog("[plugins]\nwatchdog = 0\n"), Duration::ZERO);
    assert_eq!(watchdog("[plugins]\nwatchdog = 60000\n"), Duration::from_secs(60));
    for wrong in ["1", "99", "60001", "-1", "\"1 s\""] {
        let error = refused(&format!("[plugins]\nwatchdog = {wrong}\n"));
        assert!(error.contains("f:2"), "{error}");
    }
    assert!(refused("[plugins]\nwatchdog = 99\n").contains("100 to 60000 milliseconds, or 0"));
}

#[test]
fn a_plugin_is_a_file_by_its_whole_path() {
    let config = Config::parse("[[plugin]]\nfile = \"/a/b.wasm\"\n", "f").unwrap();
    assert_eq!(
        (config.plugin[0].file.to_str(), config.plugin[0].allow_downgrade),
        (Some("/a/b.wasm"), false)
    );
    assert!(refused("[[plugin]]\nfile = \"b.wasm\"\n").contains("plugin b.wasm: give the whole path"));
    assert!(refused("[[plugin]]\nallow-downgrade = true\n").contains("file"));
    assert!(refused("[[plugin]]\npath = \"/a\"\n").contains("path"));
}

#[test]
fn limits_of_instances_have_ranges() {
    let plugins = Config::parse("[plugins]\nslice = 100\nmemory = 16\nfaults = 3\nfault-window = 10\n", "f")
        .unwrap()
        .plugins;
    assert_eq!((plugins.slice, plugins.memory, plugins.faults, plugins.fault_window), (100, 16, 3, 10));
    for (wrong, right) in [
        ("slice = 9", "plugins.slice = 9: it takes 10 to 10000 microseconds"),
        ("memory = 0", "plugins.memory = 0: it takes 1 to 1024 MiB"),
        ("faults = 1001", "plugins.faults = 1001: it takes 1 to 1000"),
        ("fault-window = 0", "plugins.fault-window = 0: it takes 1 to 86400 seconds"),
    ] {
        let error = refused(&format!("[plugins]\n{wrong}\n"));
        assert!(error.contains(right), "{error}");
    }
}
