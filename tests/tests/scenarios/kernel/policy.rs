//! Kernel policies: the router never silently forwards past them.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, run_to_end, wait_until};

use crate::support::{assert_router_forwards, to};

/// Checks that a router refuses to start because of a kernel policy, and that its error contains `words`. A
/// dry run must report the same. With `ignore-kernel-policy`, the router must forward.
fn assert_refused_unless_ignored(line: &Line, words: &[&str]) {
    let before = line.r.run("ip -o -d link");
    let refused = Millrace::try_start(&line.r, "--port r1 --port r2").unwrap_err();
    refused.assert_refused(1, words);
    refused.assert_refused(1, &["--ignore-kernel-policy"]);
    assert_eq!(line.r.run("ip -o -d link"), before, "nothing has changed");

    let plan = run_to_end(&line.r, &["run", "--port", "r1", "--port", "r2", "--dry-run"]);
    assert_eq!(plan.code, Some(0), "{plan:?}");
    for word in words {
        assert!(plan.stdout.contains(word), "{word}: {}", plan.stdout);
    }

    let router = Millrace::start(&line.r, "--port r1 --port r2 --ignore-kernel-policy");
    for word in words {
        assert!(router.log().contains(word), "it is said all the same: {}", router.log());
    }
    assert_router_forwards(line, &router);
    router.assert_conservation();
}

#[test]
fn an_nftables_forward_hook_is_named_and_refused() {
    let Some(_ground) = Ground::enter(&["nft", "ping"]) else { return };
    let line = Line::new();
    line.r.run(
        "nft add table inet guard; nft add chain inet guard watch '{ type filter hook forward priority 0; }'; \
         nft add rule inet guard watch tcp dport 23 drop",
    );
    assert_refused_unless_ignored(&line, &["guard", "watch"]);
}

#[test]
fn a_policy_rule_is_named_and_refused() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    line.r.ip("rule add from 10.1.0.0/24 table 100 priority 500");
    assert_refused_unless_ignored(&line, &["500", "10.1.0.0/24"]);
}

#[test]
fn a_traffic_control_filter_is_named_and_refused() {
    let Some(_ground) = Ground::enter(&["tc", "ping"]) else { return };
    let line = Line::new();
    line.r.run(
        "tc qdisc add dev r1 ingress; \
         tc filter add dev r1 parent ffff: protocol ip prio 7 u32 match ip dport 23 0xffff action drop 2>/dev/null || \
         tc filter add dev r1 parent ffff: protocol ip prio 7 u32 match ip dport 23 0xffff flowid 1:1",
    );
    assert_refused_unless_ignored(&line, &["r1"]);
}

#[test]
fn a_shaper_on_a_port_is_named_and_refused() {
    let Some(_ground) = Ground::enter(&["tc", "ping"]) else { return };
    let line = Line::new();
    line.r.run("tc qdisc add dev r2 root tbf rate 10mbit burst 10k latency 50ms");
    assert_refused_unless_ignored(&line, &["tbf", "r2"]);
}

/// Whether flows to the second host are offloaded now.
fn leaves_by_offload(router: &Millrace) -> bool {
    let count = || router.row("ports", "name", "r1")["offloaded_packets"].as_u64().expect("a count");
    let before = count();
    std::thread::sleep(Duration::from_millis(100));
    count() > before + 50
}

#[test]
fn shaper_added_at_run_time_is_reported_and_flows_leave_the_offload() {
    let Some(_ground) = Ground::enter_alone(&["ping", "tc"]) else { return };
    let line = crate::offload::filters::line();
    let router = Millrace::start(&line.r, "--port r1 --port r2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    let down = || wait_until(Duration::from_secs(3), || leaves_by_offload(&router));
    assert!(down().is_some(), "{:#}", router.json(&["place", "list"]));
    let discipline = || router.row("ports", "name", "r2")["queueing_discipline"].clone();
    assert!(discipline().is_null());

    line.r.run("tc qdisc add dev r2 root tbf rate 10mbit burst 10k latency 50ms");
    // The kernel notifies the router, so the report comes sooner than by polling.
    let told = wait_until(Duration::from_millis(500), || discipline() == "tbf");
    assert!(told.is_some(), "{:#}", router.json(&["show", "ports"]));
    assert!(!leaves_by_offload(&router));
    assert!(router.log().contains("queueing discipline tbf of the kernel"), "{}", router.log());
    let shown = router.ask(&["show", "ports"]);
    assert!(shown.contains("r2: packets of the router bypass the kernel's qdisc tbf"), "{shown}");
    let hardware = router.ask(&["show", "hardware"]);
    assert!(hardware.contains("bypasses the kernel's qdisc tbf"), "{hardware}");
    let why = router.json(&["show", "hardware"])["ports"][1]["why_no_redirects"].clone();
    assert!(
        why.as_str().is_some_and(|why| why.contains("tbf") && why.contains("millrace scheduler")),
        "{why}"
    );
    let events = router.json(&["events", "--since", "0", "--kind", "qdisc-bypassed"])["events"].clone();
    assert_eq!((&events[0]["subject"], &events[0]["details"]["discipline"]), (&"r2".into(), &"tbf".into()));
    let doctor = run_to_end(&line.r, &["doctor", "r2"]).stdout;
    assert!(doctor.contains("offload out    does not work: the kernel has the qdisc"), "{doctor}");

    line.r.run("tc qdisc del dev r2 root");
    assert!(wait_until(Duration::from_millis(500), || discipline().is_null()).is_some());
    assert!(down().is_some(), "{:#}", router.json(&["place", "list"]));
    // A plain FIFO qdisc is no kernel policy.
    line.r.run("tc qdisc add dev r2 root pfifo limit 100");
    std::thread::sleep(Duration::from_millis(300));
    assert!(discipline().is_null() && leaves_by_offload(&router));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    router.assert_conservation();
}

#[test]
fn flows_leave_from_the_worker_where_a_shaper_was_there_before() {
    let Some(_ground) = Ground::enter_alone(&["ping", "tc"]) else { return };
    let line = crate::offload::filters::line();
    line.r.run("tc qdisc add dev r2 root tbf rate 100mbit burst 10k latency 50ms");
    let router = Millrace::start(&line.r, "--port r1 --port r2 --ignore-kernel-policy");
    assert_eq!(router.row("ports", "name", "r2")["queueing_discipline"], "tbf");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(700));
    assert!(!leaves_by_offload(&router));
    flow.finish();
    router.assert_conservation();
}

#[test]
fn dry_run_shows_planned_changes_and_changes_nothing() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let look = || line.r.run("ip -o -d link; ip route; ip -6 route; tc qdisc; ss -xl | wc -l");
    let before = look();
    let plan = run_to_end(&line.r, &["run", "--port", "r1", "--port", "r2", "--dry-run"]);
    assert_eq!(plan.code, Some(0), "{plan:?}");
    for word in ["r1", "r2", "10.1.0.1/24", "fd00:2::1/64", "Millrace:", "kernel:", "changes", "routes"] {
        assert!(plan.stdout.contains(word), "{word}: {}", plan.stdout);
    }
    let plan = run_to_end(&line.r, &["run", "--port", "r1", "--port", "r2", "--dry-run", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["ports"].as_array().map(Vec::len), Some(2), "{plan:#}");
    assert_eq!(plan["refused_for"].as_array().map(Vec::len), Some(0), "{plan:#}");
    assert_eq!(look(), before);
}
