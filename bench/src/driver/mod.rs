//! `driver`: flows that the driver forwards, on veth, beside the kernel's forwarding: one, few and many, over many routes, beside filters, and
//! beside a flood of what is exceptional.
//!
//! Frames are made by an XDP test run with live frames on one processor, which on veth also does what the driver does; the worker has the
//! other. The kernel forwards on the processor of the generator too, as veth does by itself. What arrives is counted by the far device.

mod flood;
mod traffic;

use std::time::{Duration, Instant};

use self::flood::beside_flood;
use self::traffic::{Traffic, routes};
use crate::interrupt::{pause, wait_until};
use crate::load::{Load, UNLIMITED};
use crate::network::Network;
use crate::process::{Processor, SessionFirst};
use crate::router::Router;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

const GENERATOR_PROCESSOR: Processor = 0;
const WORKER: Processor = 1;
const RUNS: usize = 3;
/// How long traffic flows before it is counted, and how long it is counted.
const WARM_UP: Duration = Duration::from_millis(500);
const COUNTED: Duration = Duration::from_secs(1);
/// How long flows may take to go down, and at which rate they are made meanwhile.
const GOING_DOWN: Duration = Duration::from_secs(30);
const GOING_DOWN_RATE: u64 = 200_000;
/// Filters that match nothing, and rules of nftables beside them.
const FILTERS: usize = 100;

/// Runs all cases, or those that were asked for.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let wanted = options.case.clone().unwrap_or_default();
    let is_wanted = |case: &str| case.contains(&wanted);
    let network = Network::new()?;
    let _first = SessionFirst::begin();
    network.connect6()?;
    network.s.shell("ethtool -K s0 gro on")?;
    // The kernel's own forwarding receives redirected frames only with GRO.
    network.r.shell("ethtool -K r1 gro on")?;
    let plain = Traffic::plain();
    let few = &plain[1];
    let mut results = Vec::new();
    for traffic in plain.iter().filter(|traffic| is_wanted(traffic.case)) {
        results.push(beside_kernel(&network, traffic, options)?);
    }
    if is_wanted("filters") {
        results.push(beside_rules(&network, few, options)?);
    }
    if is_wanted("flood") {
        results.push(beside_flood(&network, few, options)?);
    }
    let routed = Traffic::routed();
    if is_wanted(routed.case) {
        network.r.ip(&routes())?;
        results.push(beside_kernel(&network, &routed, options)?);
    }
    match results.is_empty() {
        true => Err(BenchError::measurement("driver", format!("no case is called like {wanted:?}"))),
        false => Ok(results),
    }
}

/// The driver beside the kernel.
fn beside_kernel(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
) -> Result<Measurement, BenchError> {
    let kernel = || rate(network, traffic, UNLIMITED);
    let measured = alternately(network, traffic, options, (traffic.case, "kernel"), |_| Ok(()), kernel)?;
    Ok(measured.promising_ratio(Bound::AtLeast, traffic.promise))
}

/// The driver beside filters of which none matches, and the kernel beside as many rules.
fn beside_rules(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
) -> Result<Measurement, BenchError> {
    let add = |router: &Router| {
        for number in 0..FILTERS {
            let filter = format!("src 192.0.2.{number} proto udp dport {}", 1000 + number);
            router.tell(&["filter", "add", &filter, "--action", "drop", "--gate", "firewall"])?;
        }
        Ok(())
    };
    let rule = |number: usize| format!("ip saddr 192.0.2.{number} udp dport {} drop", 1000 + number);
    let rules = (0..FILTERS).map(rule).collect::<Vec<_>>().join("\n");
    let set = format!(
        "nft -f - <<END\ntable ip bench {{\nchain forward {{\ntype filter hook forward priority 0\n{rules}\n}}\n}}\nEND"
    );
    let kernel = || {
        network.r.shell(&set)?;
        let kernel = rate(network, traffic, UNLIMITED);
        network.r.shell("nft delete table ip bench")?;
        kernel
    };
    let case = format!("{}, beside {FILTERS} filters", traffic.case);
    alternately(network, traffic, options, (&case, "kernel with as many rules"), add, kernel)
}

/// What arrives when the router, once it is prepared, has the flows in the driver, beside what a peer brings, alternately.
fn alternately(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
    (case, peer): (&str, &'static str),
    prepare: impl Fn(&Router) -> Result<(), BenchError>,
    mut peers: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Measurement, BenchError> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(driver_run(network, traffic, options, &prepare)?);
        theirs.push(peers()?);
    }
    let ((least, most), ours, theirs) = (extremes(&ours), median(&ours), median(&theirs));
    (options.progress)(&format!(
        "{case}: driver {ours:.3} Mpps ({least:.3} to {most:.3}), {peer} {theirs:.3}"
    ));
    Ok(Measurement::of(format!("in the driver, {case}"), ours, "Mpps").beside(peer, theirs))
}

/// What arrives when the router has the flows in the driver.
fn driver_run(
    network: &Network,
    traffic: &Traffic,
    options: &Options<'_>,
    prepare: impl Fn(&Router) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let router = Router::start(&options.binary, network, Some(WORKER))?;
    prepare(&router)?;
    let mut load = Load::of(network, GENERATOR_PROCESSOR, traffic.frames.clone(), traffic.flows)?;
    go_down(&router, &load, traffic)?;
    load.set_rate(UNLIMITED);
    let result = count(network);
    load.set_rate(0);
    load.check()?;
    router.stop()?;
    result
}

/// Waits until nearly all flows are in the driver.
fn go_down(router: &Router, load: &Load, traffic: &Traffic) -> Result<(), BenchError> {
    load.set_rate(GOING_DOWN_RATE);
    let wanted = (traffic.count * 95).div_ceil(100);
    let mut there = 0;
    let are_down = wait_until(GOING_DOWN, || {
        let status: serde_json::Value =
            serde_json::from_str(&router.tell(&["show", "status", "--json"])?).unwrap_or_default();
        there = status["driver_flows"]["flows"].as_u64().unwrap_or_default();
        Ok(there >= wanted)
    })?;
    let problem = || format!("{there} of {} flows went down within {GOING_DOWN:?}", traffic.count);
    if are_down { Ok(()) } else { Err(BenchError::measurement("driver", problem())) }
}

/// What arrives when the kernel forwards.
fn rate(network: &Network, traffic: &Traffic, offered: u64) -> Result<f64, BenchError> {
    let mut load = Load::of(network, GENERATOR_PROCESSOR, traffic.frames.clone(), traffic.flows)?;
    load.set_rate(offered);
    let result = count(network);
    load.set_rate(0);
    load.check()?;
    result
}

/// Packets that arrive per second, in millions.
fn count(network: &Network) -> Result<f64, BenchError> {
    pause(WARM_UP)?;
    let (before, start) = (network.s.received("s0")?, Instant::now());
    pause(COUNTED)?;
    let arrived = network.s.received("s0")? - before;
    match arrived {
        0 => Err(BenchError::measurement("driver", "no packet arrived at the far end")),
        arrived => Ok(arrived as f64 / start.elapsed().as_secs_f64() / 1e6),
    }
}
