//! Gates at run time: changes of their tables, linked tables, groups and counters of filters.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, eventually};

use super::filters::{MOMENT, add, arrivals, assert_undisturbed, meet};
use crate::support::{router, to};

#[test]
fn gate_changes_its_table_under_traffic() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    meet(&line);
    let id = add(&router, "dst 10.2.0.2 proto udp dport 9010", "drop", &["--gate", "firewall"]);
    let goes_on = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9011"), 2000, 64);
    let stopped = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9010"), 500, 64);
    for table in ["linear", "cutting-tree", "dag", "dag-patricia", "dag-tree-bitmap", "auto"] {
        let gate = router.json(&["gate", "set", "firewall", "--table", table]);
        assert_eq!(gate["table"], if table == "auto" { "tuple-space" } else { table });
        goes_on.go_on(Duration::from_millis(50));
        stopped.go_on(Duration::from_millis(50));
    }
    assert_eq!(stopped.received(), 0);
    // After the change of tables, changes of filters still apply.
    router.ask(&["filter", "remove", &id]);
    assert!(arrivals(&stopped) > 0);
    assert_undisturbed(&goes_on.finish(), &router);
    drop(stopped);
    router.assert_conservation();
}

#[test]
fn gates_with_the_same_filters_are_linked_and_match_as_before() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    meet(&line);
    for gate in ["security-in", "firewall"] {
        router.json(&["gate", "set", gate, "--table", "dag"]);
        // There are so many filters that the root of the table is no leaf.
        for port in [9010].into_iter().chain(9012..9020) {
            let priority = if gate == "firewall" { "2" } else { "1" };
            let filter = format!("dst 10.2.0.2 proto udp dport {port}");
            add(&router, &filter, "drop", &["--gate", gate, "--priority", priority]);
        }
    }
    let links = || {
        let gates = router.json(&["gate", "list"]);
        gates.as_array().and_then(|gates| gates.iter().find(|gate| gate["name"] == "firewall").cloned())
    };
    let linked = |filters: u64| {
        eventually("the gates are linked", Duration::from_secs(5), || {
            let gate = links().filter(|gate| gate["links"]["filters"] == filters)?;
            assert_eq!(gate["links"]["from"], "security-in");
            assert!(gate["links"]["ahead"].as_u64() >= Some(9), "{gate}");
            assert!(gate["memory"].as_u64() > Some(0) && gate["links"]["bytes"].as_u64() > Some(0));
            Some(())
        });
    };
    linked(9);
    let stopped = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9010"), 500, 64);
    let goes_on = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9011"), 500, 64);
    goes_on.go_on(MOMENT);
    assert_eq!(stopped.received(), 0);
    let id = add(&router, "dst 10.2.0.2 proto udp dport 9011", "drop", &["--gate", "security-in"]);
    linked(10);
    router.ask(&["filter", "remove", &id]);
    linked(9);
    assert!(arrivals(&goes_on) > 0);
    assert_eq!(stopped.received(), 0);
    drop((stopped, goes_on));
    router.assert_conservation();
}

#[test]
fn filters_name_groups_and_count_drops_until_cleared() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["filter", "add", "dst 239.1.1.0/24", "--action", "ports r1,r2"]);
    router.ask(&["filter", "add", "dst 239.1.1.0/24", "--action", "ports r1,r2", "--priority", "7"]);
    for action in ["drop", "reject"] {
        router.ask(&[
            "filter",
            "add",
            "in r1 proto icmp",
            "--gate",
            "route",
            "--action",
            action,
            "--priority",
            "9",
        ]);
        let filter = || router.row("filters", "action", action);
        let counts = || (filter()["packets"].as_u64().unwrap(), filter()["drops"].as_u64().unwrap());
        line.h1.try_run("ping -c 2 -i 0.2 -W 1 10.2.0.2");
        assert_eq!(counts(), (2, 2), "{action}");
        router.ask(&["clear"]);
        assert_eq!(counts(), (0, 0), "{action}");
        router.ask(&["filter", "remove", &filter()["id"].to_string()]);
    }
    for (packet, verdict) in [
        ("src 10.1.0.2 dst 127.0.0.1 proto udp in r1", "martian_destination"),
        ("src 127.0.0.1 dst 10.2.0.2 proto udp in r1", "martian_source"),
        ("src 10.1.0.2 dst 239.1.1.1 proto udp in r1", "punted to the kernel"),
    ] {
        let answer = router.json(&["lookup", packet]);
        assert!(answer["verdict"].as_str().unwrap().contains(verdict), "{packet}: {answer}");
    }
    let range = ["lookup", "src 10.1.0.2 dst 10.2.0.2 proto udp sport 1-9 in r1"];
    router.try_ask(&range).assert_refused(1, &["one sport"]);
    router.assert_conservation();
}

#[test]
fn packets_of_a_flow_that_filters_tell_apart_are_shown_apart() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["filter", "add", "dscp ef", "--gate", "monitor", "--action", "drop"]);
    line.h1.run("ping -c 1 10.2.0.2");
    line.h1.try_run("ping -c 1 -W 1 -Q 184 10.2.0.2");
    let flows = router.json(&["flow", "list", "src 10.1.0.2"]);
    let mut shown: Vec<&str> =
        flows["flows"].as_array().unwrap().iter().map(|flow| flow["flow"].as_str().unwrap()).collect();
    shown.sort_unstable();
    assert_eq!(shown.len(), 2, "{flows}");
    assert!(shown[0].ends_with("dscp cs0") && shown[1].ends_with("dscp ef"), "{shown:?}");
    router.assert_conservation();
}
