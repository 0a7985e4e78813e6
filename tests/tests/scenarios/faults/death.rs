//! Death and restart: forwarding after a router was killed, and the next start.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millrace_testkit::{Background, Ground, Line, Millrace, eventually};
use nix::sys::signal::Signal;

use crate::configuration::changes::{BASE, file, kernel_has};
use crate::support::fib;
use crate::support::reference::Reference;
use crate::support::traces::{Traces, assert_none_left};
use crate::support::{assert_hosts_talk, assert_router_forwards, router};

/// Time limit for the next router to have the kernel's routes.
const RESYNC: Duration = Duration::from_secs(5);

/// Kills routers by a signal and starts the next ones while packets flow both ways.
fn assert_gaps_of_death(line: &Line, signal: Signal) {
    let mut first = router(line);
    let flows = Reference::start(line);
    flows.go_on(Duration::from_millis(500));
    assert!(!first.end_by(signal).success());
    flows.go_on(Duration::from_millis(500));
    let second = router(line);
    flows.go_on(Duration::from_millis(500));
    flows.assert_gaps(2, signal.as_str());
    assert_router_forwards(line, &second);
    assert_hosts_talk(line);
    second.assert_conservation();
}

#[test]
fn the_kernel_forwards_on_when_the_router_is_killed_and_the_next_takes_over() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    assert_gaps_of_death(&Line::new(), Signal::SIGKILL);
}

#[test]
fn fault_10_the_kernel_forwards_on_when_the_router_aborts() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    assert_gaps_of_death(&Line::new(), Signal::SIGABRT);
}

#[test]
fn fault_10_a_router_killed_among_100000_routes_has_the_kernels_again() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    fib::change(&line, "add", 0..100_000);
    let mut first = router(&line);
    assert_eq!(fib::assert_equal(&line, &first, RESYNC).1, 100_000);
    first.kill();
    // Changes while no router runs.
    fib::change(&line, "del", 0..1000);
    let kernel = fib::of_kernel(&line);
    assert_eq!(kernel.len(), 99_000);
    let flows = Reference::start(&line);
    let begin = std::time::Instant::now();
    let second = router(&line);
    // 5 s on an idle machine; a busy one gets twice the time.
    let took = fib::time_until_equal(&second, &kernel, begin, 2 * RESYNC);
    println!("99,000 routes {took:?} after the start");
    flows.assert_gaps(1, "a start among 100,000 routes");
    second.assert_conservation();
}

/// Kills a router `kills` times, by two signals in turn. Each next router must forward, and no router may
/// leave anything behind.
pub fn assert_starts_after_each_of(kills: usize) {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    let before = Traces::of(&line);
    let flows = Reference::start(&line);
    for kill in 0..kills {
        let mut router = router(&line);
        line.h1.run("ping -c 1 -W 2 10.2.0.2");
        assert!(!router.end_by([Signal::SIGKILL, Signal::SIGABRT][kill % 2]).success());
        assert_none_left(&line, &before, &format!("kill {kill}"));
    }
    flows.assert_gaps(2 * u32::try_from(kills).expect("a number"), "kills");
    let router = router(&line);
    assert_router_forwards(&line, &router);
    router.assert_conservation();
}

#[test]
fn a_router_killed_twenty_times_starts_every_time() {
    assert_starts_after_each_of(20);
}

#[test]
fn with_on_death_drop_nothing_passes_until_the_router_is_back() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let start = || Millrace::start(&line.r, "--port r1 --port r2 --on-death drop");
    let mut first = start();
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    line.h1.run("ping -c 1 -W 2 fd00:2::2");
    first.kill();
    assert!(!line.h1.succeeds("ping -c 3 -i 0.2 -W 1 10.2.0.2"), "IPv4 is dropped");
    assert!(!line.h1.succeeds("ping -c 3 -i 0.2 -W 1 fd00:2::2"), "IPv6 is dropped");
    line.h1.run("ping -c 1 -W 2 10.1.0.1");
    let mut second = start();
    assert_hosts_talk(&line);
    assert_router_forwards(&line, &second);
    second.assert_conservation();
    // After an orderly end the kernel forwards, regardless of `on-death`.
    let status = second.end_by(Signal::SIGTERM);
    assert!(status.success(), "{status}");
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    let links = line.r.run("ip -d link");
    assert!(!links.contains("xdp"), "{links}");
}

#[test]
fn configured_routes_lie_in_the_kernel_and_outlive_the_router() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    line.h2.ip("address add 10.9.0.1/32 dev lo");
    let config = "[[port]]\nname = \"a\"\ndevice = \"r1\"\n[[port]]\nname = \"b\"\ndevice = \"r2\"\n\
                  [[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.2.0.2\"\n";
    let file = line.write("router.toml", config);
    let start = || Millrace::start(&line.r, &format!("--config {}", file.display()));
    let mut router = start();
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    let routes = line.r.run("ip route show 10.9.0.0/16");
    assert!(routes.contains("10.2.0.2"), "{routes}");
    router.kill();
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    // The next start has another route, and removes the route of the last start.
    std::fs::write(&file, config.replace("10.9.0.0/16", "10.9.0.0/17")).unwrap();
    let mut router = start();
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    assert_eq!(line.r.run("ip route show exact 10.9.0.0/16"), "");
    assert!(router.end_by(Signal::SIGTERM).success());
    assert_eq!(line.r.run("ip route show exact 10.9.0.0/17"), "", "an orderly end takes its routes along");
}

#[test]
fn first_filter_or_binding_needs_an_on_death_action_even_at_run_time() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    // The key occurs in a comment only.
    let text = "# on-death is not set\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let file = line.write("router.toml", text).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {file}"));
    let lines = line.write("lines", "proto udp dport 53 action drop\n").display().to_string();
    let status = || router.json(&["show", "status"])["on_death"].clone();
    let implicit = serde_json::json!({"packets": "the kernel forwards; filters and instances do not hold", "explicit": false});
    assert_eq!(status(), implicit);
    router.ask(&["instance", "create", "statistics", "stats1"]);
    let words = ["\"r1\"", "after the router's death", "router set on-death=kernel", "run --on-death drop"];
    for action in ["drop", "reject", "police 1mbit", "accept", "host", "port r2", "copy-to r2"] {
        router.try_ask(&["filter", "add", "proto icmp in r1", "--action", action]).assert_refused(1, &words);
    }
    let instance = ["filter", "add", "proto icmp", "--action", "instance stats1", "--gate", "monitor"];
    router.try_ask(&instance).assert_refused(1, &words);
    let bind = ["bind", "stats1", "--gate", "monitor", "--filter", "proto icmp"];
    router.try_ask(&bind).assert_refused(1, &["bindings need", words[0], words[1], words[2], words[3]]);
    let listed = router.try_ask(&["filter", "add", "--from", &lines]);
    assert!(listed.code == Some(1) && listed.stderr.contains("after the router's death"), "{listed:?}");
    assert_eq!(router.json(&["filter", "list"]), serde_json::json!([]));
    assert_eq!(router.json(&["show", "bindings"]), serde_json::json!([]));
    router.try_ask(&["router", "set", "on-death=drop"]).assert_refused(1, &["only a restart", "on-death"]);
    assert_eq!(status()["explicit"], false);
    router.ask(&["router", "set", "on-death=kernel"]);
    assert_eq!(status()["explicit"], true);
    assert!(router.ask(&["show", "status"]).contains("the kernel forwards"));
    router.ask(&bind);
    router.ask(&["filter", "add", "proto icmp in r1", "--action", "drop"]);
    assert!(!line.h1.succeeds("ping -c 2 -i 0.2 -W 1 10.2.0.2"), "the filter drops");
    // `save` writes `on-death` into the file. Without that key, the router would refuse to start with the
    // file.
    router.ask(&["save"]);
    let saved = std::fs::read_to_string(&file).unwrap();
    assert!(saved.contains("\non-death = \"kernel\""), "{saved}");
    router.assert_conservation();
}

/// System calls that write a revision to the disk. strace counts each call separately, and in each thread.
const WRITING: [&str; 9] =
    ["openat", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "rename", "unlink", "mkdir"];
/// System calls that send routes to the kernel, and answers to clients.
const TELLING: [&str; 2] = ["sendto", "sendmsg"];

/// Makes a router apply a file, and kills it on entry to the `time`-th system call of a kind. For file calls,
/// only calls on files in `state` count. Returns whether the router reached that call.
fn die_at(line: &Line, router: &mut Millrace, file: &str, (call, time): (&str, usize), state: &Path) -> bool {
    let pid = router.pid().to_string();
    let inject = format!("inject={call}:signal=KILL:when={time}");
    let trace = format!("trace={call}");
    let mut arguments = vec!["-f", "-p", &pid, "-e", &trace, "-e", &inject];
    let paths = ["", "revisions.redb", "revisions.new"].map(|name| state.join(name));
    let paths = paths.map(|path| path.display().to_string().trim_end_matches('/').to_owned());
    if WRITING.contains(&call) {
        paths.iter().for_each(|path| arguments.extend(["-P", path]));
    }
    let tracer = Background::start(&line.r, "strace", &arguments, line.file("strace.log"));
    eventually("the router is watched", Duration::from_secs(5), || {
        tracer.log().contains("attached").then_some(())
    });
    let applied = router.try_ask(&["apply", file]);
    drop(tracer);
    applied.code != Some(0)
}

/// Whether the file of revisions exists when a router dies. If so, the router changes it instead of creating
/// it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revisions {
    Absent,
    Present,
}

/// Kills routers at each of these calls during an apply. Returns how many started again from the old
/// revision, and how many from the new revision.
fn starts_after_deaths_at(calls: &[&str], revisions: Revisions) -> [u32; 2] {
    let line = Line::new();
    let state = line.file("state");
    let text = |route: &str| {
        format!(
            "{BASE}[plugins]\nstate = \"{}\"\n[[route]]\nto = \"{route}\"\nvia = \"10.2.0.2\"\n",
            state.display()
        )
    };
    let old = file(&line, "old.toml", &text("10.8.0.0/16"));
    let new = file(&line, "new.toml", &text("10.9.0.0/16"));
    let mut starts = [0, 0];
    for call in calls {
        for time in 1.. {
            let _ = fs::remove_dir_all(&state);
            let mut router = Millrace::start(&line.r, &format!("--config {old}"));
            if revisions == Revisions::Present {
                router.ask(&["apply", &new]);
                router.ask(&["apply", &old]);
                // With the new revision, the router also writes a revision for this single command.
                router.ask(&["filter", "add", "proto udp dport 99", "--action", "drop"]);
            }
            if !die_at(&line, &mut router, &new, (call, time), &state) {
                break;
            }
            router.wait_for_end();
            drop(router);
            let router = Millrace::start(&line.r, &format!("--config {old} --last-good"));
            let (is_old, is_new) = (kernel_has(&line, "10.8.0.0/16"), kernel_has(&line, "10.9.0.0/16"));
            assert!(is_old != is_new, "at {call} {time}: {}", router.log());
            starts[usize::from(is_new)] += 1;
            // The router continues from that revision, and `diff` compares with it.
            assert!(router.ask(&["diff"]).contains("equals the running configuration"), "at {call} {time}");
            router.ask(&["apply", if is_new { &old } else { &new }]);
        }
    }
    starts
}

#[test]
fn router_killed_while_creating_the_revisions_starts_from_the_old_or_the_new_one() {
    let Some(_ground) = Ground::enter(&["strace"]) else { return };
    let starts = starts_after_deaths_at(&WRITING, Revisions::Absent);
    assert!(starts[0] >= 16 && starts[1] > 0, "{starts:?}");
}

#[test]
fn router_killed_while_writing_a_revision_starts_from_the_old_or_the_new_one() {
    let Some(_ground) = Ground::enter(&["strace"]) else { return };
    let starts = starts_after_deaths_at(&WRITING, Revisions::Present);
    assert!(starts[0] >= 16 && starts[1] > 0, "{starts:?}");
}

#[test]
fn router_killed_while_updating_the_kernel_starts_from_the_old_or_the_new_revision() {
    let Some(_ground) = Ground::enter(&["strace"]) else { return };
    let starts = starts_after_deaths_at(&TELLING, Revisions::Present);
    assert!(starts[0] > 0, "{starts:?}");
}
