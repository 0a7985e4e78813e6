//! Events: shown on request, and streamed to listeners.

use std::time::Duration;

use millrace_testkit::{Background, Flow, Ground, Line, Millrace, binary, eventually};
use serde_json::{Value, json};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build, build_source};
use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the events of a kind, the oldest first.
fn events(router: &Millrace, kind: &str) -> Vec<Value> {
    let page = router.json(&["events", "--since", "0", "--kind", kind]);
    page["events"].as_array().cloned().unwrap_or_default()
}

/// Waits for an event of a kind with this subject.
fn await_event(router: &Millrace, kind: &str, subject: &str) -> Value {
    eventually(&format!("{kind} of {subject}"), PATIENCE, || {
        events(router, kind).into_iter().find(|event| event["subject"] == subject)
    })
}

/// Starts a client that follows the event stream, with these headers.
fn listen(line: &Line, router: &Millrace, log: &str, headers: &[&str]) -> Background {
    let socket = router.socket().display().to_string();
    let mut arguments = vec!["-sN", "--unix-socket", &*socket, "-H", "Accept: text/event-stream"];
    headers.iter().for_each(|header| arguments.extend(["-H", header]));
    arguments.push("http://millrace/events");
    Background::start(&line.r, "curl", &arguments, line.file(log))
}

#[test]
fn instance_is_quarantined_with_an_event_after_its_fault_limit() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang", "curl"]) else { return };
    let line = Line::new();
    let traps = build(&line, "traps", |source| source.replace("packets++;", "__builtin_trap();"));
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let listener = listen(&line, &router, "listener.log", &[]);
    eventually("the listener is heard", PATIENCE, || listener.log().contains("retry:").then_some(()));
    router.ask(&["plugin", "load", traps.to_str().unwrap()]);
    router.ask(&["instance", "create", "traps", "i1"]);
    let victim = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9002"), 2000, 64);
    router.ask(&["bind", "i1", "--gate", "process", "--filter", "dport 9002"]);
    let quarantined = await_event(&router, "instance-quarantined", "i1");
    assert_eq!(quarantined["severity"], "error");
    let text = quarantined["text"].as_str().unwrap();
    assert!(text.contains("instance i1 is in quarantine: 8 faults within 60 s"), "{text}");
    assert_eq!(quarantined["details"]["plugin"], "traps");
    let is_complete = || {
        let faults = events(&router, "plugin-fault");
        let told: u64 = faults.iter().filter_map(|event| event["count"].as_u64()).sum();
        let counted = router.row("instances", "name", "i1")["faults"]["unreachable"].as_u64();
        (Some(told) == counted && told >= 8).then_some(faults)
    };
    let faults = eventually("every fault is told", PATIENCE, is_complete);
    assert!(faults.iter().all(|event| event["details"]["fault"] == "unreachable"), "{faults:#?}");
    assert!(!events(&router, "instance-restarted").is_empty(), "it was restarted before");
    victim.finish();

    // The listener has received the same events. A later listener receives the events after the one that it
    // names as the last known.
    let number = quarantined["number"].as_u64().unwrap();
    eventually("the listener hears it", PATIENCE, || {
        listener.log().contains(&format!("id: {number}\nevent: instance-quarantined\n")).then_some(())
    });
    router.ask(&["instance", "release", "i1"]);
    await_event(&router, "instance-released", "i1");
    let later = listen(&line, &router, "later.log", &[&format!("Last-Event-ID: {number}")]);
    eventually("the second listener hears what it missed", PATIENCE, || {
        later.log().contains("event: instance-released\n").then_some(())
    });
    assert!(!later.log().contains("event: instance-quarantined"), "{}", later.log());
    // The command `events` shows the same event.
    let program = binary().display().to_string();
    let socket = router.socket().display().to_string();
    let arguments =
        ["--socket", &*socket, "events", "--follow", "--last", "1", "--kind", "instance-released"];
    let follower = Background::start(&line.r, &program, &arguments, line.file("follow.log"));
    eventually("the command prints it", PATIENCE, || {
        follower.log().contains("instance i1 was released from quarantine").then_some(())
    });
    assert_eq!(follower.log().lines().count(), 1, "{}", follower.log());
    router.assert_conservation();
}

/// Applies, rolls back, confirms and saves the configuration in the file `more`. Checks that each action
/// causes an event.
fn assert_configuration_events(line: &Line, router: &Millrace, more: &str) {
    let newest = router.json(&["events", "--last", "1"])["newest"].as_u64().unwrap();
    router.ask(&["apply", more, "--confirm", "1h"]);
    router.ask(&["rollback"]);
    router.ask(&["apply", more, "--confirm", "1h"]);
    router.ask(&["confirm"]);
    router.try_ask(&["apply", &line.write("wrong.toml", "[router]\nworkers = 5\n").display().to_string()]);
    router.ask(&["save", more]);
    router.ask(&["scheduler", "add", "wan", "q", "--kind", "flow-queues", "rate=1mbit"]);
    router.ask(&["scheduler", "remove", "wan", "q"]);
    let page = router.json(&["events", "--since", &newest.to_string()]);
    let kinds: Vec<&str> =
        page["events"].as_array().unwrap().iter().filter_map(|event| event["kind"].as_str()).collect();
    let expected = [
        "configuration-applied",
        "configuration-rolled-back",
        "configuration-confirmed",
        "configuration-refused",
        "configuration-saved",
        "reservation-set",
        "reservation-removed",
    ];
    for kind in expected {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
}

#[test]
fn events_report_links_neighbours_plugins_and_configurations() {
    let Some(_ground) = Ground::enter(&["ping", "clang"]) else { return };
    let line = Line::new();
    let [first, second] =
        ["1.0.0", "1.1.0"].map(|version| build_source(&line, "counter", version, COUNTER_KEYS, COUNTER));
    let base = "[[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n";
    let more = format!("{base}[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.2.0.2\"\n");
    let [base, more] = [("base.toml", base), ("more.toml", &more)]
        .map(|(name, text)| line.write(name, text).display().to_string());
    let router = Millrace::start(&line.r, &format!("--config {base}"));
    assert_eq!(events(&router, "router-started").len(), 1);

    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    let learned = await_event(&router, "neighbour-learned", "10.2.0.2 at wan");
    assert_eq!(learned["details"]["port"], "wan");
    line.h1.try_run("ping -c 1 -W 1 10.2.0.77");
    await_event(&router, "neighbour-failed", "10.2.0.77 at wan");

    line.h2.run("ip link set eth0 down");
    assert_eq!(await_event(&router, "link-down", "wan")["severity"], "warning");
    line.h2.run("ip link set eth0 up");
    await_event(&router, "link-up", "wan");

    router.ask(&["plugin", "load", &first]);
    router.ask(&["plugin", "upgrade", "counter", &second]);
    router.ask(&["plugin", "rollback", "counter"]);
    router.ask(&["plugin", "unload", "counter"]);
    for (kind, version) in
        [("plugin-loaded", "1.0.0"), ("plugin-upgraded", "1.1.0"), ("plugin-rolled-back", "1.0.0")]
    {
        let told = await_event(&router, kind, "counter");
        assert!(told["text"].as_str().unwrap().contains(version), "{told:#}");
    }
    await_event(&router, "plugin-unloaded", "counter");

    assert_configuration_events(&line, &router, &more);
    let applied = events(&router, "configuration-applied");
    assert_eq!(applied[0]["details"]["who"]["uid"], json!(0), "{applied:#?}");
    router.try_ask(&["events", "--kind", "link-dwn"]).assert_refused(1, &["did you mean \"link-down\"?"]);
}
