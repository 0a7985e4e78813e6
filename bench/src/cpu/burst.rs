//! `burst` and `share-by-input`: a burst at one port, beside busy principals with reserved shares. Core spends more of
//! its time on that port. The principals keep their shares, whatever the place of core among them.
//!
//! | case | core |
//! |---|---|
//! | `burst` | comes first (`core = "first"`) |
//! | `share-by-input` | is a principal with a share, without and with a part for each port (`share`, `share-by-input`) |

use std::sync::Arc;
use std::time::Duration;

use millrace_pipeline::{CoreInputOrder, CoreOrder, CoreSettings, Shed};
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::{Cycles, PrincipalId};
use millrace_workbench::cycles;

use super::burn::{BURN, Burn};
use super::wire::{Flow, Pace, Wire};
use super::{QUIET, drive, frequency, settings, settle};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Place, Setup, frame};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Interval between plain packets at each port: 20,000 packets per second.
const INTERVAL: Duration = Duration::from_micros(50);
/// Interval at the first port during the burst: 200,000 packets per second.
const BURST: Duration = Duration::from_micros(5);
/// Reserved shares of the busy principals, in parts per million of the processor.
const SHARES: [u32; 3] = [300_000, 200_000, 100_000];
/// Number of packets of a busy principal in the router.
const WINDOW: u64 = 24;
/// Processor time of a packet of a principal.
const PACKET: Duration = Duration::from_micros(8);
/// Duration of a run, and number of runs; the result is their median.
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
/// Promised maximum change of a principal's processor time, in percent of the processor. Beyond their shares,
/// principals divide what core leaves idle, and a burst leaves less.
const LIMIT: f64 = 1.0;
/// Promised minimum of the port's part of the time of core, as a multiple of its part before the burst.
const RISE: f64 = 1.2;

/// Core as a principal with a share, without and with a part for each port.
const SHARED: CoreSettings =
    CoreSettings { order: CoreOrder::Share, shed: Shed::Plain, inputs: CoreInputOrder::Together };
const BY_INPUT: CoreSettings = CoreSettings { inputs: CoreInputOrder::Each, ..SHARED };

/// Figures of a run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    /// Processor time of each principal, in percent of the processor.
    principals: Vec<f64>,
    /// Time of core for the first port, in percent of its time for both ports.
    first_port: f64,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    compare("burst at a port", CoreSettings::default(), options)
}

pub(super) fn run_by_input(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = compare("core = share, burst at a port", SHARED, options)?;
    results.extend(compare("core = share-by-input, burst at a port", BY_INPUT, options)?);
    Ok(results)
}

/// Measures runs before and during the burst.
fn compare(
    name: &str,
    core: CoreSettings,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let frequency = frequency()?;
    let (mut changes, mut before, mut during) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let calm = measure(core, INTERVAL, frequency, TIME)?;
        let burst = measure(core, BURST, frequency, TIME)?;
        changes.push(change(&calm, &burst));
        before.push(calm.first_port);
        during.push(burst.first_port);
    }
    let greatest = format!("{name}, greatest change of a principal");
    let part = format!("{name}, its part of the time of core for ports");
    let results = vec![
        Measurement::median_of(greatest, &changes, "% of the processor").promising(Bound::AtMost, LIMIT),
        Measurement::median_of(part, &during, "%")
            .beside_runs("before the burst", &before)
            .promising(Bound::AtLeast, RISE * median(&before)),
    ];
    for Measurement { case, ours, unit, .. } in &results {
        (options.progress)(&format!("{case}: {ours:.2} {unit}"));
    }
    Ok(results)
}

/// Returns the greatest change of a principal's processor time, in percent of the processor.
fn change(calm: &Run, burst: &Run) -> f64 {
    let changes = calm.principals.iter().zip(&burst.principals);
    changes.map(|(before, during)| (during - before).abs()).fold(0.0, f64::max)
}

/// Runs a worker for `time`, with a plain packet at the first port in each `interval`.
fn measure(
    core: CoreSettings,
    interval: Duration,
    frequency: u64,
    time: Duration,
) -> Result<Run, BenchError> {
    check()?;
    let flow =
        |port, net, flow, pace| Flow { port, frame: frame(Family::V4, net, flow), pace, work: Vec::new() };
    let plain = [(0, interval), (1, INTERVAL)].map(|(port, every)| flow(port, 30, 0, Pace::Every(every)));
    let busy = (0..SHARES.len() as u32).map(|number| flow(1, 31, number, Pace::Window(WINDOW)));
    let wire = Wire::new(2, plain.into_iter().chain(busy).collect());
    let case = Case { family: Family::V4, flows: 1 };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.add_input(Place::numbered(2), wire.input(1));
    pipeline.schedule_core(settings(CpuSchedulerKind::default(), frequency), core)?;
    let Cycles(cost) = Cycles::in_time(PACKET, frequency);
    pipeline.create_instance(Arc::new(Burn { name: BURN, cycles: cost }), BURN)?;
    for (number, share) in (0..).zip(SHARES) {
        pipeline.add_principal(PrincipalId(number), CpuShare::Absolute(share))?;
        let filter = format!("src 31.0.0.{}/32", number + 1);
        pipeline.bind_instance(BURN, "monitor", &filter, Some(PrincipalId(number)))?;
    }
    wire.start();
    settle(&mut pipeline)?;
    let (before, inputs_before, start) = (used(&mut pipeline), pipeline.core_by_port(), cycles());
    drive(&mut pipeline, time.saturating_sub(QUIET))?;
    settle(&mut pipeline)?;
    let elapsed = start.zip(cycles()).map_or(0, |(start, end)| end - start).max(1) as f64;
    let since = |now: &[u64], before: &[u64]| -> Vec<f64> {
        now.iter().zip(before).map(|(now, before)| (now - before) as f64).collect()
    };
    let inputs = since(&pipeline.core_by_port(), &inputs_before);
    let principals = since(&used(&mut pipeline), &before);
    let first = inputs.first().copied().unwrap_or_default();
    Ok(Run {
        principals: principals.iter().map(|used| 100.0 * used / elapsed).collect(),
        first_port: 100.0 * first / inputs.iter().sum::<f64>().max(1.0),
    })
}

/// Returns the cycles used by each busy principal so far.
fn used(pipeline: &mut Pipeline) -> Vec<u64> {
    pipeline.principals().iter().take(SHARES.len()).map(|(_, counts)| counts.used.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_that_of_the_principal_with_the_greatest() {
        let run = |principals: [f64; 2]| Run { principals: principals.to_vec(), first_port: 50.0 };
        assert_eq!(change(&run([20.0, 10.0]), &run([20.0, 10.0])), 0.0);
        assert!((change(&run([20.0, 10.0]), &run([20.2, 9.7])) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn burst_raises_the_part_of_its_port() {
        let time = Duration::from_millis(100);
        for core in [CoreSettings::default(), BY_INPUT] {
            let run = |every| measure(core, every, frequency().unwrap(), time).unwrap();
            let (calm, burst) = (run(INTERVAL), run(BURST));
            assert!(burst.first_port > calm.first_port, "{core:?}: {calm:?} {burst:?}");
        }
    }
}
