//! Journeys as they are written down: each packet, and each fragment, has the end that it had.

use millrace_pipeline::{TraceEnd, TraceSource, TraceStep};
use millrace_tests::{Ipv4Frame, STANDARD, Scenario};

/// What was written down, of all workers, in the order of the clock.
fn steps(traces: &mut [TraceSource]) -> Vec<TraceStep> {
    let mut events: Vec<_> =
        traces.iter_mut().flat_map(|trace| std::iter::from_fn(|| trace.next_event())).collect();
    events.sort_by_key(|event| event.counter);
    events.into_iter().map(|event| event.step).collect()
}

#[test]
fn fragments_that_are_dropped_at_once_stand_behind_their_fragmentation() {
    // There is room for one of them.
    let node = "mtu = 1280\nscheduler = { rate = \"8kbit\", node = [{ name = \"small\", kind = \"fifo\", threshold = 1400 }] }\n";
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
