//! Routes of a router compared with those of its kernel: destinations and next hops.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use millrace_testkit::{Line, Millrace, wait_until};
use serde::Deserialize;

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

/// Route of a router or of its kernel, under the names of both.
#[derive(Deserialize)]
struct Row {
    #[serde(alias = "dst")]
    to: String,
    #[serde(flatten)]
    only: Hop,
    #[serde(default, alias = "nexthops")]
    next_hops: Option<Vec<Hop>>,
}

#[derive(Deserialize)]
struct Hop {
    #[serde(default, alias = "gateway")]
    via: Option<String>,
    #[serde(default, alias = "dev")]
    port: Option<String>,
}

/// Reads an answer of `show routes` or `ip route`.
fn read(answer: &str) -> Fib {
    let rows: Vec<Row> = serde_json::from_str(answer).expect("JSON with routes");
    let hop = |hop: Hop| (hop.via.unwrap_or_default(), hop.port.unwrap_or_default());
    let far = rows.into_iter().filter(|row| is_far(&row.to));
    far.map(|row| {
        let hops = row.next_hops.unwrap_or_else(|| vec![row.only]);
        (row.to, hops.into_iter().map(hop).collect())
    })
    .collect()
}

/// Returns the routes to 11.0.0.0 and above of the router's kernel.
pub fn of_kernel(line: &Line) -> Fib {
    read(&line.r.run("ip -j -4 route show table main"))
}

/// Returns the time from `begin` until the router answers with these routes, without the time to read the answer, which
/// takes seconds in a debug build. The router's ports must have the names of their devices.
///
/// # Panics
/// When the router has other routes for longer than `patience`; the message has the first differences.
pub fn time_until_equal(router: &Millrace, kernel: &Fib, begin: Instant, patience: Duration) -> Duration {
    let (mut answered, mut ours) = (Duration::ZERO, Fib::new());
    let equal = wait_until(3 * patience, || {
        let text = router.ask(&["show", "routes", "--json"]);
        answered = begin.elapsed();
        ours = read(&text);
        ours == *kernel
    });
    let differing = kernel.iter().filter(|(to, hops)| ours.get(*to) != Some(hops)).take(3);
    let differing: Vec<_> = differing.map(|(to, hops)| (to, hops, ours.get(to))).collect();
    let stale: Vec<_> = ours.keys().filter(|to| !kernel.contains_key(*to)).take(3).collect();
    let counts = (ours.len(), kernel.len());
    assert!(equal.is_some(), "{counts:?} routes: {differing:?}, stale {stale:?}");
    assert!(answered <= patience, "the routes took {answered:?}");
    answered
}

/// Waits until the router has the kernel's routes with the kernel's next hops. Returns the elapsed time and
/// the number of routes.
///
/// # Panics
/// As [`time_until_equal`].
pub fn assert_equal(line: &Line, router: &Millrace, patience: Duration) -> (Duration, usize) {
    let kernel = of_kernel(line);
    (time_until_equal(router, &kernel, Instant::now(), patience), kernel.len())
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
