//! `changes`: cost of forwarding while filters and routes change, and under a flood of new flows, in the
//! pipeline alone.

mod routes;

use std::time::{Duration, Instant};

use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::per_packet;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, Source};
use crate::statistics::{extremes, median, median_ratio};
use crate::{BenchError, Bound, Measurement, Options};

/// Number of live flows, each of which sends one packet per pass, in rotation.
const LIVE: u32 = 100_000;
/// Filters at each of the three gates.
const FILTERS: usize = 10_000;
/// Repetitions; the result is their median.
const REPETITIONS: usize = 9;
/// Packets per pass, in which every live flow sends one packet.
const PASS: u64 = LIVE as u64;

/// Promised maximum: ratio of the time per packet while all flows are checked after a filter change to the
/// time before the change.
const FILTER_LIMIT: f64 = 1.5;
/// Promised maximum: additional nanoseconds to reclassify a flow, as for a new flow.
const AGAIN_LIMIT: f64 = 400.0;
/// Packets per batch, which is also the maximum number of flows checked or reclassified per batch.
const BATCH: f64 = 256.0;
/// Live flows that a filter matches.
const MATCHED: u32 = 4095;

/// Promised maximum: ratio of the time per packet during 100,000 route changes per second to the time without
/// changes.
const ROUTES_LIMIT: f64 = 1.5;

/// Maximum number of flow records of the router in the flood.
const REMEMBERED: u32 = 1 << 16;
/// Number of flows from before the flood; together they send every fourth packet.
const ESTABLISHED: u32 = 1000;
/// Flows of the flood: more than the flow records, so that each flow is new again when it returns.
const FLOOD: u32 = 300_000;
/// Promised minimum: new flows per second without loss for established flows.
const FLOOD_LIMIT: f64 = 500_000.0;

/// Runs all cases.
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

/// Measures the pass after a filter change and the pass before it. Fails if a flow that the filter does not
/// match is reclassified.
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
        "{case}, 3 x {FILTERS} filters, each flow's next packet after a filter changed that {flows} of them match"
    );
    (options.progress)(&format!(
        "{what}: {changed:.1} ns per packet, {steady:.1} without changes; {} flows rechecked, {} reclassified",
        counts.checked, counts.reclassified
    ));
    // The router checks all flows. In addition it reclassifies each matched flow once.
    let limit = FILTER_LIMIT + AGAIN_LIMIT / steady * f64::from(flows) / f64::from(LIVE);
    let longest = BATCH * (FILTER_LIMIT * median(&whole) + AGAIN_LIMIT) / 1e3;
    Ok(vec![
        Measurement::of(&what, changed, "ns/packet")
            .beside("before", steady)
            .with_ratio(median_ratio(&after, &before))
            .promising_ratio(Bound::AtMost, limit),
        Measurement::of(format!("{what}: classified again"), extremes(&again).1, "flows")
            .promising(Bound::AtMost, f64::from(flows)),
        Measurement::of(format!("{what}: the longest batch"), median(&worst), "us")
            .promising(Bound::AtMost, longest),
    ])
}

/// Returns the nanoseconds per packet, and the time of the longest batch.
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

/// Returns the number of packets classified as of new flows, and the number of dropped packets.
fn new_flows(pipeline: &mut Pipeline) -> (u64, u64) {
    let snapshot = pipeline.snapshot();
    (snapshot.flows.packets.misses, snapshot.totals.dropped)
}

/// Measures a flood with more new flows than the router has flow records, beside established flows.
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
    // The first packets of the established flows belong to the flood.
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
        Measurement::of(format!("{what}: taken per second"), median(&rates), "flows/s")
            .promising(Bound::AtLeast, FLOOD_LIMIT),
        Measurement::of(format!("{what}: packets lost by established flows"), lost as f64, "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::of(format!("{what}: flow records"), f64::from(after.flows.records), "records")
            .promising(Bound::AtMost, f64::from(REMEMBERED)),
        Measurement::of(
            format!("{what}: packet memory in use"),
            f64::from(after.memory.0) - f64::from(before.memory.0),
            "frames more than before",
        ),
    ])
}
