//! `shares`: cycles that a worker delivers to busy principals, compared with a fluid scheduler.
//!
//! Of 1,000 principals, 100 always have packets. A built-in plugin uses a fixed number of cycles for each of
//! these packets. The error of a principal is the difference between its delivered cycles and its part of all
//! delivered cycles under the fluid scheduler. The shortfall of an absolute share is the difference between
//! its part of the whole processor and its delivered cycles.
//!
//! If other work takes the worker's processor, the running principal pays for that time, and has less than
//! its share later. So a measurement begins and ends after a while without such a disturbance.

mod fluid;

use std::sync::Arc;
use std::time::Duration;

use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::{Cycles, PrincipalId};
use millrace_workbench::cycles;

use super::burn::{BURN, Burn};
use super::wire::{Flow, Pace, Wire};
use super::{KINDS, QUIET, drive, failed, frequency, settings, settle};
use crate::family::Family;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, frame};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};
use fluid::{parts, shares};

const PRINCIPALS: u32 = 1000;
/// Number of principals that always have packets.
const BUSY: u32 = 100;
/// Number of principals with absolute shares, in the cases with absolute shares: of 1 % to 10 %.
const RESERVING: u32 = 10;
/// Number of packets of a busy principal in the router.
const WINDOW: u64 = 24;
/// Processor time of a packet.
const PACKET: Duration = Duration::from_micros(8);
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);
/// Number of repetitions for each duration; the result is their median.
const SHORT_ROUNDS: usize = 5;
const LONG_ROUNDS: usize = 3;
/// Promised maximum of an error: a quantum, in microseconds, or this part of the share.
const QUANTUM_LIMIT: f64 = 200.0;
const PART_LIMIT: f64 = 0.01;

/// Error of the principal that comes nearest to its limit, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Worst {
    error: f64,
    limit: f64,
    share: f64,
}

/// Errors of a run, and the part of the processor that principals got, in percent.
struct Run {
    error: Worst,
    /// Greatest shortfall of an absolute share in microseconds, 0 or more.
    shortfall: f64,
    delivered: f64,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let frequency = frequency()?;
    let mut results = Vec::new();
    for (name, kind) in KINDS {
        for (time, rounds) in [(SHORT, SHORT_ROUNDS), (LONG, LONG_ROUNDS)] {
            // Only the default kind runs for long.
            if time == LONG && kind != CpuSchedulerKind::default() {
                continue;
            }
            for reserving in [0, RESERVING] {
                let runs: Vec<Run> = (0..rounds)
                    .map(|_| measure(kind, &principals(reserving), frequency, time))
                    .collect::<Result<_, _>>()?;
                let case = format!("{name}, {} s", time.as_secs());
                results.extend(report(&case, kind, reserving, &runs, options));
            }
        }
    }
    Ok(results)
}

/// Returns the measurements of all runs of a case.
fn report(
    case: &str,
    kind: CpuSchedulerKind,
    reserving: u32,
    runs: &[Run],
    options: &mut Options<'_>,
) -> Vec<Measurement> {
    let of = |figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
    let errors = of(|run| run.error.error);
    let percents = of(|run| 100.0 * run.error.error / run.error.share);
    let what = if reserving == 0 { "weights" } else { "absolute shares" };
    (options.progress)(&format!(
        "{what}, {case}: error {:.0} us, {:.2} %; shortfall {:.0} us; principals got {:.1} % of the processor",
        median(&errors),
        median(&percents),
        median(&of(|run| run.shortfall)),
        median(&of(|run| run.delivered)),
    ));
    if reserving > 0 {
        let name = format!("absolute shares, {case}, greatest shortfall");
        let shortfall = Measurement::median_of(name, &of(|run| run.shortfall), "us");
        return vec![shortfall.promising(Bound::AtMost, QUANTUM_LIMIT)];
    }
    let limit = median(&of(|run| run.error.limit));
    // Servers of `edf` promise budgets, and divide idle time by deadlines.
    let limit = (kind != CpuSchedulerKind::EarliestDeadline).then_some(limit);
    let name = format!("weights, {case}, greatest error");
    vec![
        Measurement::median_of(&name, &errors, "us").promising(Bound::AtMost, limit),
        Measurement::median_of(name, &percents, "% of the share"),
    ]
}

/// Returns the shares of all principals; the busy ones are first. Of these, `reserving` have absolute shares.
fn principals(reserving: u32) -> Vec<CpuShare> {
    let share = |number| match number < reserving {
        true => CpuShare::Absolute((number + 1) * 10_000),
        false => CpuShare::Weight(1 + number % 100),
    };
    (0..PRINCIPALS).map(share).collect()
}

/// Runs a worker for `time`.
fn measure(
    kind: CpuSchedulerKind,
    principals: &[CpuShare],
    frequency: u64,
    time: Duration,
) -> Result<Run, BenchError> {
    let (wire, mut pipeline) = router(kind, principals, frequency)?;
    wire.start();
    settle(&mut pipeline)?;
    let (before, start) = (used(&mut pipeline)?, cycles());
    drive(&mut pipeline, time.saturating_sub(QUIET))?;
    settle(&mut pipeline)?;
    let after = used(&mut pipeline)?;
    let elapsed = start.zip(cycles()).map_or(0.0, |(start, end)| (end - start) as f64);
    let delivered: Vec<f64> =
        after.iter().zip(before).map(|(after, before)| (after - before) as f64).collect();
    let microseconds = 1e6 / frequency as f64;
    Ok(judged(&principals[..BUSY as usize], &delivered, elapsed, microseconds))
}

/// Creates a router whose busy principals always have packets.
fn router(
    kind: CpuSchedulerKind,
    principals: &[CpuShare],
    frequency: u64,
) -> Result<(Wire, Pipeline), BenchError> {
    let flow = |flow| {
        let frame = frame(Family::V4, 31, flow);
        Flow { port: 0, frame, pace: Pace::Window(WINDOW), work: Vec::new() }
    };
    let wire = Wire::new(1, (0..BUSY).map(flow).collect());
    let case = Case { family: Family::V4, flows: 1 };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.schedule_cpu(settings(kind, frequency))?;
    let Cycles(cycles) = Cycles::in_time(PACKET, frequency);
    pipeline.create_instance(Arc::new(Burn { name: BURN, cycles }), BURN)?;
    for (number, share) in (0..).zip(principals) {
        pipeline.add_principal(PrincipalId(number), *share)?;
        if number < BUSY {
            let filter = format!("src 31.0.0.{}/32", number + 1);
            pipeline.bind_instance(BURN, "monitor", &filter, Some(PrincipalId(number)))?;
        }
    }
    Ok((wire, pipeline))
}

/// Returns the cycles used by each busy principal so far.
fn used(pipeline: &mut Pipeline) -> Result<Vec<u64>, BenchError> {
    let counts = pipeline.principals();
    if let Some((id, _)) = counts.iter().find(|(_, counts)| counts.drops.total() > 0) {
        return Err(failed(format!("the worker dropped packets of principal {}", id.0)));
    }
    Ok(counts.iter().take(BUSY as usize).map(|(_, counts)| counts.used.0).collect())
}

/// Compares delivered cycles with the shares of the fluid scheduler.
fn judged(principals: &[CpuShare], delivered: &[f64], elapsed: f64, microseconds: f64) -> Run {
    let total = delivered.iter().sum();
    let fluid = shares(principals, total);
    let worst = delivered.iter().zip(&fluid).map(|(got, share)| {
        let (error, share) = ((got - share).abs() * microseconds, share * microseconds);
        Worst { error, limit: QUANTUM_LIMIT.max(PART_LIMIT * share), share }
    });
    let short = principals.iter().zip(delivered).filter(|(share, _)| parts(**share) > 0);
    let short = short.map(|(share, got)| f64::from(parts(*share)) / 1e6 * elapsed - got);
    Run {
        error: worst
            .max_by(|one, other| (one.error / one.limit).total_cmp(&(other.error / other.limit)))
            .unwrap_or_default(),
        shortfall: short.fold(0.0, f64::max) * microseconds,
        delivered: 100.0 * total / elapsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_judged_by_the_limit_of_each_share() {
        let principals = [CpuShare::Weight(99), CpuShare::Weight(1)];
        // At a cycle per microsecond: both errors are 500 us, 1 % of the first share are 990 us.
        let run = judged(&principals, &[99_500.0, 500.0], 200_000.0, 1.0);
        assert_eq!(run.error, Worst { error: 500.0, limit: 200.0, share: 1000.0 });
        assert_eq!((run.shortfall, run.delivered), (0.0, 50.0));
    }

    #[test]
    fn shortfall_is_counted_against_the_whole_processor() {
        let run = judged(&[CpuShare::Absolute(100_000), CpuShare::Weight(1)], &[9.0, 60.0], 100.0, 1.0);
        assert!((run.shortfall - 1.0).abs() < 1e-9, "{}", run.shortfall);
    }

    #[test]
    fn busy_principals_get_cycles_by_their_weights() {
        let kind = CpuSchedulerKind::default();
        let run = measure(kind, &principals(0), frequency().unwrap(), Duration::ZERO).unwrap();
        assert!(run.delivered > 10.0, "{} % of the processor", run.delivered);
    }
}
