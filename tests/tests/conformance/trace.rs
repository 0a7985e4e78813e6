//! Traces: each packet and each fragment has the end that really happened.

use millrace_pipeline::{TraceEnd, TraceSource, TraceStep};
use millrace_tests::{Frame, Ipv4Frame, STANDARD, Scenario};

/// Returns the traced steps of all workers, in the order of their times.
fn steps(traces: &mut [TraceSource]) -> Vec<TraceStep> {
    let mut events: Vec<_> =
        traces.iter_mut().flat_map(|trace| std::iter::from_fn(|| trace.next_event())).collect();
    events.sort_by_key(|event| event.counter);
    events.into_iter().map(|event| event.step).collect()
}

#[test]
fn fragments_that_are_dropped_at_once_stand_behind_their_fragmentation() {
    // The queue has room for one of them.
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

/// Lets 60 packets of `flows` flows, in rotation, arrive in one batch. Returns the numbers of the packets of
/// each flow that leave by `b`. The router traces one packet in `every`, or none for 0.
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
fn a_filter_sees_the_packets_of_a_flow_in_order_whichever_of_them_are_traced() {
    // The policer drops the packets beyond a burst of 20: the last ones.
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
