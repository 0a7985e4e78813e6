//! `burst`, `share-by-input` and `share-by-function`: a burst from one port to another, beside busy principals with
//! reserved shares, which are also their limits. Core spends more of its time on these ports. The principals keep their
//! shares, whatever the place of core among them.
//!
//! | case | core |
//! |---|---|
//! | `burst` | comes first (`core = "first"`) |
//! | `share-by-input` | is a principal with a share, without and with a part for each port (`share`, `share-by-input`) |
//! | `share-by-function` | is a principal whose input ports, forwarding and output ports have parts that follow the load (`share`) or are fixed (`share-by-function`) |

use std::sync::Arc;
use std::time::Duration;

use millrace_pipeline::{CoreDivision, CoreOrder, CoreSettings, Shed};
use millrace_schedule::cpu::{CpuPrincipal, CpuSchedulerKind, CpuShare};
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
const ROUNDS: usize = 7;
/// Promised maximum change of a principal's processor time, in percent of the processor. A principal's limit is its
/// share: beyond their shares, principals would divide what core leaves idle, and a burst leaves less.
const LIMIT: f64 = 1.0;
/// Promised minimum of the port's part of the time of core, as a multiple of its part before the burst.
const RISE: f64 = 1.2;

/// Second output port: the burst leaves by it, all other packets by the first one.
const SECOND_OUT: Place = Place::numbered(3);

/// Core as a principal with a share, whose functions follow the load.
const SHARED: CoreSettings = CoreSettings {
    order: CoreOrder::Share,
    shed: Shed::Plain,
    division: CoreDivision::ByLoad,
    forwarding_weight: 1024,
};
const BY_INPUT: CoreSettings = CoreSettings { division: CoreDivision::ByInput, ..SHARED };
const BY_FUNCTION: CoreSettings = CoreSettings { division: CoreDivision::ByFunction, ..SHARED };

/// Figures of a run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    /// Processor time of each principal, in percent of the processor.
    principals: Vec<f64>,
    /// Time of core for the first port, in percent of its time for both ports.
    first_port: f64,
    /// Time of core for the output port of the burst, in percent of its time for both output ports; 0 if core does not
    /// measure it.
    second_output: f64,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    compare("burst at a port", CoreSettings::default(), options)
}

pub(super) fn run_by_input(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = compare("core = share, burst at a port", SHARED, options)?;
    results.extend(compare("core = share-by-input, burst at a port", BY_INPUT, options)?);
    Ok(results)
}

pub(super) fn run_by_function(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = compare("core = share, burst to a port", SHARED, options)?;
    results.extend(compare("core = share-by-function, burst to a port", BY_FUNCTION, options)?);
    Ok(results)
}

/// Measures runs before and during the burst.
fn compare(
    name: &str,
    core: CoreSettings,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let frequency = frequency()?;
    let measures_outputs = matches!(core.division, CoreDivision::ByLoad | CoreDivision::ByFunction);
    let (mut changes, mut before, mut during) = (Vec::new(), Vec::new(), Vec::new());
    let (mut output_before, mut output_during) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let calm = measure(core, INTERVAL, frequency, TIME)?;
        let burst = measure(core, BURST, frequency, TIME)?;
        changes.push(change(&calm, &burst));
        before.push(calm.first_port);
        during.push(burst.first_port);
        output_before.push(calm.second_output);
        output_during.push(burst.second_output);
    }
    let greatest = format!("{name}, greatest change of a principal");
    let part = format!("{name}, its part of the time of core for ports");
    let output = format!("{name}, its part of the time of core for sending");
    let rise = |case, during: &[f64], before: &[f64]| {
        Measurement::median_of(case, during, "%")
            .beside_runs("before the burst", before)
            .promising(Bound::AtLeast, RISE * median(before))
    };
    let mut results = vec![
        Measurement::median_of(greatest, &changes, "% of the processor").promising(Bound::AtMost, LIMIT),
        rise(part, &during, &before),
    ];
    results.extend(measures_outputs.then(|| rise(output, &output_during, &output_before)));
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
    // Flows of even numbers leave by the first output.
    let plain = [(0, 1, interval), (1, 0, INTERVAL)];
    let plain = plain.map(|(port, number, every)| flow(port, 30, number, Pace::Every(every)));
    let busy = (0..SHARES.len() as u32).map(|number| flow(1, 31, 2 * number, Pace::Window(WINDOW)));
    let wire = Wire::new(2, plain.into_iter().chain(busy).collect());
    let case = Case { family: Family::V4, flows: 1 };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let outputs = ([wire.output(), wire.output()], SECOND_OUT);
    let mut pipeline = Pipeline::with_outputs(case, setup, wire.input(0), outputs)?;
    pipeline.add_input(Place::numbered(2), wire.input(1));
    pipeline.schedule_core(settings(CpuSchedulerKind::default(), frequency), core)?;
    let Cycles(cost) = Cycles::in_time(PACKET, frequency);
    pipeline.create_instance(Arc::new(Burn { name: BURN, cycles: cost }), BURN)?;
    for (number, share) in (0..).zip(SHARES) {
        let cpu = CpuPrincipal { share: CpuShare::Absolute(share), limit: Some(share), deadline: None };
        pipeline.add_limited_principal(PrincipalId(number), cpu)?;
        let filter = format!("src 31.0.0.{}/32", 2 * number + 1);
        pipeline.bind_instance(BURN, "monitor", &filter, Some(PrincipalId(number)))?;
    }
    wire.start();
    settle(&mut pipeline)?;
    let (before, inputs_before, start) = (used(&mut pipeline), pipeline.core_by_port(), cycles());
    let outputs_before = pipeline.output_by_port();
    drive(&mut pipeline, time.saturating_sub(QUIET))?;
    settle(&mut pipeline)?;
    let elapsed = start.zip(cycles()).map_or(0, |(start, end)| end - start).max(1) as f64;
    let since = |now: &[u64], before: &[u64]| -> Vec<f64> {
        now.iter().zip(before).map(|(now, before)| (now - before) as f64).collect()
    };
    let inputs = since(&pipeline.core_by_port(), &inputs_before);
    let principals = since(&used(&mut pipeline), &before);
    let outputs = since(&pipeline.output_by_port(), &outputs_before);
    let part = |of: Option<&f64>, all: &[f64]| {
        100.0 * of.copied().unwrap_or_default() / all.iter().sum::<f64>().max(1.0)
    };
    Ok(Run {
        principals: principals.iter().map(|used| 100.0 * used / elapsed).collect(),
        first_port: part(inputs.first(), &inputs),
        second_output: part(outputs.last(), &outputs),
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
        let run = |principals: [f64; 2]| Run {
            principals: principals.to_vec(),
            first_port: 50.0,
            second_output: 0.0,
        };
        assert_eq!(change(&run([20.0, 10.0]), &run([20.0, 10.0])), 0.0);
        assert!((change(&run([20.0, 10.0]), &run([20.2, 9.7])) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn burst_raises_the_part_of_its_port() {
        let time = Duration::from_millis(100);
        for core in [CoreSettings::default(), BY_FUNCTION] {
            let run = |every| measure(core, every, frequency().unwrap(), time).unwrap();
            let (calm, burst) = (run(INTERVAL), run(BURST));
            assert!(burst.first_port > calm.first_port, "{core:?}: {calm:?} {burst:?}");
            let measures = matches!(core.division, CoreDivision::ByLoad | CoreDivision::ByFunction);
            assert_eq!(calm.second_output > 0.0, measures, "{core:?}: {calm:?}");
        }
    }
}
