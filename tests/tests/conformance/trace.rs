//! Traces: the trace of each packet and fragment ends as the packet really did.

use std::time::Duration;

use millrace_pipeline::{FlowFound, RouteTaken, StageOutcome, TraceEnd, TraceSource, TraceStep, Waits};
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, STANDARD, Scenario, station};

/// Returns the traced steps of all workers, ordered by time.
fn steps(traces: &mut [TraceSource]) -> Vec<TraceStep> {
    let mut events: Vec<_> =
        traces.iter_mut().flat_map(|trace| std::iter::from_fn(|| trace.next_event())).collect();
    events.sort_by_key(|event| event.counter);
    events.into_iter().map(|event| event.step).collect()
}

#[test]
fn fragments_that_are_dropped_at_once_stand_behind_their_fragmentation() {
    // The queue has room for one fragment.
    let node = "mtu = 1280\nscheduler = { rate = \"8kbit\", node = [{ name = \"small\", kind = \"fifo\", threshold = \"1400B\" }] }\n";
    let text = STANDARD.replacen("name = \"a\"\n", "name = \"a\"\nmtu = 9000\n", 1);
    let mut router = Scenario::new(&text.replacen("name = \"b\"\n", &format!("name = \"b\"\n{node}"), 1));
    let mut traces = router.router.trace(1);
    router.send("a", &Ipv4Frame::udp().length(3600));
    let steps = steps(&mut traces);
    let fragmented = steps.iter().position(|step| matches!(step, TraceStep::Fragmented(3)));
    let dropped = steps.iter().position(|step| matches!(step, TraceStep::End(TraceEnd::Dropped(_))));
    let (fragmented, dropped) = fragmented.zip(dropped).unwrap_or_else(|| panic!("{steps:?}"));
    assert!(fragmented < dropped, "{steps:?}");
}

/// Injects 60 packets of `flows` flows, in rotation, as one batch. Returns the numbers of the packets that
/// leave by `b`, for each flow. The router traces one packet in `every`; 0 means none.
fn passed(filter: &str, flows: u16, every: u32) -> Vec<Vec<u8>> {
    let mut router = Scenario::with(&format!("\n[[filter]]\n{filter}\n"));
    let mut traces = if every > 0 { router.router.trace(every) } else { Vec::new() };
    for round in 0..3 {
        for number in 0..20 {
            let flow = u16::from(number) % flows;
            let frame = Ipv4Frame::udp().ports(1000 + flow, 53).payload(&[round * 20 + number; 900]);
            router.router.inject("a", &frame.bytes());
        }
    }
    router.router.run();
    let mut passed = vec![Vec::new(); flows.into()];
    for bytes in router.router.take("b") {
        let flow = u16::from_be_bytes([bytes[34], bytes[35]]) - 1000;
        passed[usize::from(flow)].push(bytes[42]);
    }
    let arrived = |step: &TraceStep| matches!(step, TraceStep::Arrived(..));
    let ended = |step: &TraceStep| matches!(step, TraceStep::End(_));
    let steps = steps(&mut traces);
    let counts =
        (steps.iter().filter(|step| arrived(step)).count(), steps.iter().filter(|step| ended(step)).count());
    assert_eq!(counts.0, counts.1, "every journey ends");
    assert_eq!(counts.0 > 0, every > 0, "{counts:?}");
    router.check_conservation();
    passed
}

#[test]
fn filter_sees_the_packets_of_a_flow_in_order_with_any_traced_subset() {
    // The policer allows a burst of 20 packets and drops the later ones.
    let police = "match = \"proto udp\"\naction = \"police 1kbit burst 20000B\"";
    let other = "match = \"proto tcp\"\naction = \"drop\"";
    for flows in [1, 4, 20] {
        let mut alone = passed(police, 1, 0).remove(0);
        assert!((15..25).contains(&alone.len()), "{alone:?}");
        alone.sort_unstable();
        for every in [0, 1, 2, 7, 20, 50] {
            let of_flows = passed(police, flows, every);
            let order = of_flows.iter().all(|numbers| numbers.is_sorted());
            assert!(order, "{flows} flows, one in {every} traced: {of_flows:?}");
            if flows == 1 {
                assert_eq!(of_flows, [alone.clone()], "one in {every} traced");
            }
            let all = passed(other, flows, every);
            assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 60);
            assert!(all.iter().all(|numbers| numbers.is_sorted()), "{flows} flows, {every}: {all:?}");
        }
    }
}

/// Returns a step as a word, with its result if a test checks it.
fn word(step: &TraceStep) -> String {
    match step {
        TraceStep::Arrived(..) => "arrived".into(),
        TraceStep::Parsed(_) => "parsed".into(),
        TraceStep::Classified { found, bindings, .. } => match found {
            FlowFound::Miss => format!("miss/{bindings}"),
            FlowFound::Hit => format!("hit/{bindings}"),
            other => format!("{other:?}/{bindings}"),
        },
        TraceStep::Gate { outcome: StageOutcome::Passed, .. } => "passed".into(),
        TraceStep::Gate { outcome, .. } => format!("gate {outcome:?}"),
        TraceStep::Copied(copies) => format!("copied {copies}"),
        TraceStep::Routed(RouteTaken::Sent { noted, .. }) => if *noted { "express" } else { "routed" }.into(),
        TraceStep::Routed(RouteTaken::None) => "no route".into(),
        TraceStep::Routed(RouteTaken::Ends(end)) => format!("route {}", end.name()),
        TraceStep::Refused(_) => "refused".into(),
        TraceStep::Queued { .. } => "queued".into(),
        TraceStep::Waits(Waits::Neighbour(..)) => "waits for a neighbour".into(),
        TraceStep::Waits(Waits::Instance) => "waits for an instance".into(),
        TraceStep::Waits(Waits::Processor(_)) => "waits for the processor".into(),
        TraceStep::GoesOn => "goes on".into(),
        TraceStep::End(TraceEnd::Sent(..)) => "sent".into(),
        TraceStep::End(TraceEnd::Dropped(reason)) => format!("dropped {reason:?}"),
        other => format!("{other:?}"),
    }
}

/// Sends frames one by one to port `a` of a router with `more` in its configuration. Returns the steps of the
/// last frame. `settings`: lines of the table `[router]`.
fn journey(settings: &str, more: &str, frames: &[Ipv4Frame]) -> Vec<String> {
    let mut router = Scenario::with_settings_and(settings, more);
    let mut traces = router.router.trace(1);
    for frame in frames {
        steps(&mut traces);
        router.send("a", frame);
    }
    steps(&mut traces).iter().map(word).collect()
}

/// Name of a situation, settings of the router, more configuration, frames, and the steps of the last frame.
type Situation<'a> = (&'a str, &'a str, String, &'a [Ipv4Frame], &'a [&'a str]);

#[test]
fn traced_packet_records_each_passed_stage() {
    let udp = Ipv4Frame::udp;
    let known = [udp(), udp(), udp()];
    let count = "[[instance]]\nplugin = \"statistics\"\nname = \"s\"\n[[bind]]\ninstance = \"s\"\nfilter = \"*\"\ngate = ";
    let at = |gate: &str| format!("{count}\"{gate}\"\n");
    let filter = |action: &str| format!("[[filter]]\nmatch = \"proto udp\"\naction = \"{action}\"\n");
    let cases: [Situation<'_>; 10] = [
        ("miss", "", String::new(), &known[..1], &["miss/0", "routed", "queued", "sent"]),
        ("known flow", "", String::new(), &known, &["hit/0", "express", "queued", "sent"]),
        (
            "no flow table",
            "flows-max = 0",
            String::new(),
            &known,
            &["NotAsked/0", "express", "queued", "sent"],
        ),
        ("bound, miss", "", at("monitor"), &known[..1], &["miss/1", "passed", "routed", "queued", "sent"]),
        ("bound, known", "", at("monitor"), &known, &["hit/1", "passed", "express", "queued", "sent"]),
        ("copy for an instance", "", at("tap"), &known, &["hit/1", "copied 1", "express", "queued", "sent"]),
        ("dropped", "", filter("drop"), &known, &["hit/1", "passed", "route drop", "dropped Filter"]),
        (
            "copied",
            "",
            filter("copy-to c"),
            &known, // A copy for the gate, and the copy that leaves by `c`.
            &["hit/1", "copied 2", "express", "queued", "sent"],
        ),
        ("TTL", "", String::new(), &[udp().ttl(1)], &["miss/0", "routed", "refused", "dropped TtlExpired"]),
        (
            "no route",
            "",
            String::new(),
            &[udp().dst("192.0.2.1")],
            &["miss/0", "no route", "refused", "dropped NoRoute"],
        ),
    ];
    for (case, settings, more, frames, expected) in cases {
        let steps = journey(settings, &more, frames);
        assert_eq!(steps[..2], ["arrived", "parsed"], "{case}");
        assert_eq!(steps[2..], *expected, "{case}");
    }
}

#[test]
fn traced_packet_resumes_at_the_forward_stage_after_neighbour_resolution() {
    let mut router = Scenario::standard();
    let mut traces = router.router.trace(1);
    router.send("a", &Ipv4Frame::udp().dst("10.2.0.77"));
    let before: Vec<String> = steps(&mut traces).iter().map(word).collect();
    assert_eq!(before, ["arrived", "parsed", "miss/0", "routed", "waits for a neighbour"]);
    router.router.advance(Duration::from_millis(10));
    router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)));
    let after: Vec<String> = steps(&mut traces).iter().map(word).collect();
    let goes_on = after.iter().position(|step| step == "goes on").expect("the packet goes on");
    assert_eq!(after[goes_on..goes_on + 4], ["goes on", "routed", "queued", "sent"], "{after:?}");
}
