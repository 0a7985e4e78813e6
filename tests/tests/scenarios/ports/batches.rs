//! Batch sending, past the worker's socket: no frame is lost or reordered, and the router uses it only if the
//! other end accepts redirected frames.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually, transfer, wait_until};

use crate::support::{router, to};

/// Returns a line whose hosts accept redirected frames, and a router with an instance that sees every packet.
fn all_by_worker() -> (Line, Millrace) {
    let line = Line::new();
    [&line.h1, &line.h2].iter().for_each(|host| drop(host.run("ethtool -K eth0 gro on")));
    let router = router(&line);
    router.ask(&["instance", "create", "null", "all"]);
    router.ask(&["bind", "all", "--gate", "firewall", "--filter", ""]);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    (line, router)
}

/// Returns the number of frames that left a port by batch sending, and the number of all frames that left the
/// port.
fn left(router: &Millrace, port: &str) -> (u64, u64) {
    let port = router.row("ports", "name", port);
    (port["batched_packets"].as_u64().expect("a count"), port["tx_packets"].as_u64().expect("a count"))
}

#[test]
fn a_worker_sends_batches_and_single_packets_in_order() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let (line, router) = all_by_worker();
    let hardware = router.json(&["show", "hardware"]);
    let switches = hardware["switches"].as_array().expect("switches");
    let way = switches.iter().find(|switch| switch["name"] == "batch sending" && switch["to"] == "r2");
    assert_eq!(way.expect("a way")["works"], true, "{hardware:#}");
    // The bursts have more packets, or fewer, than the minimum of a batch.
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 20_000, 64);
    flow.wait_for_arrival();
    eventually("batches", Duration::from_secs(10), || {
        transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 4 << 20);
        let (batched, all) = left(&router, "r2");
        (batched > 1000 && all > batched + 100).then_some(())
    });
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    router.assert_conservation();
}

#[test]
fn a_station_that_no_longer_takes_redirected_frames_gets_all_by_the_socket() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let (line, router) = all_by_worker();
    line.h2.run("ethtool -K eth0 gro off");
    let closed = wait_until(Duration::from_secs(3), || {
        let hardware = router.json(&["show", "hardware"]);
        let switches = hardware["switches"].as_array().expect("switches");
        switches
            .iter()
            .any(|way| way["name"] == "batch sending" && way["to"] == "r2" && way["works"] == false)
    });
    assert!(closed.is_some(), "{:#}", router.json(&["show", "hardware"]));
    let (before, _) = left(&router, "r2");
    transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 16 << 20);
    assert_eq!(left(&router, "r2").0, before);
    router.assert_conservation();
}
