//! `driver`: flows that the driver forwards, on veth, beside the kernel's forwarding: few and many, over many routes, beside filters, and
//! beside a flood of what is exceptional.
//!
//! Frames are made by an XDP test run with live frames on one processor, which on veth also does what the driver does; the worker has the
//! other. The kernel forwards on the processor of the generator too, as veth does by itself. What arrives is counted by the far device.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use millrace_offload::Flows;

use crate::frame::UdpFrame;
use crate::interrupt::{pause, wait_until};
use crate::load::{Load, UNLIMITED};
use crate::network::{GENERATOR, GENERATOR_MAC, Network, ROUTER_MAC, SINK};
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
const ROUTES: u32 = 500_000;
/// Destinations among these, as many as the generator has templates.
const DESTINATIONS: u32 = 256;
/// Source ports to each of them. Both turn with each frame, so all pairs come if the numbers have no common factor.
const PORTS: u32 = 501;
/// The promises.
const PLAIN: f64 = 2.0;
const ROUTED: f64 = 1.5;

/// What is sent.
struct Traffic {
    case: &'static str,
    frames: Vec<Vec<u8>>,
    flows: Flows,
    /// How many flows that makes.
    count: u64,
    promise: f64,
}

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let network = Network::new()?;
    let _first = SessionFirst::begin();
    network.s.shell("ethtool -K s0 gro on")?;
    // The kernel's own forwarding receives redirected frames only with GRO.
    network.r.shell("ethtool -K r1 gro on")?;
    let few = Traffic {
        case: "256 flows",
        frames: vec![frame(SINK, 64)],
        flows: Flows { ports: 256, ..Flows::default() },
        count: 256,
        promise: PLAIN,
    };
    let many = Traffic {
        case: "128 K flows",
        frames: vec![frame(SINK, 64)],
        flows: Flows { addresses: 200, ports: 640, ..Flows::default() },
        count: 128_000,
        promise: PLAIN,
    };
    let mut results = vec![beside_kernel(&network, &few, options)?, beside_kernel(&network, &many, options)?];
    results.push(beside_rules(&network, &few, options)?);
    results.push(beside_flood(&network, &few, options)?);
    network.r.ip(&routes())?;
    let routed = Traffic {
        case: "128 K flows to 256 destinations, each by another of 500 K routes",
        frames: (0..DESTINATIONS).map(|number| frame(destination(number), 64)).collect(),
        flows: Flows { ports: PORTS, ..Flows::default() },
        count: u64::from(DESTINATIONS * PORTS),
        promise: ROUTED,
    };
    results.push(beside_kernel(&network, &routed, options)?);
    Ok(results)
}

/// A frame to a destination, with a time to live.
fn frame(destination: Ipv4Addr, ttl: u8) -> Vec<u8> {
    let udp = UdpFrame {
        source_mac: GENERATOR_MAC,
        destination_mac: ROUTER_MAC,
        source: GENERATOR.into(),
        destination: IpAddr::V4(destination),
        source_port: 10_000,
        destination_port: 9,
    };
    udp.with_ttl(ttl)
}

/// The prefix of a route: of /24, from 20.0.0.0 on, scattered.
fn prefix(number: u32) -> Ipv4Addr {
    // An odd factor, so that no prefix comes twice among 2^19.
    let scattered = number.wrapping_mul(0x9e37_79b1) & 0x7_ffff;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + (scattered << 8))
}

fn destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(prefix(number * (ROUTES / DESTINATIONS))) + 7)
}

fn routes() -> String {
    (0..ROUTES).fold(String::new(), |mut lines, number| {
        let _ = writeln!(lines, "route add {}/24 via {SINK} dev r2", prefix(number));
        lines
    })
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

/// Flows in the driver, at half of what it bears, beside a flood of packets whose time to live is over: how many of the plain ones
/// arrive.
fn beside_flood(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
) -> Result<Measurement, BenchError> {
    let router = Router::start(&options.binary, network, Some(WORKER))?;
    let mut plain = Load::of(network, GENERATOR_PROCESSOR, traffic.frames.clone(), traffic.flows)?;
    go_down(&router, &plain, traffic)?;
    plain.set_rate(UNLIMITED);
    let alone = count(network)?;
    let half = (alone * 1e6 / 2.0) as u64;
    let exceptional = vec![frame(SINK, 1), frame(Ipv4Addr::new(10, 1, 0, 254), 64)];
    let mut flood = Load::of(network, WORKER, exceptional, Flows::default())?;
    plain.set_rate(half);
    let calm = count(network)?;
    flood.set_rate(half);
    let flooded = count(network)?;
    plain.set_rate(0);
    flood.set_rate(0);
    plain.check()?;
    flood.check()?;
    router.stop()?;
    let case = format!("in the driver, {}, beside a flood of exceptional packets", traffic.case);
    (options.progress)(&format!("{case}: {flooded:.3} Mpps, without the flood {calm:.3}"));
    Ok(Measurement::of(case, flooded, "Mpps").beside("without the flood", calm))
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
    let wanted = traffic.count * 95 / 100;
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_routes_have_one_prefix_and_each_destination_has_its_own() {
        let prefixes: HashSet<Ipv4Addr> = (0..ROUTES).map(prefix).collect();
        assert_eq!(prefixes.len(), ROUTES as usize);
        let destinations: HashSet<Ipv4Addr> = (0..DESTINATIONS).map(destination).collect();
        assert_eq!(destinations.len(), DESTINATIONS as usize);
        let network = |address: &Ipv4Addr| Ipv4Addr::from(u32::from(*address) & !0xff);
        assert!(destinations.iter().all(|address| prefixes.contains(&network(address))));
    }

    #[test]
    fn a_time_to_live_is_written_with_its_checksum() {
        let (plain, ended) = (frame(SINK, 64), frame(SINK, 1));
        assert_eq!((plain[22], ended[22]), (64, 1));
        for frame in [plain, ended] {
            let sum = millrace_wire::checksum::Sum::new().bytes(&frame[14..34]).checksum();
            assert_eq!(sum, 0);
        }
    }
}
