//! Every way of using a device, and every way of waiting, forwards the same.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, LineOptions, Millrace, transfer};

use crate::support::{assert_hosts_talk, assert_router_forwards, to};

/// Checks forwarding with these arguments on a line made so.
fn assert_forwards(arguments: &str, options: LineOptions) -> Option<String> {
    let _ground = Ground::enter_alone(&["ping"])?;
    let line = Line::with(options);
    let mut router = Millrace::start(&line.r, &format!("--port r1 --port r2 {arguments}"));
    assert_hosts_talk(&line);
    assert_router_forwards(&line, &router);
    line.h1.run("ping -c 1 -W 2 10.1.0.1");
    let flow = Flow::start(&line.h1, &line.h2, to("[fd00:2::2]:9000"), 2000, 300);
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert_eq!((report.lost(), report.duplicated, report.reordered), (0, 0, 0), "{report:?}");
    router.assert_conservation();
    let driver = router.row("ports", "name", "r1")["driver"].as_str().map(str::to_owned);
    assert!(router.end_by(nix::sys::signal::Signal::SIGTERM).success(), "{}", router.log());
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    driver
}

const PLAIN: LineOptions = LineOptions { mtu: 1500, offloads: true };
const JUMBO: LineOptions = LineOptions { mtu: 9000, offloads: true };

#[test]
fn af_xdp_forwards() {
    let Some(driver) = assert_forwards("--driver af_xdp", PLAIN) else { return };
    assert_eq!(driver, "af_xdp");
}

#[test]
fn af_xdp_behind_the_driver_forwards() {
    let Some(driver) = assert_forwards("--driver af_xdp-generic", PLAIN) else { return };
    assert_eq!(driver, "af_xdp");
}

#[test]
fn af_packet_forwards_and_no_packet_twice() {
    let Some(driver) = assert_forwards("--driver af_packet", PLAIN) else { return };
    assert_eq!(driver, "af_packet");
}

#[test]
fn hosts_without_offloads_are_served_as_well() {
    assert_forwards("", LineOptions { mtu: 1500, offloads: false });
}

#[test]
fn a_worker_that_polls_forwards() {
    assert_forwards("--mode poll", PLAIN);
}

#[test]
fn a_worker_that_waits_for_interrupts_forwards() {
    assert_forwards("--mode interrupt", PLAIN);
}

#[test]
fn an_adaptive_worker_forwards_and_sleeps_when_idle() {
    let Some(_) = assert_forwards("--mode adaptive", PLAIN) else { return };
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    std::thread::sleep(Duration::from_millis(500));
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", router.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = used();
    std::thread::sleep(Duration::from_secs(2));
    // In hundredths of a second: 1 % of a processor, and one tick of chance.
    assert!(used() - before <= 3, "{} ticks in 2 s", used() - before);
}

#[test]
fn jumbo_frames_pass_whole_on_af_xdp() {
    let Some(driver) = assert_forwards("--driver af_xdp", JUMBO) else { return };
    assert_eq!(driver, "af_xdp");
}

#[test]
fn jumbo_frames_pass_whole_on_af_packet() {
    assert_forwards("--driver af_packet", JUMBO);
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
fn what_was_chosen_and_why_is_shown() {
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
