//! Offloaded plain flows: no packet is lost, reordered, or treated by outdated state.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Millrace, transfer, wait_until};

use crate::offload::filters::line;
use crate::support::{router, to};

/// Returns the number of packets that arrived at a port and that the offload forwarded.
fn offloaded(router: &Millrace, port: &str) -> u64 {
    router.row("ports", "name", port)["offloaded_packets"].as_u64().expect("a count")
}

#[test]
fn plain_flows_are_offloaded_and_evicted_by_a_binding_without_loss_or_reordering() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router.ask(&["instance", "create", "null", "stats"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 5000, 64);
    flow.wait_for_arrival();
    let down = wait_until(Duration::from_secs(3), || offloaded(&router, "r1") > 1000);
    assert!(down.is_some(), "{:#}", router.json(&["show", "ports"]));
    let shown = router.json(&["flow", "list", "proto udp dport 9000"]);
    assert_eq!(shown["flows"][0]["level"], "offload", "{shown:#}");
    // The first request starts the measurement of rates.
    let offload = router.json(&["show", "status"])["offloaded_flows"].clone();
    let rates =
        ["inserted_rate", "idle_rate", "evicted_rate", "refused_rate"].map(|rate| offload[rate].as_f64());
    assert!(rates[0] > Some(0.0) && rates[1..] == [Some(0.0); 3], "{offload:#}");
    for _ in 0..10 {
        router.ask(&["bind", "stats", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
        // From here on every packet passes the instance.
        let (before, counted) =
            (offloaded(&router, "r1"), router.ask(&["control", "stats", "read", "--json"]));
        flow.go_on(Duration::from_millis(150));
        let now = router.ask(&["control", "stats", "read", "--json"]);
        assert!(now != counted, "{now}");
        let passed_by = offloaded(&router, "r1") - before;
        assert_eq!(passed_by, 0, "packets of a bound flow were offloaded");
        router.ask(&["unbind", "stats", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
        flow.go_on(Duration::from_millis(150));
    }
    let down = offloaded(&router, "r1");
    let again = wait_until(Duration::from_secs(3), || offloaded(&router, "r1") > down + 500);
    assert!(again.is_some(), "{:#}", router.json(&["show", "ports"]));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    // A little later, the flow record counts the offloaded packets.
    let told = wait_until(Duration::from_secs(3), || {
        let flows = router.json(&["flow", "list", "proto udp dport 9000"]);
        flows["flows"][0]["packets"].as_u64() == Some(report.sent)
    });
    assert!(told.is_some(), "{report:?} {:#}", router.json(&["flow", "list"]));
    router.assert_conservation();
}

#[test]
fn changes_apply_to_offloaded_flows_at_once() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
    flow.wait_for_arrival();
    let down = || {
        wait_until(Duration::from_secs(3), || {
            let before = offloaded(&router, "r1");
            std::thread::sleep(Duration::from_millis(100));
            offloaded(&router, "r1") > before + 100
        })
    };
    assert!(down().is_some(), "{:#}", router.json(&["show", "ports"]));
    // Change: a filter. When the command has returned, the receiver gets no more packets of the flow.
    let id = router.json(&["filter", "add", "proto udp dport 9000", "--action", "drop"])["id"].to_string();
    let arrived = flow.received();
    flow.go_on(Duration::from_millis(300));
    // Packets in flight to the receiver when the filter was added may still arrive.
    assert!(flow.received() <= arrived + 64, "{} arrived behind the filter", flow.received() - arrived);
    router.ask(&["filter", "remove", &id]);
    assert!(down().is_some(), "{:#}", router.json(&["show", "ports"]));
    // Change: a capture. It sees all packets of the flow, which is offloaded again afterwards.
    let before = offloaded(&router, "r1");
    let captured = router.client().args(["capture", "r1", "-w", "/dev/null", "--count", "200"]).status();
    assert!(captured.expect("a client").success());
    assert!(offloaded(&router, "r1") - before < 2000, "the capture ended late");
    assert!(down().is_some(), "{:#}", router.json(&["show", "ports"]));
    // Change: the neighbour gets another MAC address.
    line.h2.ip("link set eth0 address 02:00:00:00:00:77");
    line.h2.run("ping -c 1 -W 1 10.2.0.1");
    let moved = flow.received();
    let arrives = wait_until(Duration::from_secs(3), || flow.received() > moved + 500);
    assert!(arrives.is_some(), "{:#}", router.json(&["show", "neighbours"]));
    flow.finish();
    router.assert_conservation();
}

#[test]
fn station_that_stops_taking_redirected_frames_gets_them_from_the_worker() {
    const RATE: u32 = 5000;
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), RATE, 64);
    flow.wait_for_arrival();
    let down = || {
        let before = offloaded(&router, "r1");
        wait_until(Duration::from_secs(4), || offloaded(&router, "r1") > before + 100)
    };
    for turn in 0..5 {
        assert!(down().is_some(), "{turn}: {:#}", router.json(&["show", "ports"]));
        line.h2.run("ethtool -K eth0 gro off");
        let seen = wait_until(Duration::from_secs(3), || {
            let (before, arrived) = (offloaded(&router, "r1"), flow.received());
            std::thread::sleep(Duration::from_millis(200));
            offloaded(&router, "r1") == before && flow.received() > arrived + 100
        });
        assert!(seen.is_some(), "{turn}: {:#}", router.json(&["show", "ports"]));
        line.h2.run("ethtool -K eth0 gro on");
    }
    assert!(down().is_some(), "{:#}", router.json(&["show", "status"]));
    let report = flow.finish();
    // The kernel notifies the router at once. The limit is far above that time, and far below the time that
    // polling once a second would need.
    assert!(report.longest_loss < Duration::from_millis(400), "{report:?}");
    assert!(report.lost() < u64::from(RATE), "{report:?}");
    assert_eq!((report.reordered, report.duplicated), (0, 0), "{report:?}");
    // Redirected frames count as sent even if the other end doesn't take them.
    router.assert_conservation();
}

#[test]
fn hosts_with_offloads_are_served_and_a_dead_router_leaves_its_flows_to_the_kernel() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    // The hosts leave checksums to their NIC, so the port completes them.
    let mut router = router(&line);
    transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 8 << 20);
    transfer(&line.h2, &line.h1, to("[fd00:1::2]:7000"), 8 << 20);
    line.h1.run("ping -c 5 -i 0.05 10.2.0.2");
    line.h1.run("ping -c 5 -i 0.05 fd00:2::2");
    assert!(offloaded(&router, "r1") > 0, "{:#}", router.json(&["show", "ports"]));
    router.assert_conservation();
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let before = offloaded(&router, "r1");
    let down = wait_until(Duration::from_secs(3), || offloaded(&router, "r1") > before + 100);
    assert!(down.is_some(), "{:#}", router.json(&["show", "ports"]));
    router.kill();
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert!(report.longest_loss <= Duration::from_millis(50), "{report:?}");
}

#[test]
fn flows_are_offloaded_again_when_their_device_returns_and_counted_once() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    let down = |port: &str| {
        let before = offloaded(&router, port);
        let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
        let went = wait_until(Duration::from_secs(5), || offloaded(&router, port) > before + 500);
        assert!(went.is_some(), "{:#}\n{}", router.json(&["show", "ports"]), router.log());
        flow.finish();
    };
    down("r1");
    router.assert_conservation();
    // Upcalls are counted by port, so a new device of the port continues the count.
    line.r.ip("link delete r1");
    line.connect(&line.h1, "eth0", 1, 1500);
    line.h1.run("ethtool -K eth0 gro on");
    line.h1.ip("route add default via 10.1.0.1");
    let back = wait_until(Duration::from_secs(5), || line.h1.succeeds("ping -c 1 -W 0.5 10.2.0.2"));
    assert!(back.is_some(), "{:#}\n{}", router.json(&["show", "ports"]), router.log());
    down("r1");
    router.assert_conservation();
    let row = |port: &str, key: &str| router.row("ports", "name", port)[key].as_u64().expect("a count");
    assert!(row("r2", "tx_packets") <= row("r1", "rx_packets"), "{:#}", router.json(&["show", "ports"]));
    // A port that is down doesn't keep flows of other ports from the offload.
    let third = millrace_testkit::Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    line.h2.ip("link set eth0 down");
    line.h2.ip("link set eth0 up\nroute replace default via 10.2.0.1");
    down("r1");
    router.assert_conservation();
}
