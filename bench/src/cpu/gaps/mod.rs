//! `gaps`: standard deviation of the gap between received packets of a plain flow, while a plugin runs
//! invocations of 3 to 21 ms back to back (Srishti, 2001, table 1).
//!
//! A model under the virtual clock repeats the three ways in which the scheduler gets control in the paper.
//! Millrace runs a sandboxed plugin in a worker under the real clock, with the default slice.

mod model;
pub(crate) mod table;

use std::sync::Arc;
use std::time::Duration;

use millrace_plugin::wasm::{LoadedPlugin, Sandbox, SandboxSettings};
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_testkit::Random;
use millrace_units::{Cycles, PrincipalId};

use self::model::{AS_WRITTEN, modelled};
use super::wire::{Flow, Pace, Wire};
use super::{drive, failed, frequency, preemptions, settings};
use crate::family::Family;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, frame};
use crate::plugins::module;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, Subject};

/// Gaps of the plain flow in milliseconds, each with the printed deviations of table 1: control at the timer,
/// at returns, at both.
const TABLE: [(u64, [f64; 3]); 4] = [
    (1, [1.746, 1.821, 1.573]),
    (4, [4.383, 3.783, 3.069]),
    (7, [4.312, 3.832, 3.082]),
    (12, [3.881, 3.658, 2.844]),
];
/// Lengths of the invocations in milliseconds, all equally frequent.
const INVOCATIONS: [u64; 7] = [3, 6, 9, 12, 15, 18, 21];
/// Number of runs of the worker; the result is their median. Other work of the machine rarely disturbs most of
/// them.
pub const RUNS: usize = 5;
/// Number of gaps in a run of the worker, and minimum duration of a run.
const GAPS: u32 = 250;
const TIME: Duration = Duration::from_secs(1);
/// Number of packets of the plugin in the router.
const WINDOW: u64 = 2;
/// Promised maximum of our deviation in milliseconds.
pub const LIMIT: f64 = 0.2;
const PAPER: &str = "Srishti, 2001";
const PLUGIN: &str = "bench";
/// Loop iterations of the packets from which the length of an iteration is estimated.
const ESTIMATED: u32 = 1_000_000;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    let worker = Sandboxed::new()?;
    for (gap, printed) in TABLE {
        let [timer, returned, both] = modelled(gap, AS_WRITTEN);
        let (mut ours, mut alone, mut disturbed) = (Vec::new(), Vec::new(), 0);
        for _ in 0..RUNS {
            let before = preemptions();
            ours.push(worker.run(Duration::from_millis(gap), true)?);
            disturbed += preemptions() - before;
            alone.push(worker.run(Duration::from_millis(gap), false)?);
        }
        (options.progress)(&format!(
            "gap {gap} ms: deviation {timer:.2} ms with timer, {returned:.2} with return, {both:.2} with both, \
             {:.3} in Millrace, {:.3} there without a plugin; other work took the worker's processor \
             {disturbed} times",
            median(&ours),
            median(&alone),
        ));
        let model = |way: &str, figure: f64, printed: f64| {
            let name = format!("gap {gap} ms, control at {way}, deviation");
            Measurement::of(name, figure, "ms").about(Subject::Peer).beside(PAPER, printed)
        };
        let least = timer.min(returned);
        results.push(model("timer", timer, printed[0]));
        results.push(model("return", returned, printed[1]));
        results.push(model("timer or return", both, printed[2]).promising(Bound::AtMost, least));
        let name = format!("gap {gap} ms, default slice, deviation");
        let ours = Measurement::median_of(name, &ours, "ms").beside("control at timer or return", both);
        results.push(ours.promising(Bound::AtMost, LIMIT));
        let name = format!("gap {gap} ms, no plugin, deviation");
        results.push(Measurement::median_of(name, &alone, "ms"));
    }
    Ok(results)
}

/// Returns the standard deviation of the gaps between times in nanoseconds, in milliseconds. Returns `None`
/// for fewer than three times.
fn deviation(times: &[u64]) -> Option<f64> {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 / 1e6).collect();
    let count = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / count;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
    (gaps.len() > 1).then(|| variance.sqrt())
}

/// Sandboxed plugin that runs a loop for each packet.
pub(super) struct Sandboxed {
    /// Keeps the end of slices running.
    _sandbox: Sandbox,
    pub plugin: Arc<LoadedPlugin>,
    frequency: u64,
}

impl Sandboxed {
    pub fn new() -> Result<Self, BenchError> {
        let sandbox = Sandbox::new(SandboxSettings::default()).map_err(failed)?;
        let plugin = LoadedPlugin::new(sandbox.compile(module!("burns")).map_err(failed)?).map_err(failed)?;
        Ok(Self { _sandbox: sandbox, plugin: Arc::new(plugin), frequency: frequency()? })
    }

    /// Runs a worker for [`GAPS`] gaps, at least for [`TIME`]. Returns the deviation of the received gap.
    fn run(&self, gap: Duration, beside: bool) -> Result<f64, BenchError> {
        self.deviation(gap, TIME.max(gap * GAPS), beside)
    }

    /// Runs a worker for `time` with a plain flow of a gap, beside the plugin or alone. Returns the deviation of
    /// its received gap.
    fn deviation(&self, gap: Duration, time: Duration, beside: bool) -> Result<f64, BenchError> {
        let each = self.cycles_of_an_iteration()?;
        let iterations = |milliseconds| {
            let Cycles(cycles) = Cycles::in_time(Duration::from_millis(milliseconds), self.frequency);
            (cycles as f64 / each) as u32
        };
        let mut work: Vec<u32> = INVOCATIONS.into_iter().cycle().take(70).map(iterations).collect();
        Random::new(1).shuffle(&mut work);
        let plain =
            Flow { port: 0, frame: frame(Family::V4, 30, 0), pace: Pace::Every(gap), work: Vec::new() };
        let flows = if beside { vec![plain, of_plugin(work)] } else { vec![plain] };
        let (wire, mut pipeline) = self.router(flows)?;
        wire.start();
        drive(&mut pipeline, time)?;
        let left: Vec<u64> = wire.seen(0).times.iter().map(|[_, left]| *left).collect();
        if beside && wire.seen(1).left == 0 {
            return Err(failed("the plugin finished no invocation"));
        }
        deviation(&left).ok_or_else(|| failed("too few packets of the plain flow left"))
    }

    /// Estimates the cycles of a loop iteration of the plugin.
    pub fn cycles_of_an_iteration(&self) -> Result<f64, BenchError> {
        let (wire, mut pipeline) = self.router(vec![of_plugin(vec![ESTIMATED])])?;
        wire.start();
        drive(&mut pipeline, Duration::from_millis(100))?;
        let counts = pipeline.principals();
        let used = counts.first().map_or(0, |(_, counts)| counts.used.0) as f64;
        let packets = wire.seen(0).left as f64;
        let cycles = used / (packets * f64::from(ESTIMATED));
        cycles.is_normal().then_some(cycles).ok_or_else(|| failed("the plugin finished no invocation"))
    }

    /// Creates a router whose flows from 31.0.0.0/8 go to the plugin.
    fn router(&self, flows: Vec<Flow>) -> Result<(Wire, Pipeline), BenchError> {
        let wire = Wire::new(1, flows);
        let case = Case { family: Family::V4, flows: 1 };
        let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
        let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
        pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), self.frequency))?;
        pipeline.add_principal(PrincipalId(1), CpuShare::Weight(1))?;
        pipeline.create_instance(self.plugin.clone(), PLUGIN)?;
        pipeline.bind_instance(PLUGIN, "monitor", "src 31.0.0.0/8", Some(PrincipalId(1)))?;
        Ok((wire, pipeline))
    }
}

/// Returns the flow of the plugin, whose packets have these numbers of loop iterations in rotation.
fn of_plugin(work: Vec<u32>) -> Flow {
    Flow { port: 0, frame: frame(Family::V4, 31, 0), pace: Pace::Window(WINDOW), work }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_that_of_the_gaps() {
        assert_eq!(deviation(&[0, 2_000_000, 4_000_000]), Some(0.0));
        assert_eq!(deviation(&[0, 1_000_000, 4_000_000, 5_000_000, 8_000_000]), Some(1.0));
        assert_eq!(deviation(&[0, 1]), None);
    }

    #[test]
    fn plain_flow_leaves_beside_long_invocations_of_a_sandboxed_plugin() {
        let worker = Sandboxed::new().unwrap();
        let deviation = worker.deviation(Duration::from_millis(1), Duration::from_millis(300), true).unwrap();
        assert!(deviation.is_finite());
    }
}
