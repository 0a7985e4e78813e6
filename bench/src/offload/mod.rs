//! `offload`: rate of offloaded flows on veth, compared with the kernel's forwarding. There are cases with
//! one, few and many flows, with many routes, with filters, with a flood of exceptional packets, and with
//! flows bound to an instance.
//!
//! An XDP test run with live frames generates the frames on one processor. On veth, this processor also runs
//! the XDP programs. The worker has the other processor. The kernel also forwards on the generator's
//! processor, as is usual on veth. An XDP program on the far device counts and drops the arriving packets.
//!
//! Generating and dropping frames costs the same for every router, and is part of the compared rates. A
//! measurement without a router determines this cost. So the results can also show the cost of forwarding
//! alone.

mod beside;
mod traffic;

use millrace_offload::FrameSink;

use self::beside::{Others, beside_others};
use self::traffic::{Traffic, routes};
use crate::statistics::{extremes, median};
use crate::testbed::arrivals::{FRAMES_OF_A_CALL, GENERATOR_PROCESSOR, WORKER, count, go_down, rate_at};
use crate::testbed::load::{Load, UNLIMITED};
use crate::testbed::network::Network;
use crate::testbed::process::SessionFirst;
use crate::testbed::router::Router;
use crate::testbed::sink::{no_sink, sink};
use crate::{BenchError, Bound, Measurement, Options, Subject};

const RUNS: usize = 3;
/// Number of filters in the router. No packet matches any of them. The kernel has the same number of nftables
/// rules.
const FILTERS: usize = 100;

/// Runs all cases, or the requested cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let wanted = options.case.clone().unwrap_or_default();
    let is_wanted = |case: &str| case.contains(&wanted);
    let network = Network::new()?;
    let _first = SessionFirst::begin();
    network.connect6()?;
    let _sink = sink(&network.s, "s0")?;
    // Redirected frames reach the kernel's own forwarding on veth only with GRO.
    network.r.shell("ethtool -K r1 gro on")?;
    let plain = Traffic::plain();
    let few = &plain[1];
    let mut results = Vec::new();
    for traffic in plain.iter().filter(|traffic| is_wanted(traffic.case)) {
        results.extend(beside_kernel(&network, traffic, options)?);
    }
    if is_wanted("filters") {
        results.push(beside_rules(&network, few, options)?);
    }
    for (case, others) in [("flood", Others::exceptional()), ("bound", Others::bound())] {
        if is_wanted(case) {
            results.push(beside_others(&network, few, others, options)?);
        }
    }
    let routed = Traffic::routed();
    if is_wanted(routed.case) {
        network.r.ip(&routes())?;
        results.extend(beside_kernel(&network, &routed, options)?);
    }
    match results.is_empty() {
        true => Err(BenchError::measurement("offload", format!("no case matches {wanted:?}"))),
        false => Ok(results),
    }
}

/// Measures the rates of the offload and of the kernel. For each, also computes the time per packet, minus
/// the time that sender and receiver alone take.
fn beside_kernel(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let kernel = || rate(network, traffic);
    let (measured, ours, theirs) =
        alternately(network, traffic, options, (traffic.case, "kernel"), |_| Ok(()), kernel)?;
    let (alone, least) = (ends_alone(network, traffic)?, least(network, traffic)?);
    let case = format!("{}: minimal forwarding program", traffic.case);
    let floor = Measurement::of(case, least, "Mpps").about(Subject::Peer);
    let floor = floor.beside("generator and receiver only", alone).peer_about(Subject::Generator);
    let takes = |rate: f64| 1e3 / rate - 1e3 / alone;
    let case = format!("{}: forwarding time per packet", traffic.case);
    let net = Measurement::of(case, takes(ours), "ns").beside("kernel", takes(theirs));
    (options.progress)(&format!(
        "{}: sender and receiver alone {alone:.3} Mpps, with the least program {least:.3}; forwarding takes {:.0} ns, kernel {:.0}",
        traffic.case,
        takes(ours),
        takes(theirs)
    ));
    Ok(vec![measured.promising_ratio(Bound::AtLeast, traffic.promise), net, floor])
}

/// Returns the rate at which packets are generated and dropped, without a router in between.
fn ends_alone(network: &Network, traffic: &Traffic) -> Result<f64, BenchError> {
    let _sink = sink(&network.r, "r1")?;
    rate_at(network, (&traffic.frames, traffic.flows), (&network.r, "r1"))
}

/// Returns the arriving rate through an XDP program that forwards all frames unchanged.
fn least(network: &Network, traffic: &Traffic) -> Result<f64, BenchError> {
    let (from, to) = (network.r.index("r1")?, network.r.index("r2")?);
    let _passing = network.r.within(|| FrameSink::passing(from, to))?.map_err(no_sink)?;
    rate(network, traffic)
}

/// Measures the offload of a router with filters that match no packet, compared with the kernel with the same
/// number of nftables rules.
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
        let kernel = rate(network, traffic);
        network.r.shell("nft delete table ip bench")?;
        kernel
    };
    let case = format!("{}, {FILTERS} filters", traffic.case);
    Ok(alternately(network, traffic, options, (&case, "kernel with equally many rules"), add, kernel)?.0)
}

/// Measures the offload of a prepared router and the peer alternately. Returns the measurement, and both
/// medians.
fn alternately(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
    (case, peer): (&str, &'static str),
    prepare: impl Fn(&Router) -> Result<(), BenchError>,
    mut peers: impl FnMut() -> Result<f64, BenchError>,
) -> Result<(Measurement, f64, f64), BenchError> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(offload_run(network, traffic, options, &prepare)?);
        theirs.push(peers()?);
    }
    let measured =
        Measurement::median_of(format!("offloaded, {case}"), &ours, "Mpps").beside_runs(peer, &theirs);
    let ((least, most), ours, theirs) = (extremes(&ours), median(&ours), median(&theirs));
    (options.progress)(&format!(
        "{case}: XDP program {ours:.3} Mpps ({least:.3} to {most:.3}), {peer} {theirs:.3} Mpps"
    ));
    Ok((measured, ours, theirs))
}

/// Returns the arriving rate through a prepared router that has offloaded the flows.
fn offload_run(
    network: &Network,
    traffic: &Traffic,
    options: &Options<'_>,
    prepare: impl Fn(&Router) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let router = Router::start(&options.binary, network, Some(WORKER))?;
    prepare(&router)?;
    let mut load = Load::of(network, GENERATOR_PROCESSOR, traffic.frames.clone(), traffic.flows)?;
    // Wait only for nearly all flows: with many flows, the last ones take long.
    go_down(&router, &load, (traffic.count * 95).div_ceil(100), traffic.count)?;
    load.set_run(FRAMES_OF_A_CALL);
    load.set_rate(UNLIMITED);
    let result = count(&network.s, "s0");
    load.set_rate(0);
    load.check()?;
    router.stop()?;
    result
}

/// Returns the arriving rate at the far end, for any router in between.
fn rate(network: &Network, traffic: &Traffic) -> Result<f64, BenchError> {
    rate_at(network, (&traffic.frames, traffic.flows), (&network.s, "s0"))
}
