//! Churn for an hour: what a router takes of its machine stays what it was.

use std::fs;
use std::time::{Duration, Instant};

use millrace_testkit::{Flow, Ground, Line, Millrace, Namespace, resident};

use crate::support::to;

/// Seconds of the soak, an hour by default.
const SECONDS: &str = "MILLRACE_SOAK_SECONDS";

/// What a process takes of the machine.
#[derive(Debug)]
struct Taken {
    bytes: u64,
    descriptors: usize,
    threads: usize,
}

impl Taken {
    fn by(router: &Millrace) -> Self {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{}/{what}", router.pid())).map_or(0, Iterator::count);
        Self {
            bytes: resident(router.pid().unsigned_abs()),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }
}

/// One round: new flows, a link that flaps, a route, a filter and an instance that come and go.
fn churn(line: &Line, router: &Millrace, third: &Namespace, round: u32) {
    let socket = line.h1.within(|| std::net::UdpSocket::bind("10.1.0.2:0")).expect("a socket");
    let first = 10_000 + (round % 40) as u16 * 1000;
    for port in first..first + 500 {
        // Refused by an ICMP error of an earlier one: sent all the same.
        let _ = socket.send_to(b"flow", ("10.2.0.2", port));
    }
    line.r.ip("link set r3 down\nlink set r3 up");
    let _ = third.try_run("ping -c 1 -W 0.3 10.1.0.2");
    router.ask(&["route", "add", "192.0.2.0/24", "via", "10.2.0.2"]);
    router.ask(&["filter", "add", "proto udp dport 7", "--action", "drop"]);
    let filter = router.json(&["filter", "list"])[0]["id"].to_string();
    router.ask(&["filter", "remove", &filter]);
    router.ask(&["instance", "create", "statistics", "churn"]);
    router.ask(&["bind", "churn", "--gate", "monitor", "--filter", "proto udp"]);
    router.ask(&["instance", "free", "churn"]);
    router.ask(&["route", "remove", "192.0.2.0/24"]);
}

#[test]
#[ignore = "an hour: make soak"]
fn fault_39_an_hour_of_churn_leaves_memory_descriptors_and_threads_as_they_were() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let time = std::env::var(SECONDS).map_or(3600, |seconds| seconds.parse().expect("a number of seconds"));
    let line = Line::new();
    let third = Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.ip("route add default via 10.3.0.1");
    let mut router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    line.h1.run("ping -c 1 10.2.0.2");
    let end = Instant::now() + Duration::from_secs(time);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    (0..40).for_each(|round| churn(&line, &router, &third, round));
    let (before, mut received, mut round) = (Taken::by(&router), 0, 40);
    while Instant::now() < end {
        churn(&line, &router, &third, round);
        let now = router.summary("received");
        assert!(now > received, "received packets went from {received} to {now}");
        (received, round) = (now, round + 1);
    }
    let after = Taken::by(&router);
    println!("{round} rounds: {before:?}, then {after:?}");
    assert!(after.bytes <= before.bytes * 105 / 100, "{before:?}, then {after:?}");
    assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    assert!(router.is_running() && !router.log().contains("panicked"), "{}", router.log());
    router.assert_conservation();
}
