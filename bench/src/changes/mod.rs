//! `changes`: cost of forwarding while filters and routes change, and during a flood of new flows. Measures
//! the pipeline without devices.

mod routes;

use std::time::{Duration, Instant};

use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::per_packet;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, Source};
use crate::statistics::{extremes, median, median_ratio};
use crate::{BenchError, Bound, Measurement, Options};

/// Number of live flows. Each sends one packet per pass, in rotation.
const LIVE: u32 = 100_000;
/// Number of filters at each of the three gates.
const FILTERS: usize = 10_000;
/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 9;
/// Number of packets in a pass, in which every live flow sends one packet.
const PASS: u64 = LIVE as u64;

/// Promised maximum: time per packet while the router checks all flows after a filter change, as a multiple
/// of the time per packet before the change.
const FILTER_LIMIT: f64 = 1.5;
/// Promised maximum: additional nanoseconds per flow to classify a flow again, as a new flow.
const AGAIN_LIMIT: f64 = 400.0;
/// Number of packets per batch. It is also the maximum number of flows that the router checks or classifies
/// again per batch.
const BATCH: f64 = 256.0;
/// Number of live flows that the new filter matches, in cases with matches.
const MATCHED: u32 = 4095;

/// Promised maximum: time per packet during 100,000 route changes per second, as a multiple of the time per
/// packet without changes.
const ROUTES_LIMIT: f64 = 1.5;

/// Maximum number of flow records in the flood's router.
const REMEMBERED: u32 = 1 << 16;
/// Number of flows that exist before the flood. Together they send every fourth packet.
const ESTABLISHED: u32 = 1000;
/// Number of flows in the flood. There are fewer flow records than flows, so each flow has lost its record
/// when its next packet arrives.
const FLOOD: u32 = 300_000;
/// Promised minimum: new flows per second at which established flows lose no packet.
const FLOOD_LIMIT: f64 = 500_000.0;

/// Runs all cases of the benchmark `changes`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for family in Family::BOTH {
        for matched in [0, MATCHED] {
            results.extend(filter(family, matched, options)?);
        }
        results.extend(routes::run(Case { family, flows: LIVE }, options)?);
        results.extend(flood(family, options)?);
    }
    Ok(results)
}

/// Returns a filter that is new to the router and matches a number of live flows: none or [`MATCHED`]. The
/// sources of flows start at 30.0.0.1 or fd1e::1.
fn new_filter(family: Family, matched: u32, number: usize) -> String {
    let source = if family == Family::V4 { "30.0.0.0/20" } else { "fd1e::/116" };
    match matched {
        0 => format!("proto tcp dport {}", 20_000 + number),
        _ => format!("src {source} proto udp sport 1-{}", 60_000 + number),
    }
}

/// Measures the pass before a filter change and the pass after it. Fails if the router classifies again a
/// flow that the new filter does not match.
fn filter(family: Family, flows: u32, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let case = Case { family, flows: LIVE };
    let setup = Setup { gates: GatesSetup::Filters(FILTERS), ..Setup::default() };
    let (mut source, mut pipeline) = (Source::with(case, setup)?, Pipeline::with(case, setup)?);
    pipeline.forward(4 * PASS);
    let (mut before, mut after, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    let (mut again, mut whole) = (Vec::new(), Vec::new());
    for repetition in 0..REPETITIONS {
        check()?;
        let bare = per_packet(|| source.make(PASS));
        let steady = per_packet(|| pipeline.forward(PASS)) - bare;
        pipeline.add_filter(&new_filter(family, flows, repetition))?;
        let classified = pipeline.snapshot().flows.packets.reclassified;
        let (changed, longest) = timed(&mut pipeline, PASS);
        again.push((pipeline.snapshot().flows.packets.reclassified - classified) as f64);
        whole.push(steady + bare);
        before.push(steady);
        after.push(changed - bare);
        worst.push(longest.as_secs_f64() * 1e6);
    }
    pipeline.check(case)?;
    let counts = pipeline.snapshot().flows.packets;
    let (steady, changed) = (median(&before), median(&after));
    let what = format!(
        "{case}, 3 x {FILTERS} filters, first packet of each flow after a filter change, {flows} matching flows"
    );
    (options.progress)(&format!(
        "{what}: {changed:.1} ns per packet, {steady:.1} without changes; {} flows rechecked, {} reclassified",
        counts.checked, counts.reclassified
    ));
    // The router checks all flows, and classifies each matched flow again once.
    let limit = FILTER_LIMIT + AGAIN_LIMIT / steady * f64::from(flows) / f64::from(LIVE);
    let longest = BATCH * (FILTER_LIMIT * median(&whole) + AGAIN_LIMIT) / 1e3;
    Ok(vec![
        Measurement::of(&what, changed, "ns/packet")
            .beside("before the change", steady)
            .with_ratio(median_ratio(&after, &before))
            .promising_ratio(Bound::AtMost, limit),
        Measurement::of(format!("{what}: reclassified flows"), extremes(&again).1, "flows")
            .promising(Bound::AtMost, f64::from(flows)),
        Measurement::of(format!("{what}: longest batch"), median(&worst), "us")
            .promising(Bound::AtMost, longest),
    ])
}

/// Returns the nanoseconds per packet, and the duration of the longest batch.
fn timed(pipeline: &mut Pipeline, packets: u64) -> (f64, Duration) {
    let mut longest = Duration::ZERO;
    let each = per_packet(|| {
        let mut done = 0;
        while done < packets {
            let start = Instant::now();
            done += pipeline.forward(1);
            longest = longest.max(start.elapsed());
        }
        done
    });
    (each, longest)
}

/// Returns the number of packets that were classified as the first of a flow, and the number of dropped
/// packets.
fn new_flows(pipeline: &mut Pipeline) -> (u64, u64) {
    let snapshot = pipeline.snapshot();
    (snapshot.flows.packets.misses, snapshot.totals.dropped)
}

/// Measures a flood of new flows beside established flows. There are more new flows than the router has flow
/// records.
fn flood(family: Family, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let case = Case { family, flows: FLOOD };
    let setup = Setup {
        gates: GatesSetup::Filters(FILTERS),
        flows_max: REMEMBERED,
        established: ESTABLISHED,
        new_flows: millrace_pipeline::Options::default().new_flows,
        ..Setup::default()
    };
    let (mut source, mut pipeline) = (Source::with(case, setup)?, Pipeline::with(case, setup)?);
    pipeline.forward(2 * u64::from(FLOOD));
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    // The established flows are new, too, until this point.
    let (before, lost_before) = (pipeline.snapshot(), pipeline.established_lost(family)?);
    for _ in 0..REPETITIONS {
        check()?;
        let bare = per_packet(|| source.make(PASS));
        let (misses, dropped) = new_flows(&mut pipeline);
        let mut packets = 0;
        let each = per_packet(|| {
            packets = pipeline.forward(PASS);
            packets
        }) - bare;
        let now = new_flows(&mut pipeline);
        let taken = (now.0 - misses) - (now.1 - dropped);
        rates.push(taken as f64 / (each * packets as f64 * 1e-9));
        times.push(each);
    }
    let after = pipeline.snapshot();
    let lost = pipeline.established_lost(family)?.saturating_sub(lost_before);
    let (least, most) = extremes(&times);
    (options.progress)(&format!(
        "{family}, flood: {:.1} ns per packet, {least:.1} to {most:.1}; {} records of {REMEMBERED}, {lost} established packets lost",
        median(&times),
        after.flows.records
    ));
    let what = format!("{family}, flood of new flows, 3 x {FILTERS} filters");
    Ok(vec![
        Measurement::of(format!("{what}: new flows per second"), median(&rates), "flows/s")
            .promising(Bound::AtLeast, FLOOD_LIMIT),
        Measurement::of(format!("{what}: lost packets of established flows"), lost as f64, "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::of(format!("{what}: flow records"), f64::from(after.flows.records), "records")
            .promising(Bound::AtMost, f64::from(REMEMBERED)),
        Measurement::of(
            format!("{what}: growth of packet memory"),
            f64::from(after.memory.0) - f64::from(before.memory.0),
            "frames",
        ),
    ])
}
