//! Principals at the workers: each flow gets its principal's share of the processor, whatever others do.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};
use serde_json::Value;

use crate::plugins::files::build;
use crate::support::{assert_undisturbed, router, to};

const PATIENCE: Duration = Duration::from_secs(30);
/// Principals with their shares of 10, and the UDP port of each one's flow.
const PRINCIPALS: [(&str, u32, u16); 4] = [("a", 4, 9001), ("b", 3, 9002), ("c", 2, 9003), ("d", 1, 9004)];

/// Part of a processor that is admitted for a service.
const ADMITTED: f64 = 0.25;

/// Loads a plugin that computes for 600,000 turns on each packet, with an instance for each principal.
fn load_slow(line: &Line, router: &Millrace) {
    let slow = build(line, "slow", |source| {
        source.replace("packets++;", "for (volatile int turn = 0; turn < 600000; turn++) {} packets++;")
    });
    router.ask(&["plugin", "load", slow.to_str().unwrap()]);
    for (name, ..) in PRINCIPALS {
        router.ask(&["instance", "create", "slow", &format!("slow-{name}")]);
    }
}

fn bind(router: &Millrace, principal: &str, port: u16) {
    let (instance, filter) = (format!("slow-{principal}"), format!("proto udp dport {port}"));
    router.ask(&["bind", &instance, "--gate", "process", "--filter", &filter, "--principal", principal]);
}

fn promises(router: &Millrace) -> Vec<Value> {
    router.json(&["show", "promises"])["promises"].as_array().unwrap().clone()
}

/// Returns the processor time that each principal has used so far, in seconds.
fn used(router: &Millrace) -> [f64; 4] {
    let all = promises(router);
    PRINCIPALS.map(|(name, ..)| {
        let found = all.iter().find(|one| one["principal"] == name);
        found.map_or(0.0, |one| one["used_seconds"].as_f64().unwrap())
    })
}

/// Checks that the principals of `active` divided the processor in proportion to their shares since `before`,
/// each within `tolerance` of the whole.
fn assert_divided(router: &Millrace, before: [f64; 4], active: usize, tolerance: f64) {
    let grown: Vec<f64> =
        used(router).iter().zip(before).take(active).map(|(now, then)| now - then).collect();
    let all: f64 = grown.iter().sum();
    let weights: f64 = PRINCIPALS.iter().take(active).map(|(_, share, _)| f64::from(*share)).sum();
    for ((name, share, _), used) in PRINCIPALS.iter().zip(&grown) {
        let (delivered, due) = (used / all, f64::from(*share) / weights);
        assert!(
            (delivered - due).abs() < tolerance,
            "{name}: {delivered:.3} instead of {due:.3} of {all:.2} s"
        );
    }
}

/// Load of all principals, of which the last one is not bound.
pub struct Load<'a> {
    line: &'a Line,
    _busy: [Flow; 4],
}

impl<'a> Load<'a> {
    /// Starts the flows of all principals.
    pub fn start(line: &'a Line) -> Self {
        let flow = |(_, _, port): (_, _, u16)| {
            Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 4000, 64)
        };
        Self { line, _busy: PRINCIPALS.map(flow) }
    }

    /// Checks the shares of three principals, and of four after the last one has joined, for 5 s each, beside
    /// a plain flow. The last one leaves again.
    pub fn rounds(&self, router: &Millrace, rounds: u32, tolerance: f64) {
        let waits = || promises(router).iter().filter(|one| one["waiting"] != 0).count();
        eventually("three principals are backlogged", PATIENCE, || (waits() == 3).then_some(()));
        let plain = Flow::start(&self.line.h1, &self.line.h2, to("10.2.0.2:9000"), 2000, 64);
        for _ in 0..rounds {
            let before = used(router);
            plain.go_on(Duration::from_secs(5));
            assert_divided(router, before, 3, tolerance);
            bind(router, "d", 9004);
            eventually("the fourth is backlogged", PATIENCE, || (waits() == 4).then_some(()));
            let before = used(router);
            plain.go_on(Duration::from_secs(5));
            assert_divided(router, before, 4, tolerance);
            router
                .try_ask(&["principal", "remove", "d"])
                .assert_refused(1, &["pays for 1 binding", "unbind"]);
            let filter = ["--filter", "proto udp dport 9004"];
            router.ask(&[&["unbind", "slow-d", "--gate", "process"][..], &filter].concat());
        }
        for one in
            promises(router).iter().filter(|one| one["principal"] != "core" && one["principal"] != "control")
        {
            let window = &one["windows"][1];
            assert!(window["kept"] == true && window["wanted"].as_f64() > Some(90.0), "{one}");
        }
        assert_undisturbed(&plain.finish(), "beside busy principals");
    }

    /// Ends the flows. Checks that each of their packets has left the router.
    pub fn end(self, router: &Millrace) {
        drop(self);
        assert!(router.drops("principal_queue_full") > 0);
        let waits = || promises(router).iter().any(|one| one["waiting"] != 0);
        eventually("nothing waits", PATIENCE, || (!waits()).then_some(()));
        router.assert_conservation();
    }
}

/// Adds all principals, and binds all but the last one.
pub fn add_principals(line: &Line, router: &Millrace) {
    load_slow(line, router);
    line.h1.run("ping -c 1 10.2.0.2");
    for (name, share, port) in PRINCIPALS {
        router.ask(&["principal", "add", name, &format!("cpu={}%", 5 * share)]);
        if name != "d" {
            bind(router, name, port);
        }
    }
}

#[test]
fn busy_principals_divide_the_processor_by_their_shares_and_plain_flows_lose_nothing() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let router = router(&line);
    add_principals(&line, &router);
    router.try_ask(&["principal", "add", "e", "cpu=10%"]);
    let filter = ["--gate", "process", "--filter", "proto udp dport 9005"];
    let refused = router.try_ask(&[&["bind", "slow-a", "--principal", "f"][..], &filter].concat());
    refused.assert_refused(1, &["no principal", "\"f\""]);
    let load = Load::start(&line);
    load.rounds(&router, 2, 0.03);
    router.ask(&["principal", "remove", "d"]);
    load.end(&router);
}

#[test]
fn principal_has_its_whole_share_at_the_worker_of_its_flow() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let text = "[router]\nworkers = 2\ncore-ceiling = \"10 %\"\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\n\
                device = \"r2\"\n";
    let file = line.write("router.toml", text);
    let router = Millrace::start(&line.r, &format!("--config {}", file.display()));
    load_slow(&line, &router);
    line.h1.run("ping -c 1 10.2.0.2");
    // An equal part of the share would be 30 % at each worker.
    router.ask(&["principal", "add", "a", "cpu=60%"]);
    bind(&router, "a", 9001);
    let filter = ["--gate", "process", "--filter", "proto udp dport 9100-9107"];
    router.ask(&[&["bind", "slow-b"][..], &filter].concat());
    let start = |port: u16| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 2000, 64);
    let _others: Vec<Flow> = (9100..9108).map(start).collect();
    let _own = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 4000, 64);
    let delivered = || {
        let all = promises(&router);
        let own = all.iter().find(|one| one["principal"] == "a")?;
        let window = &own["windows"][1];
        (window["seconds"].as_f64()? > 8.0).then(|| window["delivered"].as_f64())?
    };
    std::thread::sleep(Duration::from_secs(3));
    let percent = eventually("ten seconds of accounts", 2 * PATIENCE, delivered);
    assert!(percent > 55.0, "{percent} %: {:#?}", promises(&router));
}

/// Returns the cycles and the seconds that a packet of an instance needs, as the router has measured them.
fn measured(router: &Millrace, instance: &str) -> (f64, f64) {
    eventually("a hundred packets are measured", PATIENCE, || {
        let row = router.row("instances", "name", instance);
        let cycles = &row["packet_cycles"];
        let packets = cycles["packets"].as_f64().filter(|packets| *packets >= 100.0)?;
        Some((cycles["mean"].as_f64()?, row["cpu_seconds"].as_f64()? / packets))
    })
}

#[test]
fn service_without_a_principal_keeps_its_admitted_rate_beside_greedy_flows() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let router = router(&line);
    load_slow(&line, &router);
    line.h1.run("ping -c 1 10.2.0.2");
    let bind = |instance: &str, ports: &str| {
        let filter = format!("proto udp dport {ports}");
        router.ask(&["bind", instance, "--gate", "process", "--filter", &filter]);
    };
    bind("slow-a", "9100-9115");
    let start = |port: u16, rate| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), rate, 64);
    let greedy: Vec<Flow> = (9100..9116).map(|port| start(port, 500)).collect();
    let waits = || promises(&router).iter().any(|one| one["principal"] == "default" && one["waiting"] != 0);
    eventually("the greedy flows are backlogged", PATIENCE, || waits().then_some(()));
    // Packets of the service are promised twice the time that those of the greedy flows need.
    let (cycles, seconds) = measured(&router, "slow-a");
    let (rate, packet) = ((ADMITTED / seconds / 2.0) as u32, format!("{:.0}", 2.0 * cycles));
    assert!(rate > 0, "{cycles} cycles, {seconds} s");
    router.ask(&["instance", "create", "slow", "s", "--rate", &rate.to_string(), "--packet", &packet]);
    bind("s", "9001");
    let own = start(9001, rate);
    own.go_on(Duration::from_secs(12));
    let promise = promises(&router).into_iter().find(|one| one["principal"] == "service:s").unwrap();
    assert!(promise["reserved"] == true && promise["windows"][1]["kept"] == true, "{promise}");
    let report = own.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{rate}/s: {report:?}");
    let lost: u64 = greedy.into_iter().map(|flow| flow.finish().lost()).sum();
    assert!(lost > 0, "the flows of `default` need more than the processor");
    router.assert_conservation();
}

#[test]
fn principals_and_their_bindings_are_part_of_the_configuration() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let line = Line::new();
    let router = router(&line);
    load_slow(&line, &router);
    let principal = ["video", "cpu=10%", "cpu-limit=20%", "deadline=5ms", "queue=64KiB"];
    router.ask(&[&["principal", "add"][..], &principal].concat());
    let filter = ["--gate", "process", "--filter", "proto udp dport 9001"];
    router.ask(&[&["bind", "slow-a", "--principal", "video"][..], &filter].concat());
    let binding = router.json(&["show", "bindings"]);
    assert_eq!((&binding[0]["principal"], &binding[0]["budget"]), (&"video".into(), &100_000.into()));
    let text = router.ask(&["show", "configuration"]);
    for words in ["principal = \"video\"", "deadline = \"5ms\"", "queue = \"64KiB\"", "cpu = \"10 %\""] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // A configuration without the principal unbinds first; the next one restores both.
    let without = router.ask(&["show", "configuration"]).replace("principal = \"video\"\n", "");
    let (head, tail) = without.split_once("[[principal]]").expect("the principal has a table");
    let file = line
        .write("without.toml", &format!("{head}{}", tail.split_once("\n\n").map_or("", |(_, rest)| rest)));
    router.ask(&["apply", file.to_str().unwrap()]);
    assert_eq!(router.json(&["principal", "list"]), serde_json::json!([]));
    assert_eq!(router.json(&["show", "bindings"])[0]["principal"], "default");
    router.ask(&["rollback"]);
    assert_eq!(router.json(&["show", "bindings"])[0]["principal"], "video");
    assert_eq!(router.json(&["principal", "show", "video"])["deadline"], "5ms");
    router
        .try_ask(&["principal", "set", "video", "cpu=60%", "cpu-limit="])
        .assert_refused(1, &["cpu is 60 %", "core"]);
    router.ask(&["router", "set", "core-ceiling=30%", "cpu-scheduler=wf2q+"]);
    router.ask(&["principal", "set", "video", "cpu=60%", "cpu-limit="]);
    router.try_ask(&["router", "set", "core-ceiling=50%"]).assert_refused(1, &["cpu is 60 %", "leave 50 %"]);
    router.assert_conservation();
}
