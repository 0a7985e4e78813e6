//! `memory`: the pipeline without input and output, in this process.
//!
//! A generator gives batches of 256 copies of prepared frames; the router has 1,000 routes over one next hop. What the
//! generator itself costs is measured beside it, and subtracted.

pub(crate) mod case;
pub(crate) mod instructions;
pub(crate) mod setup;

use std::time::Instant;

use self::case::Case;
use self::instructions::What;
use self::setup::{Pipeline, Setup, Source};
use crate::interrupt::check;
use crate::process::is_installed;
use crate::statistics::{extremes, median};
use crate::{BenchError, Measurement, Options};

/// Repetitions, of which the median counts.
const REPETITIONS: usize = 7;
/// Flows that are known before instructions are counted: under callgrind all takes 50 times as long.
const MOST_KNOWN: u32 = 100_000;
/// Packets of a repetition: enough for a tenth of a second.
const PACKETS: u64 = 1_000_000;

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    let valgrind = is_installed("valgrind");
    if !valgrind {
        (options.progress)("valgrind is not installed: instructions are not counted");
    }
    for case in Case::all() {
        let times = nanoseconds(case)?;
        let ((least, most), middle) = (extremes(&times), median(&times));
        (options.progress)(&format!("{case}: {middle:.1} ns per packet, {least:.1} to {most:.1}"));
        results.push(Measurement::of(case.to_string(), middle, "ns/packet"));
        if !valgrind {
            continue;
        }
        match instructions::count(&options.binary, case, Setup::default()) {
            Ok(Some(count)) => results.push(Measurement::of(case.to_string(), count, "instructions/packet")),
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
                pipeline.callgrind_measured(packets);
            })
        }
    })
}

/// Nanoseconds per packet in each repetition, less what the source took in the same one.
fn nanoseconds(case: Case) -> Result<Vec<f64>, BenchError> {
    let (mut source, mut pipeline) = (Source::new(case)?, Pipeline::new(case)?);
    // Once for the caches and the processor's clock.
    pipeline.callgrind_measured(PACKETS / 4);
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
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
