//! Routes of a router compared with those of its kernel: destinations and next hops.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use millrace_testkit::{Line, Millrace, wait_until};
use serde_json::Value;

/// Next hops (gateway and device) of each destination from 11.0.0.0 on.
pub type Fib = BTreeMap<String, BTreeSet<(String, String)>>;

/// Number of routes that one command changes.
const BATCH: u32 = 100_000;

fn is_far(to: &str) -> bool {
    to.split('.')
        .next()
        .and_then(|first| first.parse::<u8>().ok())
        .is_some_and(|first| first > 10 && first < 127)
}

fn fib(rows: &Value, to: &str, via: &str, device: &str, next_hops: &str) -> Fib {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |row: &Value| {
        let name = text(&row[to]);
        let hops = row[next_hops].as_array().cloned().unwrap_or_else(|| vec![row.clone()]);
        let hops = hops.iter().map(|hop| (text(&hop[via]), text(&hop[device]))).collect();
        is_far(&name).then_some((name, hops))
    };
    rows.as_array().expect("rows").iter().filter_map(entry).collect()
}

/// Returns a router's routes to 11.0.0.0 and above. The router's ports must have the names of their devices.
pub fn of_router(router: &Millrace) -> Fib {
    fib(&router.json(&["show", "routes"]), "to", "via", "port", "next_hops")
}

/// Returns the time from `begin` until the router has these routes. It excludes the time to parse the
/// router's answers, which takes seconds in a debug build.
///
/// # Panics
/// When the router has other routes for longer than `patience`.
pub fn time_until_equal(router: &Millrace, kernel: &Fib, begin: Instant, patience: Duration) -> Duration {
    let mut answered = Duration::ZERO;
    let equal = wait_until(3 * patience, || {
        let text = router.ask(&["show", "routes", "--json"]);
        answered = begin.elapsed();
        fib(&serde_json::from_str(&text).expect("JSON"), "to", "via", "port", "next_hops") == *kernel
    });
    assert!(equal.is_some(), "other routes than the kernel's {}", kernel.len());
    assert!(answered <= patience, "the routes took {answered:?}");
    answered
}

/// Returns the routes to 11.0.0.0 and above of the router's kernel.
pub fn of_kernel(line: &Line) -> Fib {
    let text = line.r.run("ip -j -4 route show table main");
    fib(&serde_json::from_str(&text).expect("JSON of ip"), "dst", "gateway", "dev", "nexthops")
}

/// Waits until the router has the kernel's routes with the kernel's next hops. Returns the elapsed time and
/// the number of routes.
///
/// # Panics
/// When the tables differ for longer than `patience`; the message has the first differences.
pub fn assert_equal(line: &Line, router: &Millrace, patience: Duration) -> (Duration, usize) {
    let kernel = of_kernel(line);
    let mut ours = Fib::new();
    let took = wait_until(patience, || {
        ours = of_router(router);
        ours == kernel
    });
    let differing = kernel.iter().filter(|(to, hops)| ours.get(*to) != Some(hops)).take(3);
    let differing: Vec<_> = differing.map(|(to, hops)| (to, hops, ours.get(to))).collect();
    let stale: Vec<_> = ours.keys().filter(|to| !kernel.contains_key(*to)).take(3).collect();
    let counts = (ours.len(), kernel.len());
    (took.unwrap_or_else(|| panic!("{counts:?} routes: {differing:?}, stale {stale:?}")), kernel.len())
}

/// Adds (`add`) or removes (`del`) /24 routes from 11.0.0.0 on, by the far ends of `r1` and `r2` in turn.
pub fn change(line: &Line, verb: &str, numbers: Range<u32>) {
    run(line, verb, numbers, 0);
}

/// Replaces the next hop of the routes with these numbers by the other one.
pub fn change_next_hops(line: &Line, numbers: Range<u32>) {
    run(line, "replace", numbers, 1);
}

/// Removes the routes with these numbers after [`change_next_hops`].
pub fn withdraw_next_hops(line: &Line, numbers: Range<u32>) {
    run(line, "del", numbers, 1);
}

fn run(line: &Line, verb: &str, numbers: Range<u32>, shift: u32) {
    let one = |number: u32| {
        let [_, second, third, fourth] = number.to_be_bytes();
        let port = 1 + (number + shift) % 2;
        format!("route {verb} {}.{third}.{fourth}.0/24 via 10.{port}.0.2\n", 11 + second)
    };
    // One `ip` command per batch, so that each takes a bounded time.
    for first in numbers.clone().step_by(BATCH as usize) {
        let text: String = (first..numbers.end.min(first + BATCH)).map(one).collect();
        let file = line.write("batch", &text);
        line.r.run(&format!("ip -batch {}", file.display()));
    }
}
