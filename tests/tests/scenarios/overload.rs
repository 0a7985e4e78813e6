//! Overload: a router that receives more than it can forward drops plain packets before those with a
//! promise.

use std::thread;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};
use serde_json::Value;

use crate::forwarding::control_plane::{flood, frame};
use crate::plugins::files::build;
use crate::support::to;

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a router whose plain packets all pass a worker. The ceiling of core is low, so that the flood of a
/// busy machine exceeds it.
fn start(line: &Line) -> Millrace {
    let text = "[router]\noffloaded-flows = 0\ncore-ceiling = \"5 %\"\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n\
                [[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let file = line.write("router.toml", text);
    Millrace::start(&line.r, &format!("--config {}", file.display()))
}

/// Loads a plugin with two instances. It computes for a while on packets to UDP ports above 9001.
fn load(line: &Line, router: &Millrace) {
    let slow = build(line, "slow", |source| {
        let work = "if (packet->destination_port > 9001) { for (volatile int turn = 0; turn < 600000; \
                    turn++) {} } packets++;";
        source.replace("packets++;", work)
    });
    router.ask(&["plugin", "load", slow.to_str().unwrap()]);
    for (name, port, cpu) in [("light", 9001, 20), ("busy", 9002, 60)] {
        router.ask(&["principal", "add", name, &format!("cpu={cpu}%")]);
        router.ask(&["instance", "create", "slow", name]);
        let filter = format!("proto udp dport {port}");
        router.ask(&["bind", name, "--gate", "process", "--filter", &filter, "--principal", name]);
    }
}

fn of_core(router: &Millrace) -> Value {
    let promises = router.json(&["show", "promises"]);
    promises["promises"].as_array().unwrap().iter().find(|one| one["principal"] == "core").unwrap().clone()
}

#[test]
fn overloaded_router_drops_plain_packets_before_those_with_a_promise() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let router = start(&line);
    load(&line, &router);
    line.h1.run("ping -c 1 10.2.0.2");
    let busy = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 4000, 64);
    let udp = [0xc0, 0, 0, 9, 0, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let host = (&line.h1, "eth0");
    let frame = frame(&line, host, (line.r.mac_of("r1"), [10, 2, 0, 2]), 17, &udp);
    thread::scope(|scope| {
        let flood = scope.spawn(|| flood(host, &frame, Duration::from_secs(20)));
        eventually("the event", PATIENCE, || {
            let events = router.json(&["events", "--kind", "overloaded"]);
            events.to_string().contains("core gets more packets").then_some(())
        });
        let light = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 64);
        // Control and the router itself still answer.
        line.h1.run("ping -c 3 -i 0.2 -W 2 10.1.0.1");
        light.go_on(Duration::from_secs(4));
        // The flood takes a processor of two, and at times the worker's.
        let report = light.finish();
        assert!(report.lost() <= report.sent / 100 && report.reordered == 0, "{report:?}");
        flood.join().unwrap();
    });
    drop(busy);
    let core = of_core(&router);
    assert!(router.drops("core_ceiling") > 1000 && core["dropped"].as_u64() > Some(1000), "{core}");
    eventually("the end of the overload", PATIENCE, || {
        let events = router.json(&["events", "--kind", "overload-ended"]);
        events.to_string().contains("core has dropped no packet").then_some(())
    });
    router.assert_conservation();
}

/// Returns the packets of a principal that were lost for a cause.
fn lost(router: &Millrace, principal: &str, cause: &str) -> u64 {
    let promises = router.json(&["show", "promises"]);
    let all = promises["promises"].as_array().unwrap();
    let own = all.iter().find(|one| one["principal"] == principal).cloned().unwrap_or_default();
    own["drops"][cause].as_u64().unwrap_or_default()
}

#[test]
fn principal_above_its_share_raises_an_alarm_and_costs_plain_packets_nothing() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let router = start(&line);
    load(&line, &router);
    router.ask(&["principal", "set", "busy", "cpu=5%", "cpu-limit=5%"]);
    line.h1.run("ping -c 1 10.2.0.2");
    let busy = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 2000, 64);
    let plain = Flow::start(&line.h1, &line.h2, to("10.2.0.2:8000"), 500, 64);
    let event = eventually("the event", PATIENCE, || {
        let events = router.json(&["events", "--kind", "overloaded"]);
        let all = events["events"].as_array()?.clone();
        all.into_iter().find(|event| event["subject"] == "busy")
    });
    let text = event["text"].as_str().unwrap();
    assert!(
        text.starts_with("busy is overloaded: its packets need more than its share of the processor;"),
        "{text}"
    );
    assert!(event["details"]["dropped"].as_u64() > Some(1000), "{event}");
    assert!(lost(&router, "busy", "cpu_queue") > 1000 && lost(&router, "busy", "core_ceiling") == 0);
    let report = plain.finish();
    assert_eq!((report.lost(), report.reordered), (0, 0), "{report:?}");
    drop(busy);
    eventually("the end of the overload", PATIENCE, || {
        let events = router.json(&["events", "--kind", "overload-ended"]);
        events.to_string().contains("busy has dropped no packet").then_some(())
    });
    router.assert_conservation();
}

#[test]
fn packets_of_low_weight_are_shed_before_those_of_high_weight_and_reserved_ones_never() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let router = start(&line);
    load(&line, &router);
    for (name, port, weight) in [("low", 9003, 1), ("high", 9004, 10_000)] {
        router.ask(&["principal", "add", name, &format!("weight={weight}")]);
        router.ask(&["instance", "create", "slow", name]);
        let filter = format!("proto udp dport {port}");
        router.ask(&["bind", name, "--gate", "process", "--filter", &filter, "--principal", name]);
    }
    line.h1.run("ping -c 1 10.2.0.2");
    let flows = [(9002, 4000), (9003, 1000), (9004, 1000)]
        .map(|(port, rate)| Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), rate, 64));
    let udp = [0xc0, 0, 0, 9, 0, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let host = (&line.h1, "eth0");
    let frame = frame(&line, host, (line.r.mac_of("r1"), [10, 2, 0, 2]), 17, &udp);
    let shed = |name| lost(&router, name, "core_ceiling");
    thread::scope(|scope| {
        let flood = scope.spawn(|| flood(host, &frame, Duration::from_secs(12)));
        eventually("plain packets are shed", PATIENCE, || {
            (router.drops("core_ceiling") > 1000).then_some(())
        });
        assert_eq!((shed("low"), shed("high")), (0, 0), "`plain` is the default");
        router.ask(&["router", "set", "shed=by-weight"]);
        flood.join().unwrap();
    });
    let (low, high) = (shed("low"), shed("high"));
    println!("shed: {low} packets of weight 1, {high} of weight 10,000");
    assert!(low > 10 && low > high, "{low} {high}");
    assert_eq!((shed("light"), shed("busy")), (0, 0));
    drop(flows);
    eventually("no packet waits", PATIENCE, || (router.summary("held") == 0).then_some(()));
    router.assert_conservation();
}
