//! Bounds of the functional tests of DiscoDNC, a calculator for network calculus (Bondorf and Schmitt, "The
//! DiscoDNC v2", 2014), as published with its version 2.4: networks of rate-latency servers and token buckets.

use std::time::Duration;

use crate::deadline::{RateLatency, Resource, TokenBucket};

const SERVER: RateLatency = RateLatency { rate: 10.0, latency: 10.0 };
const SLOW: RateLatency = RateLatency { rate: 6.0, latency: 6.0 };
const FLOW: TokenBucket = TokenBucket { rate: 5.0, burst: 25.0 };
const HALF: TokenBucket = TokenBucket { rate: 2.5, burst: 12.5 };
const LIGHT: TokenBucket = TokenBucket { rate: 4.0, burst: 10.0 };
const LARGE: RateLatency = RateLatency { rate: 20.0, latency: 20.0 };

#[track_caller]
fn equal(ours: (f64, f64), published: (f64, f64)) {
    assert!((ours.0 - published.0).abs() <= 1e-6, "delay {} instead of {}", ours.0, published.0);
    assert!((ours.1 - published.1).abs() <= 1e-6, "backlog {} instead of {}", ours.1, published.1);
}

/// Delay and backlog of a flow.
fn bounds(server: RateLatency, flow: TokenBucket) -> (f64, f64) {
    (server.delay(flow), server.backlog(flow))
}

/// S_1SC_1F_1AC.
#[test]
fn one_server_with_one_flow() {
    equal(bounds(SERVER, FLOW), (12.5, 75.0));
}

/// S_1SC_2F_2AC: total flow, and each flow apart, in arbitrary order and in order of arrival.
#[test]
fn one_server_with_two_flows() {
    let all = LIGHT.and(FLOW);
    equal(bounds(SERVER, all), (13.5, 125.0));
    // In arbitrary order, a packet of both flows together waits at most until the backlog ends.
    equal((SERVER.beside(all).unwrap().latency, SERVER.backlog(all)), (135.0, 125.0));
    let apart = |flow, other| bounds(SERVER.beside(other).unwrap(), flow);
    equal(apart(LIGHT, FLOW), (27.0, 110.0));
    equal(apart(FLOW, LIGHT), (22.5, 350.0 / 3.0));
    let in_order = |flow, other| bounds(SERVER.beside_in_order(other).unwrap(), flow);
    equal(in_order(LIGHT, FLOW), (14.5, 60.0));
    equal(in_order(FLOW, LIGHT), (91.0 / 6.0, 80.0));
}

/// S_1SC_2F_1AC: two flows with the same curve.
#[test]
fn one_server_with_two_equal_flows() {
    equal(bounds(SERVER, FLOW.and(FLOW)), (15.0, 150.0));
    equal(bounds(SERVER.beside(FLOW).unwrap(), FLOW), (30.0, 150.0));
    equal(bounds(SERVER.beside_in_order(FLOW).unwrap(), FLOW), (17.5, 87.5));
}

/// S_1SC_10F_10AC: the first and the seventh of ten flows.
#[test]
fn one_server_with_ten_flows() {
    let flow = |number: u32| TokenBucket { rate: f64::from(number) / 10.0, burst: f64::from(number) };
    let others =
        |but: u32| (1..=10).filter(|number| *number != but).map(flow).reduce(TokenBucket::and).unwrap();
    let all = others(0);
    equal(bounds(SERVER, all), (15.5, 110.0));
    equal((SERVER.beside(all).unwrap().latency, SERVER.backlog(all)), (310.0 / 9.0, 110.0));
    for (number, apart, in_order) in [
        (1, (775.0 / 23.0, 100.0 / 23.0), (1796.0 / 115.0, 127.0 / 50.0)),
        (7, (775.0 / 26.0, 350.0 / 13.0), (2099.0 / 130.0, 434.0 / 25.0)),
    ] {
        equal(bounds(SERVER.beside(others(number)).unwrap(), flow(number)), apart);
        equal(bounds(SERVER.beside_in_order(others(number)).unwrap(), flow(number)), in_order);
    }
}

/// TA_2S_1SC_1F_1AC_1P: two equal servers.
#[test]
fn even_tandem_with_one_flow() {
    let second = bounds(SERVER, SERVER.output(FLOW));
    equal((SERVER.delay(FLOW) + second.0, second.1), (30.0, 125.0));
    equal(bounds(SERVER.then(SERVER), FLOW), (22.5, 125.0));
}

/// TA_2S_1SC_2F_1AC_2P and TR_3S_1SC_2F_1AC_2P: another flow joins at the last server, from outside or from a server of
/// its own.
#[test]
fn flow_that_another_one_joins() {
    for (joining, apart, in_order) in [
        (FLOW, (50.0, 800.0 / 3.0), (515.0 / 12.0, 925.0 / 4.0)),
        (LARGE.output(FLOW), (170.0 / 3.0, 300.0), (575.0 / 12.0, 1025.0 / 4.0)),
    ] {
        equal(bounds(LARGE.then(LARGE.beside(joining).unwrap()), FLOW), apart);
        equal(bounds(LARGE.then(LARGE.beside_in_order(joining).unwrap()), FLOW), in_order);
    }
    equal(bounds(LARGE.beside(LARGE.output(FLOW)).unwrap(), FLOW), (110.0 / 3.0, 200.0));
}

/// TA_3S_1SC_2F_1AC_1P and TA_2S_1SC_4F_1AC_1P: the other flows take the same path.
#[test]
fn longer_tandem_and_more_flows() {
    let quarter = TokenBucket { rate: 2.0, burst: 10.0 };
    let three = quarter.and(quarter).and(quarter);
    for (server, hops, flow, others, apart, in_order, once) in [
        (
            LARGE,
            3,
            FLOW,
            FLOW,
            (320.0 / 3.0, 550.0),
            (965.0 / 12.0, 1675.0 / 4.0),
            (250.0 / 3.0, 1300.0 / 3.0),
        ),
        (SERVER, 2, quarter, three, (82.5, 170.0), (34.5, 74.0), (60.0, 125.0)),
    ] {
        let arrivals = std::iter::successors(Some(others), |before| Some(server.output(*before)));
        let path = |beside: fn(RateLatency, TokenBucket) -> Option<RateLatency>| {
            let left = arrivals.clone().take(hops).map(|others| beside(server, others).unwrap());
            left.reduce(RateLatency::then).unwrap()
        };
        equal(bounds(path(RateLatency::beside), flow), apart);
        equal(bounds(path(RateLatency::beside_in_order), flow), in_order);
        let whole = std::iter::repeat_n(server, hops).reduce(RateLatency::then).unwrap();
        equal(bounds(whole.beside(others).unwrap(), flow), once);
    }
}

/// TA_2S_2SC_1F_1AC_1P: hop by hop, and the burst paid for once.
#[test]
fn tandem_with_one_flow() {
    let second = bounds(SLOW, SERVER.output(FLOW));
    equal((SERVER.delay(FLOW) + second.0, second.1), (31.0, 105.0));
    equal(bounds(SERVER.then(SLOW), FLOW), (121.0 / 6.0, 105.0));
}

/// TA_2S_1SC_2F_1AC_1P: each flow apart, and the other flow's burst paid for once, too.
#[test]
fn tandem_with_two_flows() {
    let [first, second] = [FLOW, SERVER.output(FLOW)].map(|other| SERVER.beside(other).unwrap());
    equal(bounds(first.then(second), FLOW), (65.0, 325.0));
    let [first, second] = [FLOW, SERVER.output(FLOW)].map(|other| SERVER.beside_in_order(other).unwrap());
    equal(bounds(first.then(second), FLOW), (35.0, 175.0));
    equal(bounds(SERVER.then(SERVER).beside(FLOW).unwrap(), FLOW), (50.0, 250.0));
    let both = FLOW.and(FLOW);
    let second = bounds(SERVER, SERVER.output(both));
    equal((SERVER.delay(both) + second.0, second.1), (40.0, 250.0));
    assert_eq!(SERVER.beside(both), None);
}

/// TA_2S_2SC_2F_1AC_1P.
#[test]
fn uneven_tandem_with_two_flows() {
    let [first, second] = [SERVER.beside(HALF), SLOW.beside(SERVER.output(HALF))].map(Option::unwrap);
    equal(bounds(first.then(second), HALF), (277.0 / 7.0, 102.5));
    let [first, second] =
        [SERVER.beside_in_order(HALF), SLOW.beside_in_order(SERVER.output(HALF))].map(Option::unwrap);
    equal(bounds(first.then(second), HALF), (379.0 / 14.0, 71.25));
    equal(bounds(SERVER.then(SLOW).beside(HALF).unwrap(), HALF), (242.0 / 7.0, 90.0));
}

#[test]
fn server_that_is_too_slow_has_no_finite_bound() {
    let fast = TokenBucket { rate: 11.0, burst: 0.0 };
    assert_eq!(bounds(SERVER, fast), (f64::INFINITY, f64::INFINITY));
    assert!(SERVER.beside(fast).is_none() && SERVER.beside_in_order(fast).is_none());
}

#[test]
fn whole_resources_have_the_curves_of_their_capacities() {
    let link = Resource::link(1_000_000_000, 500_000_000, 1538).service();
    let packet = TokenBucket { rate: 0.0, burst: 12_304.0 };
    assert!(
        (link.delay(packet) - 3.0 * 12.304e-6).abs() < 1e-12,
        "its own time at half the rate, and a packet"
    );
    let processor = Resource::processor(2_000_000_000, 250_000, Duration::from_micros(50)).service();
    assert_eq!(processor, RateLatency { rate: 5e8, latency: 50e-6 });
}
