//! Hundreds of thousands of routes that are added and withdrawn while packets flow.

use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace};
use serde_json::Value;

use crate::support::fib;
use crate::support::hygiene::Taken;
use crate::support::reference::Reference;
use crate::support::router;

/// Number of addresses looked up at each stop.
const LOOKUPS: u32 = 20;
/// Time limit for equal tables after a change.
const RESYNC: Duration = Duration::from_secs(10);
/// Memory by which the router may grow in a pass, in per cent.
const MORE: u64 = 10;
/// Number of passes in one of which the router must keep its memory. It grows once when two of its threads answer at
/// the same time for the first time, because each keeps what its longest answer took. A leak grows in each pass.
const PASSES: u32 = 3;

/// Checks that router and kernel have the same port and gateway for an address, or both no route.
fn assert_finds_the_same(line: &Line, router: &Millrace, address: &str, what: &str) {
    let packet = format!("src 10.1.0.2 dst {address} proto udp sport 7 dport 9 in r1");
    let answer = router.json(&["lookup", &packet]);
    let steps = answer["steps"].as_array().expect("steps");
    let step = steps.iter().find(|step| step["stage"] == "route").and_then(|step| step["text"].as_str());
    let step = step.unwrap_or_else(|| panic!("{what}: {address}: {answer:#}"));
    let kernel = line.r.try_run(&format!("ip -j route get {address}")).stdout;
    let kernel: Value = serde_json::from_slice(&kernel).unwrap_or_default();
    let (device, gateway) = (kernel[0]["dev"].as_str(), kernel[0]["gateway"].as_str());
    let same = match device.zip(gateway) {
        Some((device, gateway)) => step.contains(device) && step.contains(gateway),
        None => step.contains("no route"),
    };
    assert!(same, "{what}: {address}: {step:?}, the kernel: {kernel}");
}

/// Adds `routes` routes, replaces their next hops, and withdraws them, while packets flow. At each of `stops`
/// stops the router must have the kernel's routes and next hops.
fn churn(line: &Line, router: &Millrace, routes: u32, stops: u32) {
    let flows = Reference::start(line);
    let step = routes / (stops / 2);
    for stop in 0..stops {
        let from = stop % (stops / 2) * step;
        if stop < stops / 2 {
            fib::change(line, "add", from..from + step);
            fib::change_next_hops(line, from..from + step / 4);
        } else {
            fib::withdraw_next_hops(line, from..from + step / 4);
            fib::change(line, "del", from + step / 4..from + step);
        }
        let (took, count) = fib::assert_equal(line, router, RESYNC);
        println!("stop {stop}: {count} routes equal after {took:?}");
        for number in 0..LOOKUPS {
            // Addresses within the range of all routes, and some beyond it.
            let [_, second, third, fourth] = (number * 799_979 % (routes + routes / 20)).to_be_bytes();
            let address = format!("{}.{third}.{fourth}.{}", 11 + second, 1 + number);
            assert_finds_the_same(line, router, &address, &format!("stop {stop}"));
        }
    }
    flows.assert_undisturbed("routes beside come and go");
}

/// Lets routes come and go as [`churn`] does. In the end the router must use little more memory than before.
pub fn assert_followed(routes: u32, stops: u32) {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut router = router(&line);
    // The first pass makes the router allocate the memory that it keeps for tables of this size.
    fib::change(&line, "add", 0..routes);
    fib::assert_equal(&line, &router, RESYNC);
    fib::change(&line, "del", 0..routes);
    fib::assert_equal(&line, &router, RESYNC);
    for pass in 1..=PASSES {
        let before = Taken::by(&router);
        churn(&line, &router, routes, stops);
        if pass == PASSES || before.has_memory(&router, MORE) {
            before.assert_kept(&mut router, MORE, "routes that came and went");
            break;
        }
    }
    router.assert_conservation();
}

#[test]
fn fault_20_a_hundred_thousand_routes_come_and_go_beside_flows_that_lose_nothing() {
    assert_followed(100_000, 10);
}
