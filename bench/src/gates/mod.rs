//! `gates`: what gates and filters cost, with and without the flow table, in the pipeline alone.
//!
//! The same packets go through routers that differ in nothing but their gates, in turn, so that what disturbs one
//! disturbs all.

use crate::interrupt::check;
use crate::memory::case::{Case, Family};
use crate::memory::setup::{GatesSetup, Pipeline, Setup, Source};
use crate::memory::{instructions, per_packet};
use crate::process::is_installed;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Repetitions, of which the median counts: many short ones, as a machine that is shared changes its pace all the time.
const REPETITIONS: usize = 151;
/// Packets of a repetition, 100 batches.
const PACKETS: u64 = 25_600;
/// Packets before the first one.
const WARM_UP: u64 = 400_000;
/// Filters at each of the three gates.
const FILTERS: usize = 10_000;
/// Mean lengths of flows, in packets.
const LENGTHS: [u32; 5] = [1, 2, 4, 10, 100];
/// Flows that the router of the length cases remembers: fewer than come, so that each comes anew.
const REMEMBERED: u32 = 512;

/// Promised: what three gates may add at which every flow is bound to `null`, and at which none is.
const BOUND_LIMIT: f64 = 1.10;
const EMPTY_LIMIT: f64 = 1.01;
/// Promised: nanoseconds for the first packet of a flow at three gates with 10,000 filters each, beyond those of the
/// others.
const NEW_FLOW_LIMIT: f64 = 400.0;

const EMPTY: &str = "3 gates that nobody is bound at";
const NULL: &str = "3 gates with null";

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for family in [Family::V4, Family::V6] {
        for flows in [1000, 100_000] {
            results.extend(gates(Case { family, flows }, options)?);
        }
        results.extend(lengths(family, options)?);
    }
    Ok(results)
}

/// Three empty gates, and three with `null`, beside none.
fn gates(case: Case, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let setups = [GatesSetup::None, GatesSetup::Empty, GatesSetup::Null];
    let setups = setups.map(|gates| Setup { gates, ..Setup::default() });
    let times = alternating(case, &setups)?;
    let [none, empty, null] = [0, 1, 2].map(|index| median(&times[index]));
    (options.progress)(&format!(
        "{case}: {none:.1} ns without gates, {empty:.1} with empty ones, {null:.1} with null"
    ));
    let ratio = |index: usize| {
        let ratios: Vec<f64> = times[index].iter().zip(&times[0]).map(|(ours, none)| ours / none).collect();
        median(&ratios)
    };
    let measurement = |what: &str, ours: f64, index: usize, limit: f64| {
        Measurement::of(format!("{case}, {what}"), ours, "ns/packet")
            .within(&times[index])
            .beside("no gates", none)
            .peer_within(&times[0])
            .with_ratio(ratio(index))
            .promising_ratio(Bound::AtMost, limit)
    };
    let mut results =
        vec![measurement(EMPTY, empty, 1, EMPTY_LIMIT), measurement(NULL, null, 2, BOUND_LIMIT)];
    results.extend(instructions(case, &setups, options)?);
    Ok(results)
}

/// The same in instructions, which no noise disturbs.
fn instructions(
    case: Case,
    setups: &[Setup; 3],
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let mut counts = Vec::new();
    if is_installed("valgrind") {
        for setup in setups {
            counts.push(instructions::count(&options.binary, case, *setup)?);
        }
    }
    let [Some(none), Some(empty), Some(null)] = counts[..] else {
        (options.progress)("without valgrind, or names of functions, instructions are not counted");
        return Ok(Vec::new());
    };
    let measurement = |what: &str, ours: f64, limit: f64| {
        Measurement::of(format!("{case}, {what}"), ours, "instructions/packet")
            .beside("no gates", none)
            .promising_ratio(Bound::AtMost, limit)
    };
    Ok(vec![measurement(EMPTY, empty, EMPTY_LIMIT), measurement(NULL, null, BOUND_LIMIT)])
}

/// Flows of some lengths through three gates with many filters, with the flow table and without.
fn lengths(family: Family, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let gates = GatesSetup::Filters(FILTERS);
    let name = if family == Family::V4 { "IPv4" } else { "IPv6" };
    let mut results = Vec::new();
    let (mut per_flow, mut pays_at) = (Vec::new(), None);
    for flow_packets in LENGTHS {
        let case = Case { family, flows: 20_000 / flow_packets.max(10) * 10 };
        let setup = |flows_max| Setup { gates, flow_packets, flows_max, ..Setup::default() };
        let times = alternating(case, &[setup(REMEMBERED), setup(0)])?;
        let (with, without) = (median(&times[0]), median(&times[1]));
        (options.progress)(&format!(
            "{name}, 3 x {FILTERS} filters, {flow_packets} packets a flow: {with:.1} ns with the flow table, {without:.1} without"
        ));
        let what = format!("{name}, 3 x {FILTERS} filters, {flow_packets} packet(s) a flow");
        results.push(
            Measurement::median_of(what, &times[0], "ns/packet")
                .beside("no flow table", without)
                .peer_within(&times[1]),
        );
        per_flow.push((f64::from(flow_packets), with * f64::from(flow_packets)));
        if with <= without && pays_at.is_none() {
            pays_at = Some(flow_packets);
        }
    }
    // Of a flow's time, what does not grow with its packets is the first one's.
    let (first, last) = (per_flow[0], per_flow[per_flow.len() - 1]);
    let each = (last.1 - first.1) / (last.0 - first.0);
    results.push(
        Measurement::of(format!("{name}, a new flow beyond a known one"), first.1 - each, "ns")
            .promising(Bound::AtMost, NEW_FLOW_LIMIT),
    );
    if let Some(length) = pays_at {
        let what = format!("{name}, packets a flow from which the flow table pays, at most");
        results.push(Measurement::of(what, f64::from(length), "packets"));
    }
    Ok(results)
}

/// Nanoseconds per packet in each repetition for each setup, in turn, less what the source took in the same one.
fn alternating(case: Case, setups: &[Setup]) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut runs = Vec::new();
    for setup in setups {
        let (source, mut pipeline) = (Source::with(case, *setup)?, Pipeline::with(case, *setup)?);
        // Once for the caches, and for the flows to be known.
        pipeline.callgrind_measured(WARM_UP);
        runs.push((source, pipeline, Vec::new()));
    }
    for _ in 0..REPETITIONS {
        for (source, pipeline, times) in &mut runs {
            check()?;
            let bare = per_packet(|| source.callgrind_measured(PACKETS));
            times.push(per_packet(|| pipeline.callgrind_measured(PACKETS)) - bare);
        }
    }
    runs.into_iter().map(|(_, mut pipeline, times)| pipeline.check(case).map(|()| times)).collect()
}
