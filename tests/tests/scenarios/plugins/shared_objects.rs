//! Plugins as shared objects in a forwarding router.

use std::path::Path;
use std::time::Duration;

use millrace_testkit::built::{Format, Options, built_plugin};
use millrace_testkit::{Background, Flow, Ground, Line, Millrace, eventually, run_to_end};
use nix::sys::signal::Signal;

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_for, build_source, build_source_for, read};
use crate::support::reference::LONGEST_GAP;
use crate::support::{router, to};

/// Starts a router that loads shared objects on both devices; `more` goes into the table `[plugins]`.
pub fn trusting(line: &Line, more: &str) -> Millrace {
    let config = format!(
        "[plugins]\nshared-objects = \"allow\"\n{more}\n\
         [[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n"
    );
    let config = line.write("router.toml", &config);
    Millrace::start(&line.r, &format!("--config {}", config.display()))
}

fn leftovers(router: &Millrace) -> u64 {
    router.json(&["show", "status"])["leftover_objects"].as_u64().unwrap_or(0)
}

#[test]
fn a_shared_object_is_loaded_treats_traffic_and_is_unloaded() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    let line = Line::new();
    let object = build_for(&line, "native", "hello", |source| source);
    let object = object.to_str().unwrap();
    let router = trusting(&line, "");
    line.h1.run("ping -c 1 10.2.0.2");
    let said = router.ask(&["plugin", "load", object, "--runtime", "in-process"]);
    assert!(said.contains("hello 0.1.0 loaded, unsigned; trusted: a shared object"), "{said}");
    // The router runs a copy of the object and no longer needs the file.
    std::fs::write(object, "no object").unwrap();
    router.ask(&["instance", "create", "hello", "i1", "longest=300"]);
    router.ask(&["instance", "create", "hello", "i2"]);
    router.ask(&["bind", "i1", "--gate", "monitor", "--filter", "proto udp dport 9000-9001"]);
    let short = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let long = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 900);
    short.go_on(Duration::from_millis(300));
    short.wait_for_arrival();
    let (short, long) = (short.finish(), long.finish());
    assert_eq!((short.lost(), short.reordered, short.duplicated), (0, 0, 0), "{short:?}");
    assert_eq!((long.received, read(&router, "i1", "dropped")), (0, long.sent));
    assert_eq!(read(&router, "i1", "packets"), short.sent + long.sent);
    assert_eq!(read(&router, "i2", "packets"), 0, "variables are those of one instance");
    router.try_ask(&["plugin", "unload", "hello"]).assert_refused(1, &["hello", "i1"]);
    let before = leftovers(&router);
    router.ask(&["instance", "free", "i1"]);
    router.ask(&["instance", "free", "i2"]);
    router.ask(&["plugin", "unload", "hello"]);
    assert_eq!(leftovers(&router), before + 2, "a copy for each instance stays");
    // No binding is left, so the flow passes without the instance.
    let long = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 900);
    long.wait_for_arrival();
    assert_eq!(long.finish().lost(), 0);
    let log = router.log();
    assert!(log.contains("plugin hello is trusted: a shared object, not sandboxed"), "{log}");
    router.assert_conservation();
}

#[test]
fn a_shared_object_in_rust_counts_live_traffic() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cargo"]) else { return };
    let line = Line::new();
    let project = std::path::absolute("../examples/plugins/statistics-rs").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let result = Some(line.directory.path().to_owned());
    let options = Options { target: Some(target), result, machine: None };
    let Some(built) = built_plugin(&project, Format::Native, &options) else { return };
    let router = trusting(&line, "");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", built.file.to_str().unwrap(), "--runtime", "in-process"]);
    router.ask(&["instance", "create", "statistics-rs", "s"]);
    router.ask(&["bind", "s", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(300));
    flow.wait_for_arrival();
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    let read = router.json(&["control", "s", "read"]);
    assert_eq!(read["protocols"]["17"]["packets"], report.sent, "{read}");
    // The router shows the plugin's own refusals to the operator, and keeps no instance.
    router
        .try_ask(&["instance", "create", "statistics-rs", "t", "by-protocol=3"])
        .assert_refused(1, &["by-protocol"]);
    router.assert_conservation();
}

#[test]
fn shared_objects_are_refused_unless_configured() {
    let Some(_ground) = Ground::enter(&["cc"]) else { return };
    let line = Line::new();
    let object = build_for(&line, "native", "hello", |source| source);
    let router = router(&line);
    let load = router.try_ask(&["plugin", "load", object.to_str().unwrap()]);
    load.assert_refused(1, &["runs without a sandbox", "shared-objects = \"allow\""]);
    assert_eq!(leftovers(&router), 0, "nothing of it was loaded");
}

#[test]
fn a_shared_object_is_upgraded_and_rolled_back_under_load_without_a_loss() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc", "clang"]) else { return };
    let line = Line::new();
    let object = |version| build_source_for(&line, "native", ("counter", version), COUNTER_KEYS, COUNTER);
    let [first, second] = ["1.0.0", "1.1.0"].map(object);
    let contained = build_source(&line, "counter", "1.2.0", COUNTER_KEYS, COUNTER);
    let router = trusting(&line, "");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &first, "--runtime", "in-process"]);
    router.ask(&["instance", "create", "counter", "i1"]);
    router.ask(&["bind", "i1", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
    for file in [&second, &first, &contained, &second] {
        router.ask(&["plugin", "upgrade", "counter", file]);
        flow.go_on(Duration::from_millis(50));
    }
    assert_eq!(router.row("plugins", "name", "counter")["version"], "1.1.0");
    let before = leftovers(&router);
    router.ask(&["plugin", "rollback", "counter"]);
    assert_eq!(router.row("plugins", "name", "counter")["runtime"], "sandboxed: a WebAssembly module");
    assert_eq!(leftovers(&router), before + 1);
    flow.wait_for_arrival();
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    assert_eq!(read(&router, "i1", "packets"), flow.received);
    router.assert_conservation();
}

/// Builds a counter that runs the code `does` in each packet call; `headers` are the includes of that code.
/// Returns its file name.
fn counter_that(line: &Line, name: &str, version: &str, headers: &str, does: &str) -> String {
    let source = COUNTER.replace("packets += call->count;", &format!("{does}\n    packets += call->count;"));
    build_source_for(line, "native", (name, version), COUNTER_KEYS, &format!("{headers}\n{source}"))
}

/// Starts a router with an instance `p1` of the shared object `file`, which treats packets to port 9001.
fn with_process(line: &Line, name: &str, file: &str) -> Millrace {
    let router = trusting(line, "");
    line.h1.run("ping -c 1 10.2.0.2");
    let said = router.ask(&["plugin", "load", file]);
    assert!(said.contains("confined: a shared object in a process of its own"), "{said}");
    router.ask(&["instance", "create", name, "p1"]);
    router.ask(&["bind", "p1", "--gate", "process", "--filter", "dport 9001", "--on-fault", "bypass"]);
    router
}

#[test]
fn crash_of_a_process_costs_no_packet_of_other_flows_and_leads_to_quarantine() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    for does in ["__builtin_trap();", "*(volatile int *)8 = 1;", "_exit(0);", "for (volatile int i = 1; i;);"]
    {
        let line = Line::new();
        let file = counter_that(&line, "crashes", "1.0.0", "#include <unistd.h>", does);
        let router = with_process(&line, "crashes", &file);
        let victim = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 64);
        let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 1000, 64);
        eventually("it is in quarantine", Duration::from_secs(30), || {
            (router.row("instances", "name", "p1")["health"] == "quarantined").then_some(())
        });
        // The instance in quarantine treats no packet, so its binding bypasses them.
        victim.go_on(Duration::from_millis(200));
        let (victim, bystander) = (victim.finish(), bystander.finish());
        assert!(victim.received > 0, "{victim:?}");
        assert_eq!((bystander.lost(), bystander.reordered), (0, 0), "{does}: {bystander:?}");
        let instance = router.row("instances", "name", "p1");
        let fault = instance["last_fault"].as_str().unwrap_or_default();
        assert!(fault.contains("process"), "{does}: {instance}");
        router.assert_conservation();
    }
}

#[test]
fn process_is_upgraded_under_load_without_a_loss_and_ends_with_its_instance() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    let line = Line::new();
    let object = |version| build_source_for(&line, "native", ("counter", version), COUNTER_KEYS, COUNTER);
    let [first, second] = ["1.0.0", "1.1.0"].map(object);
    let router = with_process(&line, "counter", &first);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 2000, 64);
    for file in [&second, &first, &second] {
        router.ask(&["plugin", "upgrade", "counter", file]);
        flow.go_on(Duration::from_millis(50));
    }
    flow.wait_for_arrival();
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    assert_eq!(read(&router, "p1", "packets"), flow.received);
    router.ask(&["instance", "free", "p1"]);
    router.ask(&["plugin", "unload", "counter"]);
    assert_eq!(leftovers(&router), 0, "no code was loaded into the router");
    router.assert_conservation();
}

#[test]
fn a_call_that_never_returns_ends_the_router_and_the_next_start_keeps_the_instance_in_quarantine() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    for (headers, does) in
        [("", "for (volatile int forever = 1; forever;);"), ("#include <unistd.h>", "for (;;) pause();")]
    {
        let line = Line::new();
        let hangs = counter_that(&line, "hangs", "1.0.0", headers, does);
        let right = build_source_for(&line, "native", ("hangs", "1.0.1"), COUNTER_KEYS, COUNTER);
        let start = || {
            let more = format!(
                "watchdog = \"400ms\"\nstate = \"{}\"\n[router]\non-death = \"kernel\"\n\
                 [[plugin]]\nfile = \"{hangs}\"\nruntime = \"in-process\"\n[[instance]]\nplugin = \"hangs\"\nname = \"h1\"\n[[bind]]\n\
                 instance = \"h1\"\ngate = \"process\"\nfilter = \"dport 9001\"\non-fault = \"bypass\"",
                line.file("state").display()
            );
            trusting(&line, &more)
        };
        let mut first = start();
        line.h1.run("ping -c 1 10.2.0.2");
        let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
        bystander.wait_for_arrival();
        let victim = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 64);
        assert_eq!(first.wait_for_end().code(), Some(3));
        // Now the kernel forwards both flows.
        bystander.wait_for_arrival();
        victim.wait_for_arrival();
        let log = first.log();
        let words = ["\"h1\"", "did not return within 400 ms: the router ends", "instance release h1"];
        assert!(words.iter().all(|word| log.contains(word)), "{log}");
        let second = start();
        let log = second.log();
        let held = "the instance is in quarantine: a call of the instance did not return within 400 ms";
        assert!(log.contains(held), "{log}");
        assert_eq!(second.row("instances", "name", "h1")["health"], "quarantined");
        let held = second.row("quarantine", "instance", "h1");
        assert_eq!((&held["plugin"], &held["exists"]), (&"hangs".into(), &true.into()), "{held}");
        // With `on-fault = "bypass"`, packets bypass the instance in quarantine.
        victim.wait_for_arrival();
        bystander.go_on(Duration::from_millis(500));
        let report = bystander.finish();
        println!("a call that hangs: {report:?}");
        // The gap: time limit of the call, two watchdog periods, takeovers by the kernel and by the next router.
        let hung = Duration::from_millis(400 + 2 * 50) + LONGEST_GAP;
        assert!(report.longest_loss <= hung && report.total_loss <= hung + LONGEST_GAP, "{report:?}");
        // Neither a rename nor an upgrade ends the quarantine.
        second.ask(&["instance", "rename", "h1", "h2"]);
        assert_eq!(second.row("quarantine", "instance", "h2")["exists"], true);
        second.ask(&["plugin", "upgrade", "hangs", &right]);
        assert_eq!(second.row("instances", "name", "h2")["health"], "quarantined");
        second.try_ask(&["control", "h2", "read"]).assert_refused(1, &["in quarantine"]);
        second.ask(&["instance", "release", "h2"]);
        assert_eq!(second.row("instances", "name", "h2")["health"], "well");
        victim.wait_for_arrival();
        assert!(read(&second, "h2", "packets") > 0);
        second.try_ask(&["instance", "release", "h2"]).assert_refused(1, &["h2", "not in quarantine"]);
        assert_eq!(second.json(&["show", "quarantine"]), serde_json::json!([]));
        drop(victim);
        second.assert_conservation();
    }
}

/// Writes a configuration with an instance `c1` of the plugin `crashes`. Returns its file name.
fn with_crashing_instance(line: &Line, crashes: &str) -> String {
    let config = format!(
        "[plugins]\nshared-objects = \"allow\"\nstate = \"{}\"\n[router]\non-death = \"kernel\"\n\
         [[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n\
         [[plugin]]\nfile = \"{crashes}\"\nruntime = \"in-process\"\n[[instance]]\nplugin = \"crashes\"\nname = \"c1\"\n[[bind]]\n\
         instance = \"c1\"\ngate = \"process\"\nfilter = \"dport 9001\"\non-fault = \"bypass\"\n",
        line.file("state").display()
    );
    line.write("router.toml", &config).display().to_string()
}

#[test]
fn crashing_call_ends_the_router_by_its_signal_and_quarantines_the_instance_at_the_next_start() {
    use std::os::unix::process::ExitStatusExt as _;
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    let headers = "#include <stdlib.h>";
    let wrong_address = "*(volatile int *)8 = 1;";
    for (does, signal, in_init) in [
        (wrong_address, Signal::SIGSEGV, false),
        ("abort();", Signal::SIGABRT, false),
        ("__builtin_trap();", Signal::SIGILL, false),
        (wrong_address, Signal::SIGSEGV, true),
    ] {
        let line = Line::new();
        let crashes = if in_init {
            let begins = "int32_t millrace_init(const uint8_t *settings, size_t bytes) {";
            let source = COUNTER.replace(begins, &format!("{begins} {does}"));
            assert_ne!(source, COUNTER);
            build_source_for(&line, "native", ("crashes", "1.0.0"), COUNTER_KEYS, &source)
        } else {
            counter_that(&line, "crashes", "1.0.0", headers, does)
        };
        let config = with_crashing_instance(&line, &crashes);
        let arguments = format!("--config {config}");
        let flow = || Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 64);
        let (victim, log) = match Millrace::try_start(&line.r, &arguments) {
            Err(ended) if in_init => {
                assert_eq!(ended.code, None, "it ends by a signal: {ended:?}");
                (flow(), ended.stderr)
            }
            Err(ended) => panic!("{does}: {ended:?}"),
            Ok(mut first) => {
                line.h1.run("ping -c 1 10.2.0.2");
                let victim = flow();
                eprintln!("it is to end by {signal}");
                assert_eq!(first.wait_for_end().signal(), Some(signal as i32), "{does}");
                (victim, first.log())
            }
        };
        // Now the kernel forwards the flow.
        victim.wait_for_arrival();
        let words = ["instance \"c1\" (plugin crashes) crashed: the router ends", "instance release c1"];
        assert!(words.iter().all(|word| log.contains(word)), "{log}");
        let second = Millrace::start(&line.r, &arguments);
        assert_eq!(second.row("instances", "name", "c1")["health"], "quarantined");
        let held = second.row("quarantine", "instance", "c1");
        let why = format!("a call of the instance crashed (signal {}), ending the router", signal as i32);
        assert_eq!((&held["plugin"], &held["why"]), (&"crashes".into(), &why.into()), "{held}");
        victim.wait_for_arrival();
        drop(victim);
        second.ask(&["instance", "free", "c1"]);
        assert_eq!(second.json(&["show", "quarantine"]), serde_json::json!([]));
        second.assert_conservation();
        drop(second);
        // The next start has used the crash record and emptied it.
        assert_eq!(std::fs::read_to_string(line.file("state/crashes")).unwrap(), "");
    }
}

#[test]
fn plugins_of_the_configuration_are_there_from_the_start() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang", "cc"]) else { return };
    let line = Line::new();
    let module = build_source(&line, "first", "1.0.0", COUNTER_KEYS, COUNTER);
    let object = build_source_for(&line, "native", ("second", "1.0.0"), COUNTER_KEYS, COUNTER);
    let files = |first: &str, second: &str| {
        format!(
            "[router]\non-death = \"kernel\"\n[[plugin]]\nfile = \"{first}\"\n[[plugin]]\nfile = \"{second}\"\n\
             [[instance]]\nplugin = \"first\"\nname = \"i1\"\n[[instance]]\nplugin = \"second\"\nname = \"i2\"\n\
             [[bind]]\ninstance = \"i1\"\ngate = \"monitor\"\nfilter = \"proto udp\"\n\
             [[bind]]\ninstance = \"i2\"\ngate = \"process\"\nfilter = \"proto udp\""
        )
    };
    let router = trusting(&line, &files(&module, &object));
    line.h1.run("ping -c 1 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(500));
    flow.wait_for_arrival();
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    assert_eq!((read(&router, "i1", "packets"), read(&router, "i2", "packets")), (report.sent, report.sent));
    let log = router.log();
    // Optimised code of a configured plugin is ready later, as after `plugin load`.
    eventually("optimised code is there", Duration::from_secs(20), || {
        let log = router.log();
        let words = ["plugin first: optimised code is ready", "plugin first: optimised code, "];
        words.iter().any(|word| log.contains(word)).then_some(())
    });
    assert!(
        log.contains("plugin first 1.0.0 loaded from")
            && log.contains("second is confined: a shared object in a process"),
        "{log}"
    );
    router.assert_conservation();
    drop(router);
    // The router doesn't start with a plugin that it can't load. Both the start and `check` name the file.
    let text = line.write("text.wasm", "no module").display().to_string();
    for (first, words) in [(&*text, ["text.wasm", "module"]), ("first.wasm", ["first.wasm", "absolute"])] {
        let config = format!("[plugins]\nshared-objects = \"allow\"\n{}", files(first, &object));
        let config =
            line.write("wrong.toml", &format!("{config}\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n"));
        let path = config.to_str().unwrap();
        for arguments in [&["check", path][..], &["run", "--config", path]] {
            run_to_end(&line.r, arguments).assert_refused(1, &words);
        }
    }
}

#[test]
fn a_slow_call_a_router_that_was_stopped_and_a_busy_machine_are_no_reason_to_end() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    let line = Line::new();
    let slow = counter_that(
        &line,
        "slow",
        "1.0.0",
        "#include <time.h>",
        "clock_t begin = clock();
         while (clock() - begin < CLOCKS_PER_SEC / 10);",
    );
    let mut router = trusting(&line, "watchdog = \"400ms\"");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["plugin", "load", &slow, "--runtime", "in-process"]);
    router.ask(&["instance", "create", "slow", "s"]);
    router.ask(&["bind", "s", "--gate", "process", "--filter", "dport 9001"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 20, 64);
    // The instance is in a call almost all the time, so that a stop interrupts a call.
    flow.go_on(Duration::from_secs(1));
    for _ in 0..3 {
        router.signal(Signal::SIGSTOP);
        flow.go_on(Duration::from_millis(900));
        router.signal(Signal::SIGCONT);
        flow.go_on(Duration::from_millis(300));
    }
    flow.wait_for_arrival();
    // On busy processors each call takes longer than the time limit, although its processor time is below.
    let busy = ["6", "sh", "-c", "while :; do :; done"];
    let others: Vec<_> = (0..12)
        .map(|number| Background::start(&line.h1, "timeout", &busy, line.file(&format!("busy{number}.log"))))
        .collect();
    flow.go_on(Duration::from_secs(5));
    drop(others);
    assert!(router.is_running(), "{}", router.log());
    drop(flow);
    assert!(read(&router, "s", "packets") > 10);
}
