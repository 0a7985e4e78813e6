//! Plugins as executables in a forwarding router.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually, run_to_end};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source_for, read};
use crate::plugins::shared_objects::trusting;
use crate::support::to;

const RUNTIME: &str = "confined: an executable in a process of its own";

/// Builds the counter as an executable that runs the code `does` in each packet call. Returns its file name.
fn counter(line: &Line, version: &str, does: &str) -> String {
    let source = COUNTER.replace("packets += call->count;", &format!("{does}\n    packets += call->count;"));
    build_source_for(line, "executable", ("counter", version), COUNTER_KEYS, &source)
}

/// Starts a router with an instance `p1` of the executable `file`, which treats packets to port 9001.
fn with_instance(line: &Line, file: &str) -> Millrace {
    let router = trusting(line, "");
    line.h1.run("ping -c 1 10.2.0.2");
    let said = router.ask(&["plugin", "load", file]);
    assert!(said.contains(RUNTIME), "{said}");
    router.ask(&["instance", "create", "counter", "p1"]);
    router.ask(&["bind", "p1", "--gate", "process", "--filter", "dport 9001", "--on-fault", "bypass"]);
    router
}

#[test]
fn executable_is_upgraded_to_an_object_and_back_under_load_without_a_loss() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    let line = Line::new();
    let [first, second] = ["1.0.0", "1.1.0"].map(|version| counter(&line, version, ""));
    let object = build_source_for(&line, "native", ("counter", "1.2.0"), COUNTER_KEYS, COUNTER);
    let router = with_instance(&line, &first);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 2000, 64);
    for file in [&second, &object, &first] {
        router.ask(&["plugin", "upgrade", "counter", file]);
        flow.go_on(Duration::from_millis(50));
    }
    flow.wait_for_arrival();
    let flow = flow.finish();
    assert_eq!((flow.lost(), flow.reordered, flow.duplicated), (0, 0, 0), "{flow:?}");
    assert_eq!(read(&router, "p1", "packets"), flow.received);
    assert_eq!(router.row("plugins", "name", "counter")["runtime"], RUNTIME);
    router.ask(&["instance", "free", "p1"]);
    router.ask(&["plugin", "unload", "counter"]);
    router.assert_conservation();
}

#[test]
fn crash_and_hang_of_an_executable_cost_no_packet_of_other_flows() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc"]) else { return };
    for does in ["__builtin_trap();", "_exit(0);", "for (volatile int i = 1; i;);"] {
        let line = Line::new();
        let file = counter(&line, "1.0.0", does);
        let router = with_instance(&line, &file);
        let victim = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 64);
        let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 1000, 64);
        eventually("it is in quarantine", Duration::from_secs(30), || {
            (router.row("instances", "name", "p1")["health"] == "quarantined").then_some(())
        });
        victim.go_on(Duration::from_millis(200));
        let (victim, bystander) = (victim.finish(), bystander.finish());
        assert!(victim.received > 0, "{victim:?}");
        assert_eq!((bystander.lost(), bystander.reordered), (0, 0), "{does}: {bystander:?}");
        router.assert_conservation();
    }
}

#[test]
fn executable_runs_in_no_other_process_and_is_inspected_without_running() {
    let Some(_ground) = Ground::enter(&["cc"]) else { return };
    let line = Line::new();
    let file = counter(&line, "1.0.0", "");
    let router = trusting(&line, "");
    let refusal = ["counter-1-0-0.elf", "runs only in a process of its own", "--runtime native"];
    router.try_ask(&["plugin", "load", &file, "--runtime", "in-process"]).assert_refused(1, &refusal);
    for command in ["test", "bench"] {
        let here = ["plugin", command, &file, "--runtime", "in-process"];
        run_to_end(&line.r, &here).assert_refused(1, &refusal);
    }
    let tried = run_to_end(&line.r, &["plugin", "test", &file]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let inspected = run_to_end(&line.r, &["plugin", "inspect", &file]);
    assert!(inspected.code == Some(0) && inspected.stdout.contains(RUNTIME), "{inspected:?}");
}
