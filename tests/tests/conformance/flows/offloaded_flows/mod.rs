//! Offloaded flows: after any change, each flow's packets leave unchanged and in order, as without the
//! offload.

pub mod model;
mod order;
mod pair;

use std::collections::BTreeSet;

use millrace_pipeline::{ReversePath, StaysUp};
use millrace_testkit::Random;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, NdFrame, station};
use model::OffloadModel;
use pair::{ByFlow, Change, FILTERS, Pair, ROUTES};
use proptest::prelude::*;

/// Replaces the ICMP errors by their number. They can't be compared one by one: errors belong to many flows,
/// whose packets may overtake each other, and not every packet held for an absent host causes an error.
fn count_errors(flows: ByFlow) -> ByFlow {
    let mut counted = ByFlow::new();
    for ((port, mut flow), frames) in flows {
        if is_of_router(&flow) {
            flow.truncate(11);
            let without = vec![Vec::new(); frames.len()];
            counted.entry((port, flow)).or_default().extend(without);
        } else {
            counted.insert((port, flow), frames);
        }
    }
    counted
}

/// Whether a flow is ICMP other than an echo request.
fn is_of_router(flow: &[u8]) -> bool {
    flow[0] == 58 || (flow[0] == 1 && flow[9] != 8)
}

/// Change, and the bursts of packets after it. Each burst has a seed and a number of packets, which arrive
/// before the router runs.
type Step = (Change, Vec<(u64, usize)>);

fn any_change() -> impl Strategy<Value = Change> {
    let modes = prop::sample::select(vec![ReversePath::Off, ReversePath::Strict, ReversePath::Loose]);
    prop_oneof![
        3 => (0..FILTERS.len()).prop_map(Change::AddFilter),
        3 => any::<usize>().prop_map(Change::RemoveFilter),
        3 => (0..ROUTES.len()).prop_map(Change::AddRoute),
        3 => (0..ROUTES.len()).prop_map(Change::RemoveRoute),
        2 => (0..2_usize, prop::sample::select(vec![1500, 1280, 9000]))
            .prop_map(|(port, mtu)| Change::Mtu(port, mtu)),
        2 => (1..3_usize, any::<bool>()).prop_map(|(port, up)| Change::Up(port, up)),
        1 => modes.prop_map(Change::ReversePath),
        4 => (0xd0..0xd3_u8).prop_map(Change::Neighbour),
        2 => prop::sample::select(vec![1, 300, 5_000, 40_000]).prop_map(Change::Wait),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let bursts = prop::collection::vec((any::<u64>(), 1..12_usize), 1..12);
    prop::collection::vec((any_change(), bursts), 1..12)
}

/// Returns a packet of one of a few flows.
fn frame(random: &mut Random, number: u32) -> (&'static str, Vec<u8>) {
    let payload = [number.to_be_bytes().as_slice(), &[0; 36]].concat();
    let (source, destination) = (1000 + random.below(6) as u16, *random.pick(&[53, 443]));
    let v4 = || Ipv4Frame::udp().ports(source, destination).payload(&payload).id(number as u16);
    let v6 = || Ipv6Frame::udp().ports(source, destination).payload(&payload);
    match random.below(24) {
        0 => ("a", v4().ttl(1).bytes()),
        1 => ("a", v4().tos(16).bytes()),
        2 => ("a", v4().options(&[1, 1, 1, 0]).bytes()),
        3 => ("a", v4().length(1400).bytes()),
        4 => ("a", v4().checksum_xor(1).bytes()),
        5 => ("a", Ipv4Frame::tcp().ports(source, 80).flags(2).bytes()),
        6 => ("a", Ipv4Frame::tcp().ports(source, 80).flags(16).id(number as u16).bytes()),
        7 => ("a", NdFrame::solicitation("fd00:1::2", "fd00:1::1").source_link(station(0xa2)).bytes()),
        8 | 9 => ("a", v4().dst("10.3.0.50").bytes()),
        10 => ("a", Ipv4Frame::echo().payload(&payload).id(number as u16).bytes()),
        11 => ("c", v4().src("10.3.0.2").to(station(0x0c)).bytes()),
        12..17 => ("a", v6().bytes()),
        _ => ("a", v4().bytes()),
    }
}

/// Size of a router with an offload: capacity of the flow cache, workers, and receive queues per port.
type Made = (u32, usize, usize);

fn runs_alike(steps: &[Step], (room, workers, queues): Made) -> u64 {
    let of = |room| Pair::of_workers(room, workers, queues);
    let (mut plain, mut with) = (of(None), of(Some(room)));
    let mut number = 0;
    for (change, bursts) in steps {
        plain.change(change);
        with.change(change);
        for (seed, count) in bursts {
            let mut random = Random::new(*seed);
            for _ in 0..*count {
                number += 1;
                let (port, frame) = frame(&mut random, number);
                let (queue, iterations) = (queue_of(&frame) % queues, random.below(3));
                for pair in [&mut plain, &mut with] {
                    pair.receive_by(port, queue, &frame);
                    // Only a few steps, so that the next packet arrives while this one is on its way between
                    // workers.
                    (0..iterations).for_each(|_| pair.router.router.iterate());
                    pair.take();
                }
            }
            for pair in [&mut plain, &mut with] {
                pair.run();
                pair.advance(1);
            }
        }
    }
    for pair in [&mut plain, &mut with] {
        pair.advance(30_000);
    }
    let is_in_order = (workers, queues) == (1, 1);
    let by_flow = |pair: &Pair| if is_in_order { pair.by_flow() } else { count_errors(pair.by_flow()) };
    let (below, alone) = (by_flow(&with), by_flow(&plain));
    let flows: BTreeSet<_> = below.keys().chain(alone.keys()).collect();
    for flow in flows {
        assert_eq!(below.get(flow), alone.get(flow), "{flow:02x?}, with a offload below and without");
    }
    assert_eq!(with.filter_counts(), plain.filter_counts());
    with.router.check_conservation();
    with.offload.as_ref().map_or(0, OffloadModel::forwarded)
}

/// Returns the receive queue for a frame: the same for all frames of a flow, as with a NIC's RSS.
fn queue_of(frame: &[u8]) -> usize {
    frame[14..].iter().skip(20).take(4).map(|byte| usize::from(*byte)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn offload_changes_no_sent_packet(steps in any_steps(), room in prop::sample::select(vec![1_u32, 4, 64])) {
        runs_alike(&steps, (room, 1, 1));
    }

    #[test]
    fn offload_below_several_workers_and_queues_changes_no_sent_packet(
        steps in any_steps(),
        workers in 1..4_usize,
        queues in 1..4_usize,
    ) {
        runs_alike(&steps, (64, workers, queues));
    }
}

#[test]
fn plain_flow_is_offloaded() {
    let mut pair = Pair::new(Some(64));
    for number in 0..1000_u32 {
        pair.receive("a", &Ipv4Frame::udp().ports(7, 9).id(number as u16).bytes());
        pair.receive("a", &Ipv6Frame::udp().ports(7, 9).bytes());
        pair.run();
        pair.advance(1);
    }
    let forwarded = pair.offload.as_ref().unwrap().forwarded();
    assert!(forwarded >= 1980, "{forwarded} of 2000");
    let counts = pair.router.router.offloaded_flows();
    assert_eq!((counts.flows, counts.inserted, counts.room), (2, 2, 62));
    // The flow table has both flows all the time. Their flow cache entries expire when the flows end.
    assert_eq!(pair.router.router.flows().records, 2);
    pair.advance(20_000);
    assert_eq!(
        (pair.router.router.offloaded_flows().flows, pair.router.router.offloaded_flows().idle),
        (0, 2)
    );
}

/// Sends packets of one flow to an address. Returns the number of packets that the offload forwarded.
fn driven(pair: &mut Pair, to: &str, count: u64) -> u64 {
    let before = pair.offload.as_ref().unwrap().forwarded();
    for number in 0..count {
        pair.receive("a", &Ipv4Frame::udp().dst(to).ports(7, 53).id(number as u16).bytes());
        pair.run();
        pair.advance(1);
    }
    pair.offload.as_ref().unwrap().forwarded() - before
}

#[test]
fn unrelated_change_keeps_a_flow_offloaded() {
    let mut pair = Pair::new(Some(64));
    assert!(driven(&mut pair, "10.2.0.2", 100) >= 97);
    // Changes that don't concern the flow: routes to other prefixes, a filter that never matches, and a
    // neighbour that gets no packets.
    for step in 0..10 {
        let route = toml::from_str("to = \"99.0.0.0/8\"\nvia = \"10.3.0.2\"").unwrap();
        pair.router.router.add_route(&route).unwrap();
        pair.change(&Change::AddFilter(0));
        pair.change(&Change::Neighbour(0xd0 + step));
        assert_eq!(driven(&mut pair, "10.2.0.2", 10), 10, "step {step}");
        pair.change(&Change::RemoveFilter(0));
        let _ = pair.router.router.remove_route("99.0.0.0/8".parse().unwrap());
        assert_eq!(driven(&mut pair, "10.2.0.2", 10), 10, "step {step}");
    }
    // A change of the flow's own neighbour causes one upcall.
    driven(&mut pair, "10.3.0.50", 1);
    pair.change(&Change::Neighbour(0xd1));
    assert!(driven(&mut pair, "10.3.0.50", 100) >= 97);
    pair.change(&Change::Neighbour(0xd0));
    assert_eq!(driven(&mut pair, "10.3.0.50", 10), 9);
}

#[test]
fn returning_flow_is_offloaded_at_once() {
    let mut pair = Pair::new(Some(64));
    // The number is neither a power of two nor round.
    assert!(driven(&mut pair, "10.2.0.2", 300) >= 297);
    pair.advance(16_000);
    assert_eq!(pair.router.router.offloaded_flows().idle, 1);
    assert!(driven(&mut pair, "10.2.0.2", 10) >= 8);
}

/// Sends heavy and light flows. Returns the number of heavy flows' packets that the offload forwarded in the
/// last second.
fn crowded(pair: &mut Pair, heavy: u16, light: &[(u16, u64)], millis: u64) -> u64 {
    let mut before = 0;
    for number in 0..millis {
        if number + 1000 == millis {
            before = pair.offload.as_ref().unwrap().forwarded();
        }
        pair.receive("a", &Ipv4Frame::udp().ports(heavy, 9).id(number as u16).bytes());
        for (port, every) in light.iter().filter(|(_, every)| number % every == 0 && number + 1000 < millis) {
            pair.receive("a", &Ipv4Frame::udp().ports(*port, *every as u16).id(number as u16).bytes());
        }
        pair.run();
        pair.advance(1);
    }
    pair.offload.as_ref().unwrap().forwarded() - before
}

#[test]
fn a_heavy_flow_gets_the_place_of_a_light_one_where_the_cache_is_full() {
    let mut pair = Pair::new(Some(4));
    let light = [(1, 50), (2, 60), (3, 70), (4, 80)];
    // The light flows are offloaded first, and send often enough to stay.
    assert_eq!(crowded(&mut pair, 1, &light[1..], 3000), 1000);
    assert_eq!(pair.router.router.offloaded_flows().flows, 4);
    let down = crowded(&mut pair, 7, &light, 5000);
    let counts = pair.router.router.offloaded_flows();
    assert_eq!(down, 1000, "{counts:?}");
    assert!(counts.evicted >= 1, "{counts:?}");
    // The router counts a flow for which the flow cache has no room once, not with each packet.
    assert!((1..=5).contains(&counts.refused), "{counts:?}");
}

#[test]
fn cleared_counters_include_no_earlier_offloaded_packets() {
    let mut pair = Pair::new(Some(64));
    let filter = toml::from_str("match = \"proto udp dport 53\"\naction = \"accept\"").unwrap();
    let id = pair.router.router.add_filter(&filter).unwrap();
    assert!(driven(&mut pair, "10.2.0.2", 300) >= 290);
    pair.router.router.clear_counters();
    // By now all reports of earlier packets have arrived.
    pair.advance(2000);
    assert_eq!(pair.router.router.filter_counts(id).packets, 0);
    assert_eq!(driven(&mut pair, "10.2.0.2", 10), 10);
    pair.advance(2000);
    assert_eq!(pair.router.router.filter_counts(id).packets, 10);
}

#[test]
fn equal_flows_do_not_evict_each_other() {
    let mut pair = Pair::new(Some(3));
    for number in 0..4000_u32 {
        for port in 1..=5 {
            pair.receive("a", &Ipv4Frame::udp().ports(port, 9).id(number as u16).bytes());
        }
        pair.run();
        pair.advance(1);
    }
    let counts = pair.router.router.offloaded_flows();
    assert_eq!((counts.flows, counts.evicted, counts.refused), (3, 0, 2), "{counts:?}");
}

#[test]
fn flow_with_many_upcalls_returns_to_the_worker_for_a_while() {
    let mut pair = Pair::new(Some(64));
    pair.router.router.set_mtu("b", 1280);
    assert!(driven(&mut pair, "10.2.0.2", 100) >= 97);
    // The router must fragment these packets, which the offload can't do.
    let long = |pair: &mut Pair, count: u16| {
        for number in 0..count {
            pair.receive("a", &Ipv4Frame::udp().dst("10.2.0.2").ports(7, 53).id(number).length(1400).bytes());
            pair.run();
            pair.advance(10);
        }
        pair.router.router.offloaded_flows()
    };
    assert_eq!(long(&mut pair, 20).flows, 1, "a few say nothing");
    let counts = long(&mut pair, 400);
    assert_eq!((counts.flows, counts.inserted), (0, 1));
    let why = |pair: &mut Pair| pair.router.router.flow_reports().remove(0).stays_up;
    assert_eq!(why(&mut pair), Some(StaysUp::ComesUp));
    assert_eq!(long(&mut pair, 3000).inserted, 1, "it is not tried again and again");
    assert_eq!(driven(&mut pair, "10.2.0.2", 100), 0);
    // The flow is offloaded again later.
    pair.advance(30_000);
    assert!(driven(&mut pair, "10.2.0.2", 600) >= 300);
    assert_eq!(why(&mut pair), None);
}

#[test]
fn packet_above_the_ingress_mtu_is_refused_as_by_a_worker() {
    let send = |pair: &mut Pair, length: usize| {
        for number in 0..200_u16 {
            let frame = Ipv4Frame::udp().dst("10.2.0.2").ports(7, 443).id(number).length(length);
            pair.receive("a", &frame.bytes());
            pair.run();
            pair.advance(1);
        }
        pair.router.drops().get("link_oversize").copied().unwrap_or_default()
    };
    for filtered in [false, true] {
        let mut pairs = [Pair::new(None), Pair::new(Some(64))];
        let outcomes = pairs.each_mut().map(|pair| {
            pair.router.router.set_mtu("a", 1280);
            if filtered {
                pair.change(&Change::AddFilter(0));
            }
            let refused = [1280, 1281, 1300, 1280].map(|length| send(pair, length));
            // By then the offload has reported its packets to the filter's counters.
            pair.advance(2000);
            (refused, pair.filter_counts())
        });
        assert_eq!(outcomes[0], outcomes[1], "filtered: {filtered}");
        assert!(pairs[0].by_flow() == pairs[1].by_flow(), "filtered: {filtered}: other packets left");
        assert_eq!(outcomes[0].0, [0, 200, 400, 400], "filtered: {filtered}");
        let offload = pairs[1].offload.as_ref().unwrap();
        let treated = if filtered { offload.dropped() } else { offload.forwarded() };
        assert!(treated >= 300, "{treated} in the offload");
    }
}

#[test]
fn drop_filters_and_policers_are_offloaded() {
    let mut pair = Pair::new(Some(64));
    let send = |pair: &mut Pair, to: u16, count: u32| {
        for number in 0..count {
            pair.receive("a", &Ipv4Frame::udp().ports(1005, to).id(number as u16).bytes());
            pair.run();
            pair.advance(1);
        }
        let offload = pair.offload.as_ref().unwrap();
        (offload.forwarded(), offload.dropped())
    };
    pair.change(&Change::AddFilter(0));
    let (forwarded, dropped) = send(&mut pair, 443, 200);
    assert!(forwarded == 0 && dropped >= 180, "{forwarded} forwarded, {dropped} dropped");
    pair.change(&Change::RemoveFilter(0));
    pair.change(&Change::AddFilter(8));
    let (forwarded, policed) = send(&mut pair, 443, 500);
    assert!(forwarded > 40 && policed > dropped + 300, "{forwarded} forwarded, {policed} dropped");
    pair.advance(1_000);
    let counts = pair.filter_counts();
    let sent = pair.sent["b"].len() as u64;
    assert_eq!((counts[0].0, counts[0].2), (500, 500 - sent), "{counts:?}");
    // A flow without a policer stays offloaded.
    pair.change(&Change::AddFilter(7));
    let before = pair.offload.as_ref().unwrap().forwarded();
    let (forwarded, _) = send(&mut pair, 53, 100);
    assert!(forwarded >= before + 95, "{forwarded} of {before} and 100");
}

#[test]
fn padded_packets_are_charged_and_counted_alike_at_both_levels() {
    let send = |room: Option<u32>| {
        let mut pair = Pair::new(room);
        pair.change(&Change::AddFilter(8));
        for number in 0..400 {
            let mut frame = Ipv4Frame::udp().ports(1005, 443).id(number).payload(&[1]).bytes();
            frame.resize(60, 0);
            pair.receive("a", &frame);
            pair.run();
            pair.advance(1);
        }
        pair.advance(1_000);
        let driven = pair.offload.as_ref().map_or(0, OffloadModel::forwarded);
        (pair.sent["b"].len(), pair.filter_counts()[0], driven)
    };
    let (worker, offload) = (send(None), send(Some(64)));
    assert_eq!((worker.0, worker.1), (offload.0, offload.1));
    assert!(offload.2 > 50 && worker.0 < 390, "{worker:?} {offload:?}");
}

#[test]
fn bound_flow_is_not_offloaded_and_a_newly_bound_flow_leaves_the_offload() {
    let mut pair = Pair::new(Some(64));
    let send = |pair: &mut Pair, count: u32| {
        for number in 0..count {
            pair.receive("a", &Ipv4Frame::udp().ports(7, 443).id(number as u16).bytes());
            pair.run();
            pair.advance(1);
        }
        pair.offload.as_ref().unwrap().forwarded()
    };
    let before = send(&mut pair, 100);
    assert!(before >= 98, "{before} of 100");
    pair.change(&Change::AddFilter(0));
    let sent = pair.sent["b"].len();
    assert_eq!(send(&mut pair, 100), before, "none goes by the offload any more");
    assert_eq!(pair.sent["b"].len(), sent, "all are dropped");
    pair.change(&Change::RemoveFilter(0));
    assert!(send(&mut pair, 100) >= before + 97);
}
