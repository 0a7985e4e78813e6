//! Drivers, modes and wait modes: each combination forwards in the same way.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, LineOptions, Millrace, transfer};

use crate::support::{assert_hosts_talk, assert_router_forwards, assert_undisturbed, to};

/// Line, and arguments of a router; driver, mode and wait mode that the router must report.
struct Case {
    arguments: &'static str,
    options: LineOptions,
    /// Driver and mode of both ports.
    port: (&'static str, &'static str),
    /// Wait mode of the workers.
    wait: &'static str,
}

const PLAIN: LineOptions = LineOptions { mtu: 1500, offloads: true };
const JUMBO: LineOptions = LineOptions { mtu: 9000, offloads: true };
const USUAL: Case = Case { arguments: "", options: PLAIN, port: ("af_xdp", "native"), wait: "adaptive" };

/// Checks that the router reports this driver and mode of its ports, and this wait mode.
fn assert_works_so(router: &Millrace, port: (&str, &str), wait: &str) {
    assert_eq!(router.json(&["show", "status"])["mode"], wait);
    for name in ["r1", "r2"] {
        let row = router.row("ports", "name", name);
        assert_eq!((&row["driver"], &row["mode"]), (&port.0.into(), &port.1.into()), "{row:#}");
    }
}

/// Checks that a router forwards with the given driver, mode and wait mode.
fn assert_forwards(case: &Case) {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::with(case.options);
    let mut router = Millrace::start(&line.r, &format!("--port r1 --port r2 {}", case.arguments));
    assert_works_so(&router, case.port, case.wait);
    assert_hosts_talk(&line);
    assert_router_forwards(&line, &router);
    line.h1.run("ping -c 1 -W 2 10.1.0.1");
    // The longest packet that fits the link without fragmentation.
    line.h1.run(&format!("ping -c 2 -i 0.2 -W 2 -M do -s {} 10.2.0.2", case.options.mtu - 28));
    let flow = Flow::start(&line.h1, &line.h2, to("[fd00:2::2]:9000"), 2000, 300);
    flow.go_on(Duration::from_millis(500));
    assert_undisturbed(&flow.finish(), case.arguments);
    assert_eq!(router.json(&["show", "summary"])["created_by"]["fragment"], 0);
    router.assert_conservation();
    assert_works_so(&router, case.port, case.wait);
    assert!(router.end_by(nix::sys::signal::Signal::SIGTERM).success(), "{}", router.log());
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
}

#[test]
fn af_xdp_forwards() {
    assert_forwards(&Case { arguments: "--driver af_xdp", ..USUAL });
}

#[test]
fn generic_af_xdp_forwards() {
    assert_forwards(&Case { arguments: "--driver af_xdp-generic", port: ("af_xdp", "generic"), ..USUAL });
}

#[test]
fn af_packet_forwards_and_no_packet_twice() {
    assert_forwards(&Case { arguments: "--driver af_packet", port: ("af_packet", "ring"), ..USUAL });
}

#[test]
fn hosts_without_offloads_are_served_as_well() {
    assert_forwards(&Case { options: LineOptions { mtu: 1500, offloads: false }, ..USUAL });
}

#[test]
fn a_worker_that_polls_forwards() {
    assert_forwards(&Case { arguments: "--mode poll", wait: "poll", ..USUAL });
}

#[test]
fn a_worker_that_waits_for_interrupts_forwards() {
    assert_forwards(&Case { arguments: "--mode interrupt", wait: "interrupt", ..USUAL });
}

/// Returns the processor time of a router's process.
fn run_time(router: &Millrace) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", router.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn an_adaptive_worker_forwards_and_sleeps_when_idle() {
    assert_forwards(&Case { arguments: "--mode adaptive", ..USUAL });
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let used = |mode: &str| {
        let router = Millrace::start(&line.r, &format!("--port r1 --port r2 --mode {mode}"));
        assert_works_so(&router, USUAL.port, mode);
        std::thread::sleep(Duration::from_millis(500));
        let before = run_time(&router);
        std::thread::sleep(Duration::from_secs(2));
        run_time(&router) - before
    };
    // The limit is 1 % of a processor and one tick. A polling worker uses all the time that it gets.
    let (adaptive, poll) = (used("adaptive"), used("poll"));
    assert!(adaptive <= Duration::from_millis(30), "an idle adaptive worker ran for {adaptive:?} of 2 s");
    assert!(poll >= Duration::from_millis(300), "a worker that polls ran for {poll:?} of 2 s");
}

#[test]
fn jumbo_frames_pass_whole_on_af_xdp() {
    assert_forwards(&Case { arguments: "--driver af_xdp", options: JUMBO, ..USUAL });
}

#[test]
fn jumbo_frames_pass_whole_on_af_packet() {
    let port = ("af_packet", "ring");
    assert_forwards(&Case { arguments: "--driver af_packet", options: JUMBO, port, ..USUAL });
}

#[test]
fn a_packet_of_9000_bytes_is_neither_cut_nor_fragmented() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::with(JUMBO);
    let router = crate::support::router(&line);
    for size in [8972, 4000, 2020, 3500] {
        line.h1.run(&format!("ping -c 2 -i 0.2 -W 2 -M do -s {size} 10.2.0.2"));
    }
    line.h1.run("ping -c 2 -i 0.2 -W 2 -M do -s 8952 fd00:2::2");
    transfer(&line.h1, &line.h2, to("10.2.0.2:7002"), 32 << 20);
    assert_eq!(router.json(&["show", "summary"])["created_by"]["fragment"], 0);
    router.assert_conservation();
}

#[test]
fn chosen_mode_and_its_reason_are_shown() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let said = millrace_testkit::run_to_end(&line.r, &["doctor", "r1", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let text = said.to_string();
    assert!(text.contains("r1") && text.contains("af_xdp") && text.contains("veth"), "{said:#}");
    let said = millrace_testkit::run_to_end(&line.r, &["doctor"]);
    assert!(said.code == Some(0) && said.stdout.contains("r2"), "{said:?}");
    assert!(said.stdout.contains("tcpdump"), "{}", said.stdout);
    let router = crate::support::router(&line);
    let port = router.row("ports", "name", "r1");
    assert!(port["driver"] == "af_xdp" && port["mode"] == "native", "{port:#}");
}
