//! Reserved rates of principals: each principal's packets get their rate of the link, whatever others send.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};
use serde_json::{Value, json};

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a router whose port r2 sends 8 Mb/s, with all packets in one queue.
fn shaped(line: &Line) -> Millrace {
    let router = router(line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo"]);
    router.ask(&["scheduler", "set", "r2", "rate=8mbit", "host=direct"]);
    router
}

/// Returns the account of a principal's rate at port r2.
fn link(router: &Millrace, principal: &str) -> Value {
    let promises = router.json(&["show", "promises"]);
    let links = promises["links"].as_array().unwrap();
    links.iter().find(|one| one["principal"] == principal).cloned().unwrap_or_default()
}

fn nodes(router: &Millrace) -> Vec<String> {
    let shown = router.json(&["scheduler", "show", "r2"]);
    let nodes = shown["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn reserved_flow_gets_its_rate_beside_greedy_flows() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    // Both flows send more than the link can carry. Without a reservation, the smaller one gets a tenth.
    let greedy = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 9000, 1000);
    let small = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 1000, 1000);
    eventually("packets are dropped", PATIENCE, || (router.drops("queue_full") > 0).then_some(()));
    let reserve = ["flow", "reserve", "proto udp dport 9002", "--link", "4mbit", "--port", "r2"];
    let said = router.ask(&reserve);
    assert!(said.contains("reserved for principal flow-1"), "{said}");
    assert_eq!(nodes(&router), ["principal:*", "all", "principal:flow-1"]);
    let delivered = |seconds: usize| link(&router, "flow-1")["windows"][seconds]["delivered"].as_f64();
    small.go_on(Duration::from_secs(12));
    greedy.go_on(Duration::from_millis(10));
    let rate = delivered(1).expect("a window of 10 s");
    assert!((3.9e6..4.4e6).contains(&rate), "{rate}: {}", link(&router, "flow-1"));
    // The greedy flow ends, and the reserved flow may use the whole link.
    drop(greedy);
    eventually("it uses what is idle", PATIENCE, || (delivered(0)? > 7.0e6).then_some(()));
    let said = router.ask(&["flow", "release", "flow-1"]);
    assert!(said.contains("flow-1 released"), "{said}");
    assert_eq!(nodes(&router), ["all"]);
    assert_eq!(router.json(&["filter", "list"]), json!([]));
    let report = small.finish();
    // The flow has changed its queue twice, while packets waited in the old one.
    assert_eq!(report.duplicated, 0, "{report:?}");
    router.assert_conservation();
}

#[test]
fn released_reservation_drops_its_packets_at_the_port_on_request() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 2000, 1000);
    let reserve = ["flow", "reserve", "proto udp dport 9002", "--link", "1mbit", "--port", "r2"];
    for (release, drops) in
        [(&["flow", "release", "flow-1"][..], false), (&["flow", "release", "flow-1", "--drop"], true)]
    {
        router.ask(&reserve);
        let waiting = || link(&router, "flow-1")["waiting"].as_u64();
        eventually("packets wait at the port", PATIENCE, || (waiting()? > 50).then_some(()));
        router.ask(release);
        let dropped = || router.drops("principal_released");
        match drops {
            true => eventually("they are dropped", PATIENCE, || (dropped() > 0).then_some(())),
            false => assert_eq!(dropped(), 0),
        }
    }
    flow.finish();
    router.assert_conservation();
}

#[test]
fn reservations_are_refused_beyond_the_rate_and_are_part_of_the_configuration() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    let refuses = |arguments: &[&str], texts: &[&str]| {
        router.try_ask(arguments).assert_refused(1, texts);
        assert_eq!(
            (nodes(&router), router.json(&["principal", "list"])),
            (vec!["all".to_owned()], json!([]))
        );
    };
    refuses(&["principal", "add", "a", "link.r9=1mbit"], &["r9", "did you mean"]);
    refuses(&["principal", "add", "a", "link.r1=1mbit"], &["\"r1\" has no scheduler", "scheduler add r1"]);
    refuses(&["principal", "add", "a", "link.r2=9mbit"], &["of the 8.00 Mb/s", "8.00 Mb/s are left"]);
    refuses(&["principal", "add", "a", "cpu.same-as=b"], &["no principal", "\"b\""]);
    refuses(&["principal", "add", "a", "link.r2.same-as=b"], &["no principal", "\"b\""]);
    refuses(&["principal", "add", "a", "cpu.same-as=a"], &["leads back", "\"a\" same as \"a\""]);
    refuses(&["flow", "reserve", "proto udp", "--link", "1mbit"], &["needs the port"]);
    refuses(&["flow", "reserve", "proto udp", "--cpu", "1%", "--instance", "none"], &["none"]);
    let empty = line.write("empty.toml", &router.ask(&["show", "configuration"]));
    router.ask(&["principal", "add", "a", "cpu=5%", "link.r2=5mbit"]);
    router.ask(&["principal", "add", "b", "cpu.same-as=a", "link.r2=1mbit"]);
    router.ask(&["filter", "add", "proto udp", "--action", "queue principal:b"]);
    router.try_ask(&["principal", "add", "c", "link.r2=3mbit"]).assert_refused(1, &["2.00 Mb/s are left"]);
    router.try_ask(&["scheduler", "set", "r2", "rate=5mbit"]).assert_refused(1, &["\"b\"", "0"]);
    router.try_ask(&["principal", "remove", "a"]).assert_refused(1, &["pays for principal \"b\""]);
    router.try_ask(&["principal", "remove", "b"]).assert_refused(1, &["1 filter", "flow release b"]);
    router
        .try_ask(&["principal", "set", "a", "cpu.same-as=b"])
        .assert_refused(1, &["\"a\" same as \"b\" same as \"a\""]);
    let all = ["principal:*", "all", "principal:a", "principal:b"];
    assert_eq!(nodes(&router), all);
    // Packets of c share the queue of a.
    router.ask(&["principal", "add", "c", "link.r2.same-as=a"]);
    router.ask(&["filter", "add", "proto udp dport 9003", "--action", "principal c", "--priority", "1"]);
    assert_eq!(nodes(&router), all);
    let packet = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 9003 in r1";
    let shown = router.ask(&["lookup", packet]);
    assert!(shown.contains("for principal c") && shown.contains("\"principal:a\""), "{shown}");
    let dry = ["flow", "reserve", "proto tcp", "--cpu", "5%", "--link", "1mbit", "--port", "r2", "--dry-run"];
    let shown = router.ask(&dry);
    let left = "left to reserve: 45 % of a processor, 1mbit at port r2";
    assert!(shown.contains("would reserve for principal flow-1") && shown.contains(left), "{shown}");
    assert_eq!(router.json(&["principal", "list"]).as_array().map(Vec::len), Some(3));
    let text = router.ask(&["show", "configuration"]);
    assert!(text.contains("same-as = \"a\"") && !text.contains("name = \"principal:"), "{text}");
    router.ask(&["apply", empty.to_str().unwrap()]);
    assert_eq!((nodes(&router), router.json(&["filter", "list"])), (vec!["all".to_owned()], json!([])));
    router.ask(&["rollback"]);
    assert_eq!(nodes(&router), all);
    router.ask(&["principal", "set", "b", "link.r2="]);
    assert_eq!(nodes(&router), ["principal:*", "all", "principal:a"]);
    router.ask(&["flow", "release", "b"]);
    router.try_ask(&["principal", "remove", "a"]).assert_refused(1, &["\"c\" shares the rate"]);
    router.ask(&["flow", "release", "c"]);
    router.ask(&["principal", "remove", "a"]);
    assert_eq!(nodes(&router), ["all"]);
    router.assert_conservation();
}

#[test]
fn promises_stay_within_what_admission_allows_and_a_deadline_gets_its_shares() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = shaped(&line);
    router.ask(&["admission", "set", "link=50%", "cpu=50%", "memory=8MiB"]);
    // Half of 8 Mb/s, and half of the 50 % that core leaves of a processor.
    let asked = ["flow", "reserve", "proto udp dport 9001", "--link", "5mbit", "--port", "r2"];
    let refused = ["admission promises 50 %", "4.00 Mb/s are left"];
    router.try_ask(&asked).assert_refused(1, &refused);
    router.try_ask(&["flow", "reserve", "proto tcp", "--cpu", "30%"]).assert_refused(1, &["leave 25 %"]);
    router
        .try_ask(&["principal", "add", "big", "memory=9MiB"])
        .assert_refused(1, &["leave 8MiB of the 8MiB"]);
    let deadline =
        ["--deadline", "20ms", "--rate", "50", "--cost", "200us", "--size", "1000B", "--port", "r2"];
    let asked = [&["flow", "reserve", "proto udp dport 9001", "--principal", "call"][..], &deadline].concat();
    let tried = router.ask(&[&asked[..], &["--dry-run"]].concat());
    assert!(tried.contains("would reserve for principal call"), "{tried}");
    let shown = router.ask(&asked);
    assert!(shown.contains("a packet takes ") && shown.contains(" at the processor, "), "{shown}");
    let late = ["flow", "reserve", "proto tcp", "--deadline", "1ms", "--rate", "9", "--port", "r2"];
    router.try_ask(&late).assert_refused(1, &["deadline of 1ms", "must exceed"]);
    let promised = |component: &str| {
        let admission = router.json(&["admission", "show"]);
        let all = admission["components"].as_array().cloned().unwrap_or_default();
        all.iter().find(|one| one["component"] == component).cloned().unwrap_or_default()
    };
    let of_link = promised("link r2");
    assert_eq!((&of_link["claims"][0]["by"], of_link["whole"].as_f64()), (&json!("call"), Some(4e6)));
    assert!(promised("workers")["promised"].as_f64() > Some(1.0), "{}", promised("workers"));
    // Less than what is promised is refused. A release gives everything back.
    let refused = ["\"call\"", "promises 1 %"];
    router.try_ask(&["admission", "set", "link=1%"]).assert_refused(1, &refused);
    router.try_ask(&["admission", "set", "link=1%", "--dry-run"]).assert_refused(1, &refused);
    let tried = router.ask(&["admission", "set", "link=80%", "--dry-run"]);
    assert!(tried.contains("would run: admission set") && tried.contains("6.40 Mb/s"), "{tried}");
    assert_eq!(promised("link r2")["whole"].as_f64(), Some(4e6), "a trial changes nothing");
    router.ask(&["flow", "release", "call"]);
    for component in ["link r2", "workers", "processors"] {
        assert_eq!(promised(component)["promised"], 0.0, "{component}");
    }
    router.ask(&["admission", "set", "link=", "cpu=", "memory="]);
    assert!(!router.ask(&["show", "configuration"]).contains("[admission]"));
    router.assert_conservation();
}
