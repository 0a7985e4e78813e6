//! Placement of flows: each flow moves to the configured level, without loss or reordering.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, wait_until};

use crate::offload::filters::line;
use crate::support::{router, to};

/// Number of moves of the flows in each direction.
const MOVES: usize = 15;

#[test]
fn flows_move_between_offload_and_worker_under_load_without_loss_or_reordering() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let there = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 4000, 64);
    let back = Flow::start(&line.h2, &line.h1, to("10.1.0.2:9000"), 4000, 64);
    there.wait_for_arrival();
    back.wait_for_arrival();
    let levels = || {
        let flows = router.json(&["flow", "list", "proto udp dport 9000"]);
        let levels = flows["flows"].as_array().into_iter().flatten().map(|flow| flow["level"].clone());
        levels.collect::<Vec<_>>()
    };
    let all_at = |level: &str| levels().len() == 2 && levels().iter().all(|one| one == level);
    for _ in 0..MOVES {
        let placed = router.json(&["place", "proto udp dport 9000", "offload"]);
        assert_eq!(placed["level"], "offload", "{placed:#}");
        let down = wait_until(Duration::from_secs(5), || all_at("offload"));
        assert!(down.is_some(), "{:#}", router.json(&["place", "list"]));
        let placed = router.json(&["place", "proto udp dport 9000", "worker"]);
        assert_eq!((&placed["offload"], &placed["worker"]), (&0.into(), &2.into()), "{placed:#}");
        let before = router.row("ports", "name", "r1")["offloaded_packets"].clone();
        there.go_on(Duration::from_millis(60));
        // The placement is in force when the command returns.
        assert_eq!(router.row("ports", "name", "r1")["offloaded_packets"], before);
        assert!(all_at("worker"), "{:?}", levels());
    }
    let listed = router.json(&["place", "list"]);
    assert_eq!(listed["placements"][0]["why_worker"]["a placement pins it to the worker"], 2, "{listed:#}");
    router.ask(&["place", "proto udp dport 9000", "auto"]);
    let down = wait_until(Duration::from_secs(5), || all_at("offload"));
    assert!(down.is_some(), "{:#}", router.json(&["place", "list"]));
    for (name, flow) in [("there", there), ("back", back)] {
        let report = flow.finish();
        assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{name}: {report:?}");
    }
    router.assert_conservation();
}

#[test]
fn level_of_a_flow_has_a_reason_and_impossible_placements_are_refused() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    router.ask(&["instance", "create", "null", "stats"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    let why = || {
        let flow = router.json(&["flow", "list", "proto udp dport 9000"])["flows"][0].clone();
        flow["why_not_offloaded"].as_str().map(ToOwned::to_owned)
    };
    let says = |words: &str| {
        let said = wait_until(Duration::from_secs(3), || match why() {
            Some(why) => why.contains(words),
            None => words.is_empty(),
        });
        assert!(said.is_some(), "{words:?}: {:?}", why());
    };
    says("");
    router.ask(&["bind", "stats", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    says("an instance without an eBPF variant handles its packets");
    router.ask(&["unbind", "stats", "--gate", "monitor", "--filter", "proto udp dport 9000"]);
    says("");
    // The flows of a port with a scheduler stay at the worker.
    router.ask(&["scheduler", "add", "r2", "fair", "--kind", "flow-queues"]);
    says("port r2 has a scheduler");
    let before = router.row("ports", "name", "r1")["offloaded_packets"].clone();
    flow.go_on(Duration::from_millis(200));
    assert_eq!(router.row("ports", "name", "r1")["offloaded_packets"], before);
    router.ask(&["scheduler", "remove", "r2", "fair"]);
    says("");
    let id = router.json(&["filter", "add", "proto udp dport 9000 dscp 0", "--action", "accept"])["id"]
        .to_string();
    says("TCP flags, DSCP or VLAN tag");
    router.ask(&["filter", "remove", &id]);
    router.ask(&["filter", "add", "proto udp dport 9000", "--action", "reject"]);
    says("a filter rejects its packets");
    flow.finish();
    let shown = router.ask(&["place", "show", "proto udp dport 9000"]);
    assert!(shown.contains("a filter rejects its packets with an ICMP error"), "{shown}");
    let listed = router.ask(&["place", "list"]);
    assert!(listed.contains("instructions per packet"), "{listed}");
    let placed = router.ask(&["place", "stats", "worker"]);
    assert!(placed.starts_with("instance stats: worker; now 0 offloaded"), "{placed}");
    router.ask(&["place", "stats", "auto"]);
    for (arguments, words) in [
        (["place", "stats", "offload"], "has no eBPF variant"),
        (["place", "nonsense", "offload"], "is neither an instance nor a filter"),
        (["place", "proto udp", "auto"], "no placement for"),
    ] {
        router.try_ask(&arguments).assert_refused(1, &[words]);
    }
}

#[test]
fn placements_are_part_of_the_configuration() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = line();
    let ports = "[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let places = "[[place]]\nflow = \"dport 9000 proto udp\"\nlevel = \"worker\"\n[[place]]\nflow = \"*\"\nlevel = \"offload\"\n";
    let file = line.write("placed.toml", &format!("{ports}{places}"));
    let router = millrace_testkit::Millrace::start(&line.r, &format!("--config {}", file.display()));
    let file = file.display().to_string();
    let wanted = || {
        let listed = router.json(&["place", "list"]);
        let rows = listed["placements"].as_array().into_iter().flatten();
        rows.map(|row| format!("{} {}", row["flow"], row["level"])).collect::<Vec<_>>()
    };
    let both = ["\"proto udp dport 9000\" \"worker\"", "\"*\" \"offload\""];
    assert_eq!(wanted(), both);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    flow.go_on(Duration::from_millis(300));
    let shown = router.json(&["flow", "list", "proto udp dport 9000"])["flows"][0].clone();
    assert_eq!(shown["why_not_offloaded"], "a placement pins it to the worker", "{shown:#}");
    router.ask(&["place", "proto udp dport 9000", "auto"]);
    router.ask(&["place", "proto tcp", "worker"]);
    let difference = router.try_ask(&["diff", &file]).stdout;
    for command in ["place 'proto udp dport 9000' worker", "place 'proto tcp' auto"] {
        assert!(difference.contains(command), "{command:?} is not in: {difference}");
    }
    router.ask(&["save", &file]);
    let saved = std::fs::read_to_string(&file).expect("the file");
    assert!(saved.contains("flow = \"proto tcp\"") && !saved.contains("dport 9000"), "{saved}");
    std::fs::write(&file, format!("{ports}{places}")).expect("the file");
    router.ask(&["apply", &file]);
    assert_eq!(wanted(), both);
    flow.finish();
    let twice = line.write("twice.toml", &format!("{ports}{places}{places}"));
    let refused = millrace_testkit::run_to_end(&line.r, &["check", &twice.display().to_string()]);
    refused.assert_refused(1, &["is given twice"]);
}
