//! Queue counters of routes and filters, compared with counts of each packet by a model.

mod twin;

use std::time::Duration;

use millrace_units::QueueAccount;
use proptest::prelude::*;

use crate::flows::offloaded_flows::model::OffloadModel;
use twin::{FILTERS, ROUTES, Twin};

/// Schedulers for port `c`, each with a leaf `second`. Most bursts of the test exceed their discard
/// thresholds.
const SCHEDULERS: [&str; 6] = [
    "",
    r#"scheduler = { rate = "2mbit", node = [
    { name = "top", kind = "priority" },
    { name = "first", kind = "fifo", under = "top", level = 0, threshold = "3000B" },
    { name = "second", kind = "fifo", under = "top", level = 1, threshold = "2000B" } ] }
"#,
    r#"scheduler = { rate = "3mbit", node = [
    { name = "top", kind = "deficit-round-robin" },
    { name = "first", kind = "fq-codel", under = "top", quantum = "1500B" },
    { name = "second", kind = "fifo", under = "top", quantum = "1500B", threshold = "2000B" } ] }
"#,
    r#"scheduler = { rate = "2mbit", node = [
    { name = "top", kind = "deficit-round-robin" },
    { name = "first", kind = "flow-queues", under = "top", quantum = "1500B", threshold = "1000B" },
    { name = "second", kind = "fifo", manage = "red", minimum = "500B", maximum = "3000B", under = "top", quantum = "500B" } ] }
"#,
    r#"scheduler = { rate = "1mbit", node = [
    { name = "top", kind = "priority" },
    { name = "first", kind = "fifo", manage = "codel", under = "top", level = 1 },
    { name = "second", kind = "fifo", under = "top", level = 0 } ] }
"#,
    r#"scheduler = { rate = "5mbit", node = [{ name = "second", kind = "fifo", manage = "red", minimum = "500B", maximum = "3000B" }] }
"#,
];

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Wait(u64),
    AddFilter(usize),
    RemoveFilter(usize),
    AddRoute(usize),
    RemoveRoute(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..120_usize).prop_map(Step::Send),
        3 => prop::sample::select(vec![1, 5, 40, 900, 40_000]).prop_map(Step::Wait),
        4 => (0..FILTERS.len()).prop_map(Step::AddFilter),
        2 => (0..FILTERS.len()).prop_map(Step::RemoveFilter),
        3 => (0..ROUTES.len()).prop_map(Step::AddRoute),
        2 => (0..ROUTES.len()).prop_map(Step::RemoveRoute),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn routes_and_filters_count_as_if_packet_by_packet(
        workers in 1..4_usize,
        scheduler in 0..SCHEDULERS.len(),
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 4..40),
    ) {
        let mut twin = Twin::new(workers, SCHEDULERS[scheduler], None, seed);
        for step in steps {
            match step {
                Step::Send(count) => twin.send(count),
                Step::Wait(millis) => twin.router.advance(Duration::from_millis(millis)),
                Step::AddFilter(which) if which != 2 || scheduler > 0 => twin.add_filter(which),
                Step::AddFilter(_) => {}
                Step::RemoveFilter(which) => twin.remove_filter(which),
                Step::AddRoute(which) => twin.add_route(which),
                Step::RemoveRoute(which) => twin.remove_route(which),
            }
            twin.check();
        }
        twin.router.advance(Duration::from_secs(60));
        let (waiting, _) = twin.check();
        prop_assert_eq!(waiting, 0);
    }

    #[test]
    fn offloaded_packets_count_for_their_route(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 4..30),
    ) {
        let offload = OffloadModel::new(16);
        let mut twin = Twin::new(1, "", Some(offload.clone()), seed);
        for _ in 0..3 {
            twin.send(200);
            twin.router.advance(Duration::from_millis(5));
        }
        for step in steps {
            match step {
                Step::Send(count) => twin.send(count),
                Step::Wait(millis) => twin.router.advance(Duration::from_millis(millis)),
                Step::AddFilter(which) if which != 2 => twin.add_filter(which),
                Step::AddFilter(_) => {}
                Step::RemoveFilter(which) => twin.remove_filter(which),
                Step::AddRoute(which) => twin.add_route(which),
                Step::RemoveRoute(which) => twin.remove_route(which),
            }
            // The offload reports its counts at most a quarter of a second later.
            twin.router.advance(Duration::from_millis(600));
            twin.check();
        }
        prop_assert!(offload.forwarded() > 0);
    }
}

#[test]
fn cleared_counters_still_include_waiting_packets() {
    let mut twin = Twin::new(1, SCHEDULERS[1], None, 5);
    twin.add_route(0);
    twin.send(200);
    let before = twin.router.router.route_counts("10.9.1.0/24".parse().unwrap()).unwrap().unwrap();
    assert!(before.waiting.packets > 0 && before.dropped.packets > 0, "{before:?}");
    twin.router.router.clear_counters();
    let cleared = twin.router.router.route_counts("10.9.1.0/24".parse().unwrap()).unwrap().unwrap();
    assert_eq!((cleared.queued, cleared.waiting), (before.waiting, before.waiting));
    twin.router.advance(Duration::from_secs(10));
    let sent = twin.router.router.route_counts("10.9.1.0/24".parse().unwrap()).unwrap().unwrap();
    assert_eq!((sent.sent(), sent.waiting.packets), (before.waiting, 0));
}

#[test]
fn a_route_does_not_get_the_number_of_one_whose_packets_still_wait() {
    let mut twin = Twin::new(2, SCHEDULERS[1], None, 5);
    twin.add_route(0);
    twin.send(200);
    let (waiting, _) = twin.check();
    assert!(waiting > 0);
    twin.remove_route(0);
    // This releases far more account numbers than the pool of unused numbers holds.
    let prefix = |number: usize| format!("10.100.{}.{}/32", number / 250, number % 250);
    let route = |number: usize| toml::from_str(&format!("to = \"{}\"\nvia = \"10.2.0.2\"", prefix(number)));
    let routes: Vec<millrace_config::Route> = (0..1500).map(|number| route(number).unwrap()).collect();
    let router = &mut twin.router.router;
    for (number, route) in routes.iter().enumerate() {
        router.add_route(route).unwrap();
        router.remove_route(prefix(number).parse().unwrap()).unwrap();
    }
    routes.iter().for_each(|route| router.add_route(route).unwrap());
    let nothing_sent = |router: &mut millrace_controller::offline::OfflineRouter| {
        (0..1500).all(|number| {
            let counted = router.route_counts(prefix(number).parse().unwrap()).unwrap();
            counted == Some(QueueAccount::default())
        })
    };
    assert!(nothing_sent(router));
    router.advance(Duration::from_secs(60));
    assert!(nothing_sent(router));
    twin.check();
}
