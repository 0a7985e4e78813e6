//! Tests that take minutes to an hour: an hour of changes, and faults as often as the table of faults
//! requires.

use std::time::{Duration, Instant};

use millrace_testkit::{Ground, Line, Millrace, Namespace};

use super::{churn, control, death, garbage};
use crate::forwarding::control_plane;
use crate::ports::links;
use crate::shares;
use crate::support::assert_undisturbed;
use crate::support::hygiene::Taken;
use crate::support::reference::Reference;

/// Environment variable: duration of the hour-long test in seconds, instead of an hour.
const SECONDS: &str = "MILLRACE_SOAK_SECONDS";
/// Setting that makes the heap use pages of 4 KiB. The kernel fills huge pages of 2 MiB in the background, so
/// resident memory would not show the memory in use.
const SMALL_PAGES: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=0";

/// Makes 500 new flows, takes a link down and up, and adds and removes a route, a filter and an instance.
fn one_round(line: &Line, router: &Millrace, third: &Namespace, round: u32) {
    let socket = line.h1.within(|| std::net::UdpSocket::bind("10.1.0.2:0")).expect("a socket");
    let first = 10_000 + (round % 40) as u16 * 1000;
    for port in first..first + 500 {
        // A send returns an error if an ICMP error of an earlier datagram has arrived. It sends the datagram
        // nevertheless.
        let _ = socket.send_to(b"flow", ("10.2.0.2", port));
    }
    line.r.ip("link set r3 down\nlink set r3 up");
    let _ = third.try_run("ping -c 1 -W 0.3 10.1.0.2");
    router.ask(&["route", "add", "192.0.2.0/24", "via", "10.2.0.2"]);
    router.ask(&["filter", "add", "proto udp dport 7", "--action", "drop"]);
    let filter = router.json(&["filter", "list"])[0]["id"].to_string();
    router.ask(&["filter", "remove", &filter]);
    router.ask(&["instance", "create", "statistics", "churn"]);
    router.ask(&["bind", "churn", "--gate", "monitor", "--filter", "proto udp"]);
    router.ask(&["instance", "free", "churn"]);
    router.ask(&["route", "remove", "192.0.2.0/24"]);
}

#[test]
#[ignore = "an hour: make soak"]
fn fault_39_hour_of_churn_leaks_no_memory_descriptors_or_threads() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let time = std::env::var(SECONDS).map_or(3600, |seconds| seconds.parse().expect("a number of seconds"));
    let line = Line::new();
    let third = Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.ip("route add default via 10.3.0.1");
    let arguments = "--port r1 --port r2 --port r3";
    let mut router = Millrace::try_start_by(&line.r, &["env", SMALL_PAGES], arguments).expect("a router");
    line.h1.run("ping -c 1 10.2.0.2");
    let end = Instant::now() + Duration::from_secs(time);
    let flows = Reference::start(&line);
    let (mut before, mut received, mut round) = (None, 0, 0);
    while Instant::now() < end {
        one_round(&line, &router, &third, round);
        let now = router.summary("received");
        assert!(now > received, "received packets went from {received} to {now}");
        (received, round) = (now, round + 1);
        // The first third of the time fills bounded logs; the event log takes 20 minutes.
        if before.is_none() && Instant::now() > end - Duration::from_secs(time * 2 / 3) {
            before = Some((Taken::by(&router), round));
        }
    }
    let (before, warm) = before.expect("an hour has more than one round");
    // Memory is checked before delays, so that one late packet doesn't hide a leak. Temporary pages take up
    // to 1 %.
    before.assert_kept(&mut router, 1, &format!("rounds {warm} to {round}"));
    let reports = flows.finish();
    router.assert_conservation();
    reports.iter().for_each(|report| assert_undisturbed(report, "churn"));
}

#[test]
#[ignore = "minutes: make soak"]
fn fault_6_ten_million_malformed_frames_are_all_accounted_for() {
    garbage::assert_all_accounted_for(10_000_000);
}

#[test]
#[ignore = "minutes: make soak"]
fn fault_10_a_router_killed_a_hundred_times_starts_every_time() {
    death::assert_starts_after_each_of(100);
}

#[test]
#[ignore = "a minute: make soak"]
fn fault_18_a_link_that_flaps_for_a_minute_costs_no_packet() {
    links::assert_flaps_cost_nothing(Duration::from_secs(60));
}

#[test]
#[ignore = "minutes: make soak"]
fn fault_20_a_million_routes_come_and_go_beside_flows_that_lose_nothing() {
    churn::assert_followed(1_000_000, 20);
}

#[test]
#[ignore = "ten minutes: make soak"]
fn fault_35_a_session_of_bgp_stays_up_through_ten_minutes_of_floods() {
    control_plane::assert_session_stays_up(Duration::from_secs(150));
}

#[test]
#[ignore = "minutes: make soak"]
fn fault_33_fifty_upgrades_while_packets_flow_end_no_session() {
    control::assert_gaps_of_upgrades(50);
}

#[test]
#[ignore = "a minute: make soak"]
fn principals_keep_their_shares_for_a_minute_and_a_restart() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let mut router = Millrace::start(&line.r, "--port r1 --port r2");
    shares::add_principals(&line, &router);
    let load = shares::Load::start(&line);
    load.rounds(&router, 3, 0.02);
    let file = line.write("shares.toml", &router.ask(&["show", "configuration"]));
    router.kill();
    let router = Millrace::start(&line.r, &format!("--config {}", file.display()));
    load.rounds(&router, 3, 0.02);
    load.end(&router);
}
