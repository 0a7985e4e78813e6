//! Death of the router while it writes the version record of plugins.

use millrace_testkit::{Background, Ground, Line, Millrace, eventually, run_to_end};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source};

/// System calls that replace the record's file, in order: write the new file, sync it, rename it, and sync
/// the directory.
const STEPS: [&str; 4] = ["write", "fsync", "rename", "fsync"];

/// Starts a tracer that kills the router when it enters the system call of a step. Only calls on the record's
/// files count.
fn die_at(line: &Line, router: &Millrace, step: usize) -> Background {
    let call = STEPS[step];
    let when = 1 + STEPS[..step].iter().filter(|earlier| **earlier == call).count();
    let (state, pid) = (line.file("state"), router.pid().to_string());
    let paths = [state.clone(), state.join("plugin-versions.new"), state.join("plugin-versions.json")];
    let paths = paths.map(|path| path.display().to_string());
    let inject = format!("inject={call}:signal=KILL:when={when}");
    let mut arguments = vec!["-f", "-p", &pid, "-e", "trace=write,fsync,rename", "-e", &inject];
    paths.iter().for_each(|path| arguments.extend(["-P", path]));
    let tracer = Background::start(&line.r, "strace", &arguments, line.file("strace.log"));
    eventually("the router is watched", std::time::Duration::from_secs(5), || {
        tracer.log().contains("attached").then_some(())
    });
    tracer
}

#[test]
fn router_killed_while_recording_a_version_knows_the_old_or_the_new_one() {
    let Some(_ground) = Ground::enter(&["clang", "strace"]) else { return };
    let line = Line::new();
    let key = line.file("test.key").display().to_string();
    let made = run_to_end(&line.r, &["plugin", "keygen", "--out", &key, "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let modules: Vec<String> = (0..=STEPS.len())
        .map(|number| {
            let module = build_source(&line, "kept", &format!("1.{number}.0"), COUNTER_KEYS, COUNTER);
            let signed = run_to_end(&line.r, &["plugin", "sign", &module, "--key", &key]);
            assert_eq!(signed.code, Some(0), "{signed:?}");
            module
        })
        .collect();
    let config = format!(
        "[plugins]\nstate = \"{}\"\nkeys = [{}]\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n",
        line.file("state").display(),
        made["key"]
    );
    let config = line.write("router.toml", &config);
    let start = || Millrace::start(&line.r, &format!("--config {}", config.display()));
    start().ask(&["plugin", "load", &modules[0]]);
    for (step, call) in STEPS.iter().enumerate() {
        let mut router = start();
        let tracer = die_at(&line, &router, step);
        let load = router.try_ask(&["plugin", "load", &modules[step + 1]]);
        assert_ne!(load.code, Some(0), "it died at {call}: {load:?}");
        router.wait_for_end();
        drop(tracer);
        let router = start();
        assert!(!router.log().contains("can't be read"), "after {call}: {}", router.log());
        let kept = std::fs::read_to_string(line.file("state/plugin-versions.json")).unwrap();
        // The file has changed only if the router died in the last step.
        let (old, new) = (format!("1.{step}.0"), format!("1.{}.0", step + 1));
        let expected = if step == STEPS.len() - 1 { &new } else { &old };
        assert!(kept.contains(expected), "after {call}: {kept}");
        // The router knows the version of the last record, and records the next loaded version.
        router.ask(&["plugin", "load", &modules[step + 1]]);
        router.ask(&["plugin", "unload", "kept"]);
        router.try_ask(&["plugin", "load", &modules[step]]).assert_refused(1, &[&old, &new]);
    }
}
