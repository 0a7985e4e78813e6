//! Several workers on real interfaces: no packet is lost between workers, and each flow keeps its order.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually, skip, wait_until};
use nix::sys::signal::Signal;

use crate::support::{
    assert_hosts_talk, assert_router_forwards, assert_undisturbed, iperf3, iperf3_server, to,
};

fn workers(line: &Line, count: usize) -> Millrace {
    Millrace::start(&line.r, &format!("--port r1 --port r2 --workers {count}"))
}

#[test]
fn hosts_talk_through_several_workers() {
    let Some(_ground) = Ground::enter_alone(&["ping", "iperf3"]) else { return };
    let line = Line::new();
    for count in [2, 3] {
        let mut router = workers(&line, count);
        assert_hosts_talk(&line);
        assert_router_forwards(&line, &router);
        router.assert_conservation();
        // Packets for the router itself go to its kernel, whichever worker owns their flow.
        line.h1.run("ping -c 2 -i 0.2 -W 2 10.1.0.1");
        line.h1.run("ping -c 2 -i 0.2 -W 2 10.2.0.1");
        let _server = iperf3_server(&line, &line.h2);
        for arguments in ["-c 10.2.0.2 -t 1 -P 4", "-c 10.2.0.2 -t 1 -R"] {
            let report = iperf3(&line.h1, arguments);
            let bits = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
            assert!(bits > 1e7, "{count} workers, {arguments}: {bits}");
        }
        router.assert_conservation();
        assert_eq!(router.end_by(Signal::SIGTERM).code(), Some(0), "{}", router.log());
        // The kernel forwards again.
        line.h1.run("ping -c 1 -W 2 10.2.0.2");
    }
}

#[test]
fn the_packets_of_a_flow_stay_in_order_and_are_counted_once() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = workers(&line, 2);
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    line.h1.run("ping -c 1 -W 2 fd00:2::2");
    router.ask(&["instance", "create", "statistics", "stats1"]);
    let read = || router.json(&["control", "stats1", "read"])["packets"]["udp"].as_u64().unwrap_or(0);
    // With these ports each worker owns some flows. One more flow runs in the opposite direction.
    let flows: Vec<Flow> = (9000..9006)
        .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 500, 200))
        .chain([Flow::start(&line.h2, &line.h1, to("[fd00:1::2]:9000"), 500, 200)])
        .collect();
    flows[0].go_on(Duration::from_millis(300));
    assert_eq!(read(), 0);
    // The test binds instances while packets flow.
    router.ask(&["bind", "stats1", "--gate", "monitor", "--filter", "proto udp"]);
    let bound = std::time::Instant::now();
    flows[0].go_on(Duration::from_millis(700));
    let counted = read();
    assert!(counted > 0, "nothing was counted since the bind {:?} ago", bound.elapsed());
    for flow in flows {
        assert_undisturbed(&flow.finish(), "2 workers");
    }
    router.assert_conservation();
    assert_eq!(router.drops("handover_full"), 0);
    // From now on each packet is counted exactly once.
    let before = read();
    let (mut sent, mut received) = (0, 0);
    for port in 9100..9110 {
        let flow = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 1000, 64);
        flow.go_on(Duration::from_millis(50));
        let report = flow.finish();
        assert_undisturbed(&report, "a short flow");
        (sent, received) = (sent + report.sent, received + report.received);
    }
    let counted = eventually("every packet is counted", Duration::from_secs(1), || {
        Some(read() - before).filter(|counted| *counted >= received)
    });
    assert!((received..=sent).contains(&counted), "{counted} of {sent} sent and {received} received");
    router.assert_conservation();
}

#[test]
fn counters_cleared_while_packets_flow_still_add_up() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let router = workers(&line, 2);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 4000, 64);
    for _ in 0..5 {
        flow.go_on(Duration::from_millis(100));
        router.ask(&["clear"]);
    }
    assert_undisturbed(&flow.finish(), "counters are cleared");
    router.assert_conservation();
    assert_eq!(router.summary("held"), 0);
}

#[test]
fn the_queues_of_a_device_are_read_by_several_workers() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let set = line.r.try_run("ethtool -L r1 rx 2 && ethtool -L r2 rx 2");
    let sent = line.h1.try_run("ethtool -L eth0 tx 2");
    if !set.status.success() || !sent.status.success() {
        return skip(&format!("this kernel gives a veth one queue: {set:?} {sent:?}"));
    }
    for driver in ["af_xdp", "af_xdp-generic"] {
        let router = Millrace::start(&line.r, &format!("--port r1 --port r2 --workers 2 --driver {driver}"));
        assert_hosts_talk(&line);
        let flows: Vec<Flow> = (9000..9008)
            .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 500, 200))
            .collect();
        flows[0].go_on(Duration::from_millis(500));
        for flow in flows {
            assert_undisturbed(&flow.finish(), driver);
        }
        router.assert_conservation();
    }
}

/// Moves flows to the offload and back to the workers while they send.
fn go_down_and_up(line: &Line, router: &Millrace, case: &str) {
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router.ask(&["instance", "create", "null", "stats"]);
    let flows: Vec<Flow> = (9000..9006)
        .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 1000, 100))
        .collect();
    // Tells when each step began, beside the report of a flow that was disturbed.
    let begun = std::time::Instant::now();
    let step = |what: &str| println!("{case}, {:?}: {what}", begun.elapsed());
    let told = |field: &str| router.json(&["show", "status"])["offloaded_flows"][field].as_u64().unwrap_or(0);
    let offloaded = || router.row("ports", "name", "r1")["offloaded_packets"].as_u64().unwrap_or(0);
    let all_are_down = || {
        step("wait for the offload");
        let before = offloaded();
        let went = wait_until(Duration::from_secs(5), || offloaded() > before + 2000);
        assert!(went.is_some() && told("flows") >= 6, "{case}: {:#}", router.json(&["flow", "list"]));
    };
    for _ in 0..2 {
        all_are_down();
        step("bind");
        router.ask(&["bind", "stats", "--gate", "monitor", "--filter", "proto udp"]);
        let before = offloaded();
        flows[0].go_on(Duration::from_millis(150));
        assert_eq!(offloaded(), before, "{case}: packets of a bound flow were offloaded");
        step("unbind");
        router.ask(&["unbind", "stats", "--gate", "monitor", "--filter", "proto udp"]);
    }
    all_are_down();
    // A scheduler runs at one worker, and applies to the flows of all workers.
    step("add a scheduler");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo"]);
    let before = offloaded();
    flows[0].go_on(Duration::from_millis(150));
    assert_eq!(offloaded(), before, "{case}: packets passed a scheduler by");
    step("remove it");
    router.ask(&["scheduler", "remove", "r2", "all"]);
    all_are_down();
    step("end");
    for flow in flows {
        assert_undisturbed(&flow.finish(), case);
    }
    router.ask(&["instance", "remove", "stats"]);
    router.assert_conservation();
}

#[test]
fn flows_of_several_workers_enter_and_leave_the_offload_in_order() {
    let Some(_ground) = Ground::enter_alone(&["ping", "ethtool"]) else { return };
    let line = Line::new();
    [&line.h1, &line.h2].iter().for_each(|host| drop(host.run("ethtool -K eth0 gro on")));
    for count in [2, 3] {
        go_down_and_up(&line, &workers(&line, count), &format!("{count} workers"));
    }
    let set = line.r.try_run("ethtool -L r1 rx 2");
    let sent = line.h1.try_run("ethtool -L eth0 tx 2");
    if !set.status.success() || !sent.status.success() {
        return skip(&format!("this kernel gives a veth one queue: {set:?} {sent:?}"));
    }
    go_down_and_up(&line, &workers(&line, 1), "a worker, two queues");
    go_down_and_up(&line, &workers(&line, 2), "2 workers, two queues");
    // A receive queue is added at run time, so the router opens the device again.
    line.h1.run("ethtool -L eth0 tx 1");
    line.r.run("ethtool -L r1 rx 1");
    let router = workers(&line, 2);
    go_down_and_up(&line, &router, "2 workers, a queue");
    line.r.run("ethtool -L r1 rx 2");
    line.h1.run("ethtool -L eth0 tx 2");
    let is_opened = wait_until(Duration::from_secs(5), || router.log().contains("device is back"));
    assert!(is_opened.is_some(), "{}", router.log());
    go_down_and_up(&line, &router, "2 workers, a queue more");
    // Each worker reads one queue.
    let hardware = router.json(&["show", "hardware"]);
    let switches = hardware["switches"].as_array().expect("switches").iter();
    let up = switches.filter(|switch| switch["name"] == "socket rings" && switch["from"] == "xdp r1");
    let to: Vec<_> = up.map(|switch| switch["to"].as_str().unwrap_or_default()).collect();
    assert_eq!(to, ["worker 0", "worker 1"], "{hardware:#}");
}

/// Offloads packets of several workers: each worker has its own instance, with its own eBPF variant.
#[test]
fn offloaded_packets_of_several_workers_are_counted_once() {
    let Some(_ground) = Ground::enter_alone(&["ping", "ethtool"]) else { return };
    let line = Line::new();
    [&line.h1, &line.h2].iter().for_each(|host| drop(host.run("ethtool -K eth0 gro on")));
    let router = workers(&line, 2);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "stats1"]);
    router.ask(&["bind", "stats1", "--gate", "monitor", "--filter", "proto udp"]);
    let listed = router.json(&["instance", "list"]);
    assert_eq!(listed[0]["level"], "offload", "{listed:#}");
    let flows: Vec<Flow> = (9000..9008)
        .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 1000, 100))
        .collect();
    let offloaded = || router.row("ports", "name", "r1")["offloaded_packets"].as_u64().unwrap_or(0);
    let down = wait_until(Duration::from_secs(15), || offloaded() > 8000);
    assert!(down.is_some(), "{:#}", router.json(&["flow", "list"]));
    // Messages and placements apply to the variants of all workers.
    router.ask(&["place", "stats1", "worker"]);
    let before = offloaded();
    flows[0].go_on(Duration::from_millis(150));
    assert_eq!(offloaded(), before, "packets of a placed instance were offloaded");
    router.ask(&["place", "stats1", "auto"]);
    assert!(wait_until(Duration::from_secs(15), || offloaded() > before + 2000).is_some());
    let reports: Vec<_> = flows.into_iter().map(Flow::finish).collect();
    let sent: u64 = reports.iter().map(|report| report.sent).sum();
    let read = || router.json(&["control", "stats1", "read"])["packets"]["udp"].as_u64().unwrap_or(0);
    let told = wait_until(Duration::from_secs(10), || read() == sent);
    assert!(told.is_some(), "{} of {sent} were counted", read());
    reports.iter().for_each(|report| assert_undisturbed(report, "forms of 2 workers"));
    router.assert_conservation();
}

#[test]
fn a_stream_of_datagrams_crosses_several_workers_whole() {
    let Some(_ground) = Ground::enter_alone(&["ping", "iperf3"]) else { return };
    let line = Line::new();
    let router = workers(&line, 2);
    let _server = iperf3_server(&line, &line.h2);
    let report = iperf3(&line.h1, "-c 10.2.0.2 -u -b 20M -l 1000 -t 1 -P 3");
    let sum = &report["end"]["sum"];
    let (packets, lost) = (sum["packets"].as_u64().unwrap(), sum["lost_packets"].as_u64().unwrap());
    assert!(packets > 1000, "{sum:#}");
    assert_eq!(lost, 0, "{sum:#}");
    router.assert_conservation();
}

#[test]
fn the_kernel_forwards_on_when_a_router_of_several_workers_is_killed() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    for _ in 0..3 {
        let mut router = workers(&line, 2);
        assert_router_forwards(&line, &router);
        router.kill();
        line.h1.run("ping -c 1 -W 2 10.2.0.2");
        line.h1.run("ping -c 1 -W 2 fd00:2::2");
    }
    let router = workers(&line, 2);
    assert_hosts_talk(&line);
    router.assert_conservation();
}

/// Starts two routers. A flow's hash selects its worker, and each start draws a new seed of the hash.
#[test]
fn fault_22_two_starts_give_flows_to_different_workers() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let owners = || {
        let router = workers(&line, 2);
        line.h1.run("ping -c 1 -W 2 10.2.0.2");
        let owner = |port: u16| {
            let packet = format!("src 10.1.0.2 dst 10.2.0.2 proto udp sport 7 dport {port} in r1");
            let answer = router.json(&["lookup", &packet]);
            let steps = answer["steps"].as_array().cloned().unwrap_or_default();
            let step = steps.into_iter().find(|step| step["stage"] == "worker");
            step.and_then(|step| step["text"].as_str().map(str::to_owned))
                .unwrap_or_else(|| panic!("{answer:#}"))
        };
        (1..33).map(owner).collect::<Vec<String>>()
    };
    let (first, second) = (owners(), owners());
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 2, "{first:?}");
    assert_ne!(first, second, "32 flows have the same workers: once in 4 billion by chance");
}

#[test]
fn a_lookup_asks_the_worker_that_has_the_flow() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = workers(&line, 2);
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    let owner = |packet: &str| {
        let answer = router.json(&["lookup", packet]);
        let steps = answer["steps"].as_array().unwrap();
        let step =
            steps.iter().find(|step| step["stage"] == "worker").unwrap_or_else(|| panic!("{answer:#}"));
        let text = step["text"].as_str().unwrap();
        assert!(text.contains(" of 2 "), "{text}");
        text.split_once("worker ").and_then(|(_, rest)| rest[..1].parse::<u64>().ok()).unwrap()
    };
    let flows: Vec<Flow> = (9000..9006)
        .map(|port| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 100, 64))
        .collect();
    flows[0].go_on(Duration::from_millis(300));
    for port in 9000..9006 {
        let shown = router.json(&["flow", "show", &format!("proto udp dport {port} in r1")]);
        let flow = shown[0]["flow"].as_str().unwrap();
        assert_eq!(owner(flow), shown[0]["worker"].as_u64().unwrap(), "{shown:#}");
    }
    // With this many flows, each worker owns some.
    let packet = |port: u16| format!("src 10.1.0.2 dst 10.2.0.2 proto udp sport 7 dport {port} in r1");
    let owners: BTreeSet<u64> = (1..65).map(|port| owner(&packet(port))).collect();
    assert_eq!(owners, BTreeSet::from([0, 1]));
    flows.into_iter().for_each(|flow| assert_eq!(flow.finish().duplicated, 0));
}
