//! Plugins on live traffic: from an empty folder to packets, and what one that misbehaves can't do.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually, run_to_end};

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(5);

/// Writes and builds a plugin, as its author does; `change` changes its source.
fn build(line: &Line, name: &str, change: impl FnOnce(String) -> String) -> PathBuf {
    let folder = line.write("here", "").with_file_name(name);
    let path = folder.display().to_string();
    let new = run_to_end(&line.r, &["plugin", "new", name, "--lang", "c", "--dir", &path]);
    assert_eq!(new.code, Some(0), "{new:?}");
    let source = folder.join("plugin.c");
    let text = change(fs::read_to_string(&source).unwrap());
    fs::write(&source, text).unwrap();
    let built = run_to_end(&line.r, &["plugin", "build", &path]);
    assert_eq!(built.code, Some(0), "{built:?}");
    folder.join(format!("{name}.wasm"))
}

fn read(router: &Millrace, instance: &str, key: &str) -> u64 {
    router.json(&["control", instance, "read"])[key].as_u64().unwrap()
}

#[test]
fn a_new_plugin_is_built_loaded_and_sees_live_traffic() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
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
    // In use it stays; freed and unloaded it is gone.
    router.try_ask(&["plugin", "unload", "hello"]).assert_refused(1, &["hello", "i1"]);
    router.ask(&["instance", "free", "i1"]);
    router.ask(&["plugin", "unload", "hello"]);
    router.try_ask(&["instance", "create", "hello", "i2"]).assert_refused(1, &["hello"]);
    router.assert_conservation();
}

#[test]
fn a_plugin_that_loops_traps_or_lies_harms_no_other_flow() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
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
    let bystander = bystander.finish();
    let missed = router.drops("receive_ring_full");
    assert!(bystander.lost() <= missed, "{bystander:?} {missed}");
    assert_eq!((bystander.reordered, bystander.duplicated), (0, 0), "{bystander:?}");
    router.assert_conservation();
}

#[test]
fn what_is_no_plugin_is_refused_and_changes_nothing() {
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
    router.try_ask(&["plugin", "load", pipe.to_str().unwrap()]).assert_refused(1, &["no regular file"]);
    router.try_ask(&["plugin", "unload", "nul"]).assert_refused(1, &["did you mean \"null\"?"]);
    assert_eq!(router.json(&["plugin", "list"]), before);
}

#[test]
fn with_a_key_in_the_configuration_only_what_it_signed_is_loaded() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let versions = ["0.1.0", "0.2.0"].map(|version| {
        let name = format!("v{}", version.replace('.', "-"));
        let module = build(&line, &name, |source| {
            source.replace(&name, "signed").replace("\\\"0.1.0", &format!("\\\"{version}"))
        });
        module.display().to_string()
    });
    let key = line.write("here", "").with_file_name("test.key").display().to_string();
    let made = run_to_end(&line.r, &["plugin", "keygen", "--out", &key, "--json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let config = format!(
        "[plugins]\nkeys = [{}]\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n",
        made["key"]
    );
    let config = line.write("router.toml", &config);
    let router = Millrace::start(&line.r, &format!("--config {}", config.display()));
    let [old, new] = &versions;
    router.try_ask(&["plugin", "load", new]).assert_refused(1, &["unsigned"]);
    for module in &versions {
        let signed = run_to_end(&line.r, &["plugin", "sign", module, "--key", &key]);
        assert_eq!(signed.code, Some(0), "{signed:?}");
    }
    let id = made["id"].as_str().unwrap();
    assert!(
        router.ask(&["plugin", "load", new]).contains(&format!("signed 0.2.0 is loaded, signed by {id}"))
    );
    assert_eq!(router.row("plugins", "name", "signed")["signature"], format!("signed by {id}"));
    router.ask(&["plugin", "unload", "signed"]);
    router.try_ask(&["plugin", "load", old]).assert_refused(1, &["0.1.0", "0.2.0", "--allow-downgrade"]);
    router.ask(&["plugin", "load", old, "--allow-downgrade"]);
    let log = router.log();
    assert!(log.contains("plugin refused") && log.contains("plugin signed 0.2.0 loaded from"), "{log}");
}

#[test]
fn packets_are_delayed_as_long_as_they_are_told_to() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "delay", "far", "ms=20"]);
    router.ask(&["bind", "far", "--gate", "process", "--filter", "proto icmp"]);
    let times = line.h1.run("ping -c 10 -i 0.05 10.2.0.2");
    let average =
        times.lines().find_map(|line| line.split_once(" = ")?.1.split('/').nth(1)?.parse::<f64>().ok());
    // Forth and back.
    assert!((40.0..44.0).contains(&average.unwrap()), "{times}");
    assert_eq!(read(&router, "far", "packets"), 20);
    router.assert_conservation();
}
