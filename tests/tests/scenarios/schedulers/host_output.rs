//! Host output at a port with a scheduler: the kernel's packets are redirected to the router and scheduled,
//! and later sent by the kernel itself again.

use std::time::Duration;

use millrace_testkit::{Background, Flow, Ground, Line, Millrace, eventually, run_to_end, transfer};
use serde_json::Value;

use crate::support::reference::LONGEST_GAP;
use crate::support::{iperf3_server, rate_to_h2, router, to};

/// Returns the host output entry in the scheduler of port r2.
fn host(router: &Millrace) -> Value {
    router.json(&["scheduler", "show", "r2"])["host"].clone()
}

/// Returns the number of bytes that a leaf of port r2 has sent.
fn sent_by(router: &Millrace, leaf: &str) -> f64 {
    let shown = router.json(&["queue", "show", "r2", leaf]);
    shown["sent_bytes"].as_f64().unwrap_or_else(|| panic!("{shown}"))
}

fn devices(line: &Line) -> String {
    line.r.run("ip -br link")
}

#[test]
fn host_output_is_redirected_while_the_port_has_a_scheduler() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.r.run("ping -c 1 10.2.0.2");
    let before = devices(&line);
    assert_eq!(router.summary("received_from_host"), 0);
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo", "threshold=10000000B"]);
    assert!(devices(&line).contains("mr-out-"), "{}", devices(&line));
    // Small and large packets by IPv4 and IPv6, GSO packets, and partial checksums.
    line.r.run("ping -c 3 -i 0.2 10.2.0.2");
    line.r.run("ping -c 2 -i 0.2 -s 4000 fd00:2::2");
    for address in ["10.2.0.2:7000", "[fd00:2::2]:7000"] {
        transfer(&line.r, &line.h2, to(address), 4 << 20);
    }
    transfer(&line.h2, &line.r, to("10.2.0.1:7000"), 4 << 20);
    let seen = host(&router);
    assert_eq!(
        (&seen["setting"], &seen["queued_here"], &seen["why"]),
        (&"queue".into(), &true.into(), &Value::Null)
    );
    let packets = seen["packets"].as_u64().unwrap();
    assert!(packets > (8 << 20) / 1500 && seen["bytes"].as_u64() > Some(8 << 20), "{seen}");
    assert!(router.summary("received_from_host") > (8 << 20) / 1500);
    assert!(
        router
            .ask(&["scheduler", "show", "r2"])
            .contains("packets of the kernel also wait in this scheduler (queue)")
    );
    let doctor = run_to_end(&line.r, &["doctor", "r2"]).stdout;
    assert!(doctor.contains("host output    works") && !doctor.contains("tcx egress programs"), "{doctor}");
    // Forwarded packets don't count as host output.
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 500, 64);
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert_eq!((report.lost(), report.duplicated), (0, 0), "{report:?}");
    assert!(host(&router)["packets"].as_u64().unwrap() < packets + 100);
    router.assert_conservation();
    router.ask(&["clear"]);
    router.assert_conservation();
    router.ask(&["scheduler", "remove", "r2", "all"]);
    assert_eq!(devices(&line), before);
    line.r.run("ping -c 2 -i 0.2 10.2.0.2");
    router.assert_conservation();
}

/// Checks the rate at which the router's own host sends TCP through a port of 10 Mb/s. `arguments` determine
/// the kind of port.
fn keeps_to_the_rate(arguments: &str) {
    let Some(_ground) = Ground::enter_alone(&["ping", "iperf3"]) else { return };
    let line = Line::new();
    let router = Millrace::start(&line.r, &format!("--port r1 --port r2 {arguments}"));
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fq-codel"]);
    router.ask(&["scheduler", "set", "r2", "rate=10mbit"]);
    let _server = iperf3_server(&line, &line.h2);
    let log = line.file("iperf3-client.log");
    let mut client = Background::start(&line.r, "iperf3", &["-c", "10.2.0.2", "-t", "6"], log);
    std::thread::sleep(Duration::from_secs(2));
    let rate = rate_to_h2(&line, || std::thread::sleep(Duration::from_secs(3)));
    // The rate must not be exceeded. TCP itself may leave a part of it unused.
    assert!((8.0e6..1.01e7).contains(&rate), "{rate}");
    assert!(client.wait(Duration::from_secs(20)).is_some_and(|status| status.success()), "{}", client.log());
    router.assert_conservation();
}

#[test]
fn host_output_keeps_to_the_rate_of_an_af_xdp_port() {
    keeps_to_the_rate("");
}

#[test]
fn host_output_keeps_to_the_rate_of_an_af_packet_port_and_is_redirected_once() {
    keeps_to_the_rate("--driver af_packet");
}

#[test]
fn host_output_keeps_to_the_rate_of_a_port_of_several_workers() {
    keeps_to_the_rate("--workers 2");
}

/// Starts a router with a link of 8 Mb/s. The queue `own`, to which filters send traffic, has three quarters
/// of it, and all other traffic has one quarter.
fn three_to_one(line: &Line) -> Millrace {
    let router = router(line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "top", "--kind", "deficit-round-robin"]);
    for (leaf, quantum) in [("own", "quantum=4614B"), ("rest", "quantum=1538B")] {
        router.ask(&[
            "scheduler",
            "add",
            "r2",
            leaf,
            "--kind",
            "fifo",
            "--under",
            "top",
            quantum,
            "threshold=60000B",
        ]);
    }
    router.ask(&["scheduler", "set", "r2", "rate=8mbit", "default=rest"]);
    router.ask(&["filter", "add", "proto udp dport 9000", "--action", "queue own"]);
    router
}

#[test]
fn host_output_shares_the_link_with_forwarded_packets_by_weight() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = three_to_one(&line);
    // Both flows send more than the link can carry.
    let own = Flow::start(&line.r, &line.h2, to("10.2.0.2:9000"), 1250, 958);
    let forwarded = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 1250, 958);
    own.go_on(Duration::from_secs(1));
    let before = ["own", "rest"].map(|leaf| sent_by(&router, leaf));
    own.go_on(Duration::from_secs(3));
    let after = ["own", "rest"].map(|leaf| sent_by(&router, leaf));
    let [own_part, rest] = [0, 1].map(|leaf| after[leaf] - before[leaf]);
    let part = own_part / (own_part + rest);
    assert!((0.74..0.76).contains(&part), "{part}");
    let [own, forwarded] = [own, forwarded].map(Flow::finish);
    assert!(own.received > 0 && forwarded.received > 0);
    assert_eq!((own.reordered, own.duplicated), (0, 0), "{own:?}");
    router.assert_conservation();
}

#[test]
fn host_output_setting_selects_filters_and_redirection() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = three_to_one(&line);
    router.ask(&["filter", "add", "proto icmp", "--gate", "firewall", "--action", "drop"]);
    // By default the filter applies to forwarded packets only.
    line.r.run("ping -c 2 -i 0.2 10.2.0.2");
    // A filter doesn't count packets that don't reach its gate.
    let filters = router.json(&["filter", "list"]);
    let icmp = filters.as_array().and_then(|all| all.iter().find(|one| one["match"] == "proto icmp"));
    assert_eq!(icmp.map(|one| (&one["queued_packets"], &one["sent_packets"])), Some((&0.into(), &0.into())));
    assert!(!line.h1.succeeds("ping -c 1 -W 1 10.2.0.2"));
    router.ask(&["scheduler", "set", "r2", "host=filter", "host-weight=32"]);
    let before = router.drops("filter");
    assert!(!line.r.succeeds("ping -c 3 -i 0.2 -W 1 10.2.0.2"));
    assert!(router.drops("filter") >= before + 3);
    assert_eq!((&host(&router)["setting"], &host(&router)["weight"]), (&"filter".into(), &32.into()));
    // Other packets still pass, through the queue that filters choose.
    let flow = Flow::start(&line.r, &line.h2, to("10.2.0.2:9000"), 200, 64);
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered), (0, 0), "{report:?}");
    assert!(sent_by(&router, "own") > 100.0 * 64.0);
    router.ask(&["scheduler", "set", "r2", "host=direct"]);
    let seen = host(&router);
    assert_eq!((&seen["queued_here"], &seen["setting"]), (&false.into(), &"direct".into()));
    assert!(!devices(&line).contains("mr-out-"));
    line.r.run("ping -c 2 -i 0.2 10.2.0.2");
    for (wrong, words) in [("host=never", "queue"), ("host-weight=0", "1 to 256")] {
        router.try_ask(&["scheduler", "set", "r2", wrong]).assert_refused(1, &[words]);
    }
    router.assert_conservation();
}

#[test]
fn kernel_sends_directly_again_when_the_router_is_killed_or_its_device_returns() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let before = devices(&line);
    let mut first = three_to_one(&line);
    let flow = Flow::start(&line.r, &line.h2, to("10.2.0.2:9000"), 500, 64);
    flow.wait_for_arrival();
    flow.go_on(Duration::from_millis(300));
    first.kill();
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert!(report.total_loss <= LONGEST_GAP && report.longest_delay <= LONGEST_GAP, "{report:?}");
    eventually("the device is gone", Duration::from_secs(2), || (devices(&line) == before).then_some(()));
    let second = three_to_one(&line);
    line.r.run("ping -c 1 10.2.0.2");
    assert!(host(&second)["packets"].as_u64() > Some(0));
    // Redirection resumes when a deleted device returns.
    line.r.ip("link del r2");
    eventually("what was caught is let go", Duration::from_secs(3), || {
        (!devices(&line).contains("mr-out-")).then_some(())
    });
    line.connect(&line.h2, "eth0", 2, 1500);
    eventually("the new device is caught at", Duration::from_secs(3), || {
        (host(&second)["queued_here"] == true && line.r.succeeds("ping -c 1 -W 1 10.2.0.2")).then_some(())
    });
    second.assert_conservation();
}

#[test]
fn a_full_queue_does_not_keep_the_kernel_from_finding_neighbours() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo", "threshold=20000B"]);
    router.ask(&["scheduler", "set", "r2", "rate=200kbit"]);
    let flood = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 958);
    flood.go_on(Duration::from_millis(500));
    for address in ["10.2.0.2", "fd00:2::2"] {
        let family = if address.contains(':') { "-6" } else { "-4" };
        line.r.run(&format!("ip {family} neigh flush dev r2"));
        // A packet of the kernel starts the resolution. The full queue may drop that packet.
        line.r.try_run(&format!("ping -c 1 -W 1 {address}"));
        let known = line.r.run(&format!("ip {family} neigh show {address} dev r2"));
        assert!(known.contains("lladdr"), "{address}: {known}");
    }
    drop(flood);
    router.assert_conservation();
}
