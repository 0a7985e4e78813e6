//! `gates`: cost of gates and filters, with and without the flow table. Measures the pipeline without
//! devices.
//!
//! Routers with different gates forward the same packets alternately, so a disturbance affects all of them
//! alike.

use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, Source};
use crate::memory::{instructions, per_packet};
use crate::statistics::median;
use crate::testbed::process::is_installed;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of repetitions; the result is their median. Many short repetitions suit a shared machine, whose
/// speed varies.
const REPETITIONS: usize = 151;
/// Number of packets per repetition: 100 batches.
const PACKETS: u64 = 25_600;
/// Number of packets before the first repetition.
const WARM_UP: u64 = 400_000;
/// Number of filters at each of the three gates.
const FILTERS: usize = 10_000;
/// Mean flow lengths in packets.
const LENGTHS: [u32; 5] = [1, 2, 4, 10, 100];
/// Number of flow records in the cases that vary the flow length. There are fewer records than flows, so each
/// flow has lost its record when its next packet arrives.
const REMEMBERED: u32 = 512;

/// Promised maximum: time per packet if three gates bind every flow to `null`, as a multiple of the time per
/// packet without gates.
const BOUND_LIMIT: f64 = 1.10;
const EMPTY_LIMIT: f64 = 1.01;
/// Promised maximum: additional nanoseconds for the first packet of a flow, caused by three gates with 10,000
/// filters each.
const NEW_FLOW_LIMIT: f64 = 400.0;

const EMPTY: &str = "3 empty gates";
const NULL: &str = "3 gates with null";

/// Runs all cases of the benchmark `gates`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for family in Family::BOTH {
        for flows in [1000, 100_000] {
            results.extend(gates(Case { family, flows }, options)?);
        }
        results.extend(lengths(family, options)?);
    }
    Ok(results)
}

/// Measures three gates without bindings, and three gates with `null`, compared with a router without gates.
fn gates(case: Case, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let setups = [GatesSetup::None, GatesSetup::Empty, GatesSetup::Null];
    let setups = setups.map(|gates| Setup { gates, ..Setup::default() });
    let times = alternating(case, &setups)?;
    let [none, empty, null] = [0, 1, 2].map(|index| median(&times[index]));
    (options.progress)(&format!(
        "{case}: {none:.1} ns without gates, {empty:.1} with empty ones, {null:.1} with null"
    ));
    let measurement = |what: &str, ours: &[f64], limit: f64| {
        Measurement::median_of(format!("{case}, {what}"), ours, "ns/packet")
            .beside_pairs("no gates", ours, &times[0])
            .promising_ratio(Bound::AtMost, limit)
    };
    let mut results =
        vec![measurement(EMPTY, &times[1], EMPTY_LIMIT), measurement(NULL, &times[2], BOUND_LIMIT)];
    results.extend(instructions(case, &setups, options)?);
    Ok(results)
}

/// Measures the gate setups in instructions, which are free of noise.
fn instructions(
    case: Case,
    setups: &[Setup; 3],
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let mut counts = Vec::new();
    if is_installed("valgrind") {
        for setup in setups {
            counts.push(instructions::count(&options.binary, case, *setup, instructions::PACKETS)?);
        }
    }
    let [Some(none), Some(empty), Some(null)] = counts[..] else {
        (options.progress)(
            "valgrind is not installed or found no function names: instructions are not counted",
        );
        return Ok(Vec::new());
    };
    let measurement = |what: &str, ours: f64, limit: f64| {
        Measurement::of(format!("{case}, {what}"), ours, "instructions/packet")
            .beside("no gates", none)
            .promising_ratio(Bound::AtMost, limit)
    };
    Ok(vec![measurement(EMPTY, empty, EMPTY_LIMIT), measurement(NULL, null, BOUND_LIMIT)])
}

/// Measures flows of several lengths through three gates with many filters, in a router with a flow table and
/// in a router without one.
fn lengths(family: Family, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let gates = GatesSetup::Filters(FILTERS);
    let mut results = Vec::new();
    let (mut per_flow, mut pays_at) = (Vec::new(), None);
    for flow_packets in LENGTHS {
        let case = Case { family, flows: 20_000 / flow_packets.max(10) * 10 };
        let setup = |flows_max| Setup { gates, flow_packets, flows_max, ..Setup::default() };
        let times = alternating(case, &[setup(REMEMBERED), setup(0)])?;
        let (with, without) = (median(&times[0]), median(&times[1]));
        (options.progress)(&format!(
            "{family}, 3 x {FILTERS} filters, {flow_packets} packets per flow: {with:.1} ns with the flow table, {without:.1} without"
        ));
        let what = format!("{family}, 3 x {FILTERS} filters, {flow_packets} packet(s) per flow");
        let measured = Measurement::median_of(what, &times[0], "ns/packet");
        results.push(measured.beside_runs("no flow table", &times[1]));
        per_flow.push((f64::from(flow_packets), with * f64::from(flow_packets)));
        if with <= without && pays_at.is_none() {
            pays_at = Some(flow_packets);
        }
    }
    // A flow's time has a part that does not grow with its number of packets: the cost of its first packet.
    let (first, last) = (per_flow[0], per_flow[per_flow.len() - 1]);
    let each = (last.1 - first.1) / (last.0 - first.0);
    results.push(
        Measurement::of(format!("{family}, first packet of a flow, additional time"), first.1 - each, "ns")
            .promising(Bound::AtMost, NEW_FLOW_LIMIT),
    );
    if let Some(length) = pays_at {
        let what = format!("{family}, packets per flow above which the flow table saves time");
        results.push(Measurement::of(what, f64::from(length), "packets"));
    }
    Ok(results)
}

/// Returns the nanoseconds per packet of each setup, for each repetition. The source's time in the same
/// repetition is subtracted. The setups alternate.
fn alternating(case: Case, setups: &[Setup]) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut runs = Vec::new();
    for setup in setups {
        let (source, mut pipeline) = (Source::with(case, *setup)?, Pipeline::with(case, *setup)?);
        // Fill the caches and the flow table.
        pipeline.forward(WARM_UP);
        runs.push((source, pipeline, Vec::new()));
    }
    for _ in 0..REPETITIONS {
        for (source, pipeline, times) in &mut runs {
            check()?;
            let bare = per_packet(|| source.make(PACKETS));
            times.push(per_packet(|| pipeline.forward(PACKETS)) - bare);
        }
    }
    runs.into_iter().map(|(_, mut pipeline, times)| pipeline.check(case).map(|()| times)).collect()
}
