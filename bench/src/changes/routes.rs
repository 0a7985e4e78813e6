//! Forwarding while another thread changes routes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, RouteWriter, Setup};
use crate::statistics::{median, median_ratio};
use crate::testbed::process::{SessionFirst, dedicate, on_processor};
use crate::{BenchError, Bound, Measurement, Options};

use super::{FILTERS, PASS, ROUTES_LIMIT};

/// Promised minimum: route changes per second.
const PROMISED: f64 = 100_000.0;
/// Target rate of changes, slightly above the promise to compensate for pauses.
const PACE: f64 = 1.02 * PROMISED;
/// Number of repetitions with changes. A repetition without changes follows each.
const REPETITIONS: usize = 5;
/// Duration of each repetition.
const SPAN: Duration = Duration::from_millis(500);
/// Number of route changes per update of the table, as in the daemon.
const AT_ONCE: usize = 256;

/// Measures forwarding of many flows during route changes. First, the changes concern networks without flows,
/// then the flows' own networks.
pub(super) fn run(case: Case, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        (options.progress)("route changes beside forwarding are left out: they need two processors");
        return Ok(Vec::new());
    }
    let _first = SessionFirst::begin();
    let measured = on_processor(processors - 1, || measure(case))??;
    let results = measured.into_iter().flat_map(|(measurements, line)| {
        (options.progress)(&line);
        measurements
    });
    Ok(results.collect())
}

fn measure(case: Case) -> Result<Vec<(Vec<Measurement>, String)>, BenchError> {
    let setup = Setup { gates: GatesSetup::Filters(FILTERS), ..Setup::default() };
    let mut pipeline = Pipeline::with(case, setup)?;
    pipeline.forward(4 * PASS);
    let places = [("networks without flows", 40), ("networks of the flows", 20)];
    let measured = places.map(|(place, net)| beside_changes(&mut pipeline, case, place, net));
    pipeline.check(case)?;
    measured.into_iter().collect()
}

/// Measures forwarding during route changes in the network `net`, alternately with forwarding without
/// changes.
fn beside_changes(
    pipeline: &mut Pipeline,
    case: Case,
    place: &str,
    net: u8,
) -> Result<(Vec<Measurement>, String), BenchError> {
    let prefixes = prefixes(case.family, net)?;
    let (mut quiet, mut busy, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        check()?;
        let (alone, ()) = pipeline.forward_beside(SPAN, |_| ())?;
        let (beside, rate) = pipeline.forward_beside(SPAN, |writer| {
            let _ = dedicate(nix::unistd::Pid::from_raw(0), 0);
            change(writer, case.family, &prefixes)
        })?;
        quiet.push(alone);
        busy.push(beside);
        rates.push(rate?);
    }
    let counts = pipeline.snapshot().flows.packets;
    let ratio = median_ratio(&busy, &quiet);
    let (busy, quiet, rate) = (median(&busy), median(&quiet), median(&rates));
    let what = format!("{case}, 100,000 route changes per second in {place}");
    let line = format!(
        "{what} ({rate:.0}): {busy:.1} ns per packet, {quiet:.1} without; so far {} flows rechecked, {} rerouted, {} reclassified",
        counts.checked, counts.rerouted, counts.reclassified
    );
    let measurements = vec![
        Measurement::of(&what, busy, "ns/packet, generator included")
            .beside("no changes", quiet)
            .with_ratio(ratio)
            .promising_ratio(Bound::AtMost, ROUTES_LIMIT),
        Measurement::of(format!("{what}: forwarded"), 1e3 / busy, "Mpps, generator included")
            .beside("no changes", 1e3 / quiet)
            .with_ratio(1.0 / ratio)
            .promising_ratio(Bound::AtLeast, 1.0 / ROUTES_LIMIT),
        Measurement::of(format!("{what}: sustained"), rate, "changes/s").promising(Bound::AtLeast, PROMISED),
    ];
    Ok((measurements, line))
}

/// Returns prefixes that are longer than the prefixes of the flows' routes.
fn prefixes(family: Family, net: u8) -> Result<Vec<IpNet>, BenchError> {
    let of = |index: u32| match family {
        Family::V4 => IpNet::new(IpAddr::from([net, (index / 256 % 4) as u8, (index % 256) as u8, 128]), 25),
        Family::V6 => {
            let net = 0xfd00 | u16::from(net);
            IpNet::new(IpAddr::from([net, 0, 0, (index % 1024) as u16, 0x8000, 0, 0, 0]), 65)
        }
    };
    let prefixes = (0..1024).map(of).collect::<Result<_, _>>();
    prefixes.map_err(|error| BenchError::measurement("routes", error.to_string()))
}

/// Adds and removes routes at the target rate until the measurement ends. Returns the achieved rate.
fn change(writer: &mut RouteWriter<'_>, family: Family, prefixes: &[IpNet]) -> Result<f64, BenchError> {
    let (start, mut changes) = (Instant::now(), 0u64);
    let pieces = prefixes.chunks(AT_ONCE);
    'over: for add in [true, false].into_iter().cycle() {
        for piece in pieces.clone() {
            // At the end of the measurement, stop adding but not removing, so that no added route stays.
            if add && writer.is_stopped() {
                break 'over;
            }
            while !writer.is_stopped() && changes as f64 > PACE * start.elapsed().as_secs_f64() {
                std::thread::sleep(Duration::from_micros(100));
            }
            writer.change(family, piece, add)?;
            changes += piece.len() as u64;
        }
    }
    Ok(changes as f64 / start.elapsed().as_secs_f64())
}
