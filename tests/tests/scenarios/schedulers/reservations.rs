//! Reservations that many clients make and release at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use millrace_testkit::Random;
use millrace_testkit::{Ended, Ground, Line, Millrace};
use serde_json::Value;

use crate::support::router;

const CLIENTS: u64 = 8;
const ROUNDS: u64 = 30;
/// Rate of the link, in bits per second.
const LINK: u64 = 10_000_000;

/// Returns the sum of the rates promised to the nodes of a port, in bits per second.
fn promised(router: &Millrace) -> u64 {
    let shown = router.json(&["scheduler", "show", "r2"]);
    let nodes = shown["nodes"].as_array().expect("nodes");
    let of = |node: &Value| {
        let curve = node["settings"]["real_time"].as_str().and_then(|text| text.strip_suffix("mbit"));
        let rate = curve.and_then(|rate| rate.parse::<u64>().ok());
        rate.unwrap_or_else(|| panic!("no rate: {node:#}")) * 1_000_000
    };
    nodes.iter().filter(|node| node["name"] != "all").map(of).sum()
}

/// Repeats a request while another change is in progress. Returns the result.
fn ask_in_turn(router: &Millrace, arguments: &[&str]) -> Ended {
    loop {
        let ended = router.try_ask(arguments);
        if ended.code == Some(0) || !ended.stderr.contains("try again in a second") {
            return ended;
        }
    }
}

/// Reserves random rates and releases them again. Returns the number of granted reservations.
fn reserve_and_release(router: &Millrace, client: u64) -> u64 {
    let mut random = Random::new(client);
    let (name, mut granted) = (format!("n{client}"), 0);
    for _ in 0..ROUNDS {
        let rate = format!("real-time={}mbit", 1 + random.below(5));
        let add = ["scheduler", "add", "r2", &name, "--kind", "fifo", "--under", "all", &rate];
        let ended = ask_in_turn(router, &add);
        if ended.code == Some(0) {
            granted += 1;
            let removed = ask_in_turn(router, &["scheduler", "remove", "r2", &name]);
            assert_eq!(removed.code, Some(0), "{removed:?}");
        } else {
            assert!(ended.stderr.contains("Mb/s"), "refused for another reason: {ended:?}");
        }
    }
    granted
}

#[test]
fn fault_16_clients_that_reserve_at_once_are_never_promised_more_than_the_link() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "hfsc"]);
    router.ask(&["scheduler", "set", "r2", "rate=10mbit"]);
    let (done, most, granted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let now = promised(&router);
                assert!(now <= LINK, "{now} bits per second are promised");
                most.fetch_max(now, Ordering::Relaxed);
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (router, granted) = (&router, &granted);
                scope.spawn(move || granted.fetch_add(reserve_and_release(router, client), Ordering::Relaxed))
            })
            .collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        for client in ended {
            client.expect("a client that does not panic");
        }
    });
    let (most, granted) = (most.into_inner(), granted.into_inner());
    println!("{granted} of {} granted, {most} bits per second at most", CLIENTS * ROUNDS);
    assert!(most > LINK / 2, "{most}: the clients never met");
    assert!(granted < CLIENTS * ROUNDS, "nothing was refused");
    assert_eq!(promised(&router), 0, "what was released is free again");
    router.assert_conservation();
}
