//! `memory`: the pipeline without input and output, in this process.
//!
//! A generator gives batches of 256 copies of prepared frames, those of all flows in turn; the router has 1,000 routes over
//! one next hop unless the case says another number. What the generator itself costs is measured beside it, and subtracted.

pub(crate) mod case;
pub(crate) mod instructions;
pub(crate) mod setup;

use std::time::Instant;

use self::case::{Case, Family};
use self::instructions::What;
use self::setup::{GatesSetup, Pipeline, QueueSetup, Setup, Source};
use crate::interrupt::check;
use crate::process::is_installed;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

/// Repetitions, of which the median counts.
const REPETITIONS: usize = 7;
/// Flows that are known before instructions are counted: under callgrind all takes 50 times as long.
const MOST_KNOWN: u32 = 100_000;
/// Cases of so many flows have their instructions counted: they don't depend on how many flows there are.
const MOST_COUNTED: u32 = 1000;
/// Packets of a repetition: enough for a tenth of a second.
const PACKETS: u64 = 1_000_000;

/// What is measured: packets, what they meet, and what is promised of a packet, in nanoseconds.
struct Named {
    name: &'static str,
    case: Case,
    setup: Setup,
    limit: f64,
}

/// All cases.
fn cases() -> Vec<Named> {
    let bare = Setup { flows_max: 0, routes: 1, ..Setup::default() };
    let gates = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let v4 =
        |name, flows, setup, limit| Named { name, case: Case { family: Family::V4, flows }, setup, limit };
    let v6 =
        |name, flows, setup, limit| Named { name, case: Case { family: Family::V6, flows }, setup, limit };
    let (many4, many6) = (500_000, 200_000);
    vec![
        v4("IPv4, 1 flow", 1, Setup::default(), 14.0),
        v4("IPv4, 1,000 flows", 1000, Setup::default(), 14.0),
        v4(
            "IPv4, 1,000 flows, 1 packet in 1,000 traced",
            1000,
            Setup { traced: 1000, ..Setup::default() },
            14.5,
        ),
        v4("IPv4, 1,000 flows, 3 empty gates", 1000, gates, 14.0),
        v4("IPv4, 128 K flows, 3 empty gates", 128 << 10, gates, 17.0),
        v4(
            "IPv4, 128 K flows, 3 empty gates, a queue for each flow",
            128 << 10,
            Setup { queue: QueueSetup::PerFlow, ..gates },
            29.0,
        ),
        v4("IPv4, 1 M flows, 500 K routes, 3 empty gates", 1_000_000, Setup { routes: many4, ..gates }, 30.0),
        v6("IPv6, 1,000 flows, 3 empty gates", 1000, gates, 22.0),
        v6(
            "IPv6, 128 K flows, 200 K routes, 3 empty gates",
            128 << 10,
            Setup { routes: many6, ..gates },
            22.0,
        ),
        v4("IPv4, no flow table, 1 route", 1000, bare, 9.0),
        v4(
            "IPv4, no flow table, 500 K routes, 1 M destinations",
            1_000_000,
            Setup { routes: many4, ..bare },
            20.0,
        ),
    ]
}

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    let valgrind = is_installed("valgrind");
    if !valgrind {
        (options.progress)("valgrind is not installed: instructions are not counted");
    }
    for Named { name, case, setup, limit } in cases() {
        let times = nanoseconds(case, setup)?;
        let ((least, most), middle) = (extremes(&times), median(&times));
        (options.progress)(&format!("{name}: {middle:.1} ns per packet, {least:.1} to {most:.1}"));
        results.push(Measurement::of(name, middle, "ns/packet").promising(Bound::AtMost, limit));
        if !valgrind || case.flows > MOST_COUNTED {
            continue;
        }
        match instructions::count(&options.binary, case, setup) {
            Ok(Some(count)) => results.push(Measurement::of(name, count, "instructions/packet")),
            Ok(None) => (options.progress)("callgrind found no function names: instructions are not counted"),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => (options.progress)(&format!("instructions are not counted: {error}")),
        }
    }
    Ok(results)
}

/// Runs nothing but a number of packets, for a tool that counts what that costs; `None` when `name` isn't such a run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (what, case, setup, packets) = instructions::parse(name)?;
    Some(match what {
        What::Source => Source::with(case, setup).map(|mut source| _ = source.callgrind_measured(packets)),
        What::Pipeline => {
            Pipeline::with(case, setup).map(|mut pipeline| {
                // So that flows that are to be known are.
                pipeline.forward(2 * u64::from(case.flows.min(MOST_KNOWN)));
                pipeline.trace();
                pipeline.callgrind_measured(packets);
            })
        }
    })
}

/// Nanoseconds per packet in each repetition, less what the source took in the same one.
fn nanoseconds(case: Case, setup: Setup) -> Result<Vec<f64>, BenchError> {
    let (mut source, mut pipeline) = (Source::with(case, setup)?, Pipeline::with(case, setup)?);
    // Two packets of each flow, so that all are known, and for the caches and the processor's clock.
    pipeline.callgrind_measured((2 * u64::from(case.flows)).max(PACKETS / 4));
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
        pipeline.trace();
        let bare = per_packet(|| source.callgrind_measured(PACKETS));
        times.push(per_packet(|| pipeline.callgrind_measured(PACKETS)) - bare);
    }
    pipeline.check(case)?;
    Ok(times)
}

/// Nanoseconds per packet of work that says how many packets it did.
pub(crate) fn per_packet(work: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    let packets = work();
    start.elapsed().as_secs_f64() * 1e9 / packets as f64
}
