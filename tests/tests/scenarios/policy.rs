//! What Linux was told to do is never passed by silently.

use millrace_testkit::{Ground, Line, Millrace, run_to_end};

use crate::support::assert_router_forwards;

/// Checks that a router is refused for something that names itself by `words`, that a dry run says so too, and that it
/// forwards where that is asked for.
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

#[test]
fn a_dry_run_says_what_would_happen_and_changes_nothing() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let look = || line.r.run("ip -o -d link; ip route; ip -6 route; tc qdisc; ss -xl | wc -l");
    let before = look();
    let plan = run_to_end(&line.r, &["run", "--port", "r1", "--port", "r2", "--dry-run"]);
    assert_eq!(plan.code, Some(0), "{plan:?}");
    for word in ["r1", "r2", "10.1.0.1/24", "fd00:2::1/64", "taken", "stays", "changes", "routes"] {
        assert!(plan.stdout.contains(word), "{word}: {}", plan.stdout);
    }
    let plan = run_to_end(&line.r, &["run", "--port", "r1", "--port", "r2", "--dry-run", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["ports"].as_array().map(Vec::len), Some(2), "{plan:#}");
    assert_eq!(plan["refused_for"].as_array().map(Vec::len), Some(0), "{plan:#}");
    assert_eq!(look(), before);
}
