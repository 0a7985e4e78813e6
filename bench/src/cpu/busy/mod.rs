//! `busy`: delay of a plain flow of 100,000 packets per second beside principals that take all that core leaves.
//!
//! A worker with ports in memory runs the flow alone, and beside eight principals whose plugin has always packets: in
//! a sandbox of the worker, or in a process of its own. [`network`] compares the delay through a router between
//! network namespaces with that of the kernel.

mod network;

use std::sync::Arc;
use std::time::Duration;

use millrace_plugin_abi::Plugin;
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::{Cycles, PrincipalId};

use super::gaps::Sandboxed;
use super::isolation::{Figures, finish, shared_object_in_processes};
use super::process::WORKER;
use super::wire::{Flow, Pace, Seen, Wire};
use super::{drive, frequency, preemptions, settings};
use crate::family::Family;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Place, Setup, frame};
use crate::testbed::process::on_processor;
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Interval between packets of the plain flow.
const INTERVAL: Duration = Duration::from_micros(10);
/// Principals, packets of each in the router, and processor time of a packet.
const PRINCIPALS: u32 = 8;
const WINDOW: u64 = 64;
const PACKET: Duration = Duration::from_micros(200);
/// Duration of a run, and number of runs; the result is their median.
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
/// Promised maximum of the additional delay of 99.9 % of the packets in most windows of 50 ms, in microseconds.
///
/// The hypervisor and the kernel take the processor from a worker several times per second, each time for longer than
/// this. So the percentile of a whole run is mostly theirs. It is reported, too, beside that of the worker alone.
const LATER: f64 = 150.0;

/// Plugin whose packets each take [`PACKET`].
struct Busy {
    runtime: &'static str,
    plugin: Arc<dyn Plugin>,
    work: Vec<u32>,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let frequency = frequency()?;
    let Cycles(cycles) = Cycles::in_time(PACKET, frequency);
    let sandboxed = Sandboxed::new()?;
    let iterations = cycles as f64 / sandboxed.cycles_of_an_iteration()?;
    let plugin = sandboxed.plugin.clone();
    let mut all = vec![Busy { runtime: "sandboxed", plugin, work: vec![iterations as u32] }];
    if let Some(plugin) = shared_object_in_processes(PACKET, frequency, options)? {
        all.push(Busy { runtime: "process", plugin: Arc::new(plugin), work: Vec::new() });
    }
    let mut results = Vec::new();
    for busy in &all {
        let (mut beside, mut alone, mut disturbed) = (Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            let (run, preemptions) = run_worker(Some(busy))?;
            beside.push(run);
            disturbed += preemptions;
            alone.push(run_worker(None)?.0);
        }
        results.extend(report(busy.runtime, &beside, &alone, options));
        (options.progress)(&format!("other work took the worker's processor {disturbed} times"));
    }
    results.extend(network::run(options)?);
    Ok(results)
}

/// Returns the measurements of a runtime.
fn report(
    runtime: &str,
    beside: &[Figures],
    alone: &[Figures],
    options: &mut Options<'_>,
) -> [Measurement; 4] {
    let of = |runs: &[Figures], figure: fn(&Figures) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
    let later: Vec<f64> = beside
        .iter()
        .zip(alone)
        .map(|(with, without)| (with.usual.late - without.usual.late) * 1e3)
        .collect();
    let name = |what: &str| format!("busy, {runtime}, {what}");
    let all = |runs: &[Figures]| runs.iter().flat_map(|run| run.delays.clone()).collect::<Vec<_>>();
    let distribution = Quantiles::of("delay, ms")
        .with(Subject::Millrace, "beside busy principals", &all(beside))
        .with(Subject::Peer, "alone", &all(alone));
    let results = [
        Measurement::median_of(name("lost packets"), &of(beside, |run| run.lost), "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::median_of(name("99.9th percentile delay in 50 ms, later than alone"), &later, "us")
            .promising(Bound::AtMost, LATER),
        Measurement::median_of(
            name("99.9th percentile delay"),
            &of(beside, |run| run.whole.late * 1e3),
            "us",
        )
        .beside_runs("alone", &of(alone, |run| run.whole.late * 1e3))
        .peer_about(Subject::Millrace)
        .with_distribution(distribution),
        Measurement::median_of(name("median delay"), &of(beside, |run| run.middle() * 1e3), "us")
            .beside_runs("alone", &of(alone, |run| run.middle() * 1e3))
            .peer_about(Subject::Millrace),
    ];
    for Measurement { case, ours, unit, .. } in &results {
        (options.progress)(&format!("{case}: {ours:.2} {unit}"));
    }
    results
}

/// Runs a worker on its processor. Returns the figures of the plain flow, and the number of times that other work took
/// the processor.
fn run_worker(busy: Option<&Busy>) -> Result<(Figures, i64), BenchError> {
    on_processor(WORKER, || Ok((Figures::of(&measure(busy, INTERVAL, TIME)?), preemptions())))?
}

/// Runs a worker for `time`, with a plain flow of this interval. Returns the packets of the plain flow.
fn measure(busy: Option<&Busy>, interval: Duration, time: Duration) -> Result<Seen, BenchError> {
    let plain =
        Flow { port: 0, frame: frame(Family::V4, 30, 0), pace: Pace::Every(interval), work: Vec::new() };
    let flow = |busy: &Busy, flow| {
        let frame = frame(Family::V4, 31, flow);
        Flow { port: 1, frame, pace: Pace::Window(WINDOW), work: busy.work.clone() }
    };
    let principals = busy.into_iter().flat_map(|busy| (0..PRINCIPALS).map(|number| flow(busy, number)));
    let wire = Wire::new(2, std::iter::once(plain).chain(principals).collect());
    let case = Case { family: Family::V4, flows: 1 };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.add_input(Place::numbered(2), wire.input(1));
    pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), frequency()?))?;
    if let Some(busy) = busy {
        for number in 0..PRINCIPALS {
            let (name, principal) = (format!("busy-{number}"), PrincipalId(number));
            pipeline.add_principal(principal, CpuShare::Weight(1))?;
            pipeline.create_instance(busy.plugin.clone(), &name)?;
            let filter = format!("src 31.0.0.{}/32", number + 1);
            pipeline.bind_instance(&name, "monitor", &filter, Some(principal))?;
        }
    }
    wire.start();
    drive(&mut pipeline, time)?;
    wire.end_arrivals();
    finish(&wire, &mut pipeline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::burn::{BURN, Burn};

    #[test]
    fn plain_flow_loses_nothing_beside_busy_principals() {
        let Cycles(cycles) = Cycles::in_time(Duration::from_micros(20), frequency().unwrap());
        let plugin = Arc::new(Burn { name: BURN, cycles });
        let busy = Busy { runtime: "built-in", plugin, work: Vec::new() };
        let seen = measure(Some(&busy), Duration::from_micros(200), Duration::from_millis(100)).unwrap();
        assert!(seen.sent > 100, "{} packets", seen.sent);
        assert_eq!(seen.left, seen.sent);
    }
}
