//! Links that flap, vanish and return.

use std::time::{Duration, Instant};

use millrace_testkit::{Flow, Ground, Line, Millrace, Namespace, skip, wait_until};

use crate::support::hygiene::Taken;
use crate::support::reference::Reference;
use crate::support::{router, to};

/// Time limit for forwarding after a link is up again.
const UP: Duration = Duration::from_secs(3);

/// Takes a device down and up ten times a second, for `time`.
pub fn flap(host: &Namespace, device: &str, time: Duration) {
    let (begin, half) = (Instant::now(), Duration::from_millis(50));
    let mut due = begin;
    while begin.elapsed() < time {
        for state in ["down", "up"] {
            host.ip(&format!("link set {device} {state}"));
            due += half;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

/// Flaps a third link for `time`. The reference flows lose nothing, the link forwards again soon, and the
/// router uses no more resources.
pub fn assert_flaps_cost_nothing(time: Duration) {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let third = Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.ip("route add default via 10.3.0.1");
    let mut router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    line.h1.run("ping -c 1 10.3.0.2");
    // The first failure of a link takes resources that the router keeps, so it comes before the measurement.
    flap(&third, "eth0", Duration::from_millis(500));
    let before = Taken::by(&router);
    let flows = Reference::start(&line);
    flap(&third, "eth0", time);
    third.ip("route replace default via 10.3.0.1");
    let again = wait_until(UP, || line.h1.succeeds("ping -c 1 -W 0.2 10.3.0.2"));
    assert!(again.is_some(), "not within {UP:?}: {:#}", router.json(&["show", "ports"]));
    flows.assert_undisturbed("a link beside that flaps");
    before.assert_kept(&mut router, 5, "flaps");
    router.assert_conservation();
}

#[test]
fn flapping_link_returns_to_its_first_state() {
    assert_flaps_cost_nothing(Duration::from_secs(5));
}

#[test]
fn the_peers_link_down_is_seen_and_counted() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    line.h2.ip("link set eth0 down");
    let down = wait_until(Duration::from_secs(2), || router.row("ports", "name", "r2")["state"] == "down");
    assert!(down.is_some(), "{:#}", router.row("ports", "name", "r2"));
    assert!(!line.h1.succeeds("ping -c 2 -i 0.2 -W 0.5 10.2.0.2"));
    line.h2.ip("link set eth0 up\nroute replace default via 10.2.0.1");
    let up = wait_until(Duration::from_secs(2), || line.h1.succeeds("ping -c 1 -W 0.5 10.2.0.2"));
    assert!(up.is_some(), "{:#}", router.json(&["show", "ports"]));
    router.assert_conservation();
}

#[test]
fn vanished_device_leaves_other_ports_working() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let third = Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.ip("route add default via 10.3.0.1");
    let mut router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    line.h1.run("ping -c 1 10.3.0.2");
    line.r.ip("link delete r3");
    line.h1.run("ping -c 2 -i 0.2 -W 1 10.2.0.2");
    assert!(router.is_running());
    // When the device returns under its name, the port works again.
    line.connect(&third, "eth0", 3, 1500);
    third.ip("route add default via 10.3.0.1");
    let again = wait_until(Duration::from_secs(3), || line.h1.succeeds("ping -c 1 -W 0.5 10.3.0.2"));
    assert!(again.is_some(), "{:#}\n{}", router.json(&["show", "ports"]), router.log());
    router.assert_conservation();
}

/// Adds a queue to a device: packets in a queue that the router doesn't read would reach the kernel and
/// bypass the filters.
#[test]
fn device_with_more_queues_than_before_is_reopened() {
    let Some(_ground) = Ground::enter_alone(&["ethtool"]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["filter", "add", "proto udp dport 9000-9015", "--action", "drop", "--gate", "firewall"]);
    let set = line.r.try_run("ethtool -L r1 rx 2");
    let sent = line.h1.try_run("ethtool -L eth0 tx 2");
    if !set.status.success() || !sent.status.success() {
        return skip(&format!("this kernel gives a veth one queue: {set:?} {sent:?}"));
    }
    let anew = wait_until(Duration::from_secs(5), || {
        router.log().contains("device is back") && line.h1.succeeds("ping -c 1 -W 0.5 10.2.0.2")
    });
    assert!(anew.is_some(), "{}", router.log());
    let flow = |port: u16| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 200, 64);
    let flows: Vec<Flow> = (9000..9016).map(flow).collect();
    flows[0].go_on(Duration::from_millis(300));
    let received: Vec<u64> = flows.into_iter().map(|flow| flow.finish().received).collect();
    assert_eq!(received, [0; 16]);
    router.assert_conservation();
}
