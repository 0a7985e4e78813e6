//! `third-level`: shares of the queued stages of a flow, and the longest run of a path without and with queues
//! before its stages. A run lasts until the scheduler chooses again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_plugin::CallLimits;
use millrace_plugin_abi::{Instance, Message, Packets, Plugin, PluginError, Position, Progress, Reply};
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::{Cycles, Instant, PrincipalId};
use millrace_workbench::cycles;
use serde_json::{Map, Value};

use super::burn::Burn;
use super::wire::{Flow, Pace, Wire};
use super::{failed, frequency, settings};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, frame};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Gates of the two stages of the path.
const GATES: [&str; 2] = ["process", "monitor"];
/// Weights of the stages. The first one passes its packets to the second one, so it must be the faster one.
const WEIGHTS: [u16; 2] = [3, 1];
/// Processor time of a packet at a stage.
const PACKET: Duration = Duration::from_micros(200);
/// Number of packets in the router.
const WINDOW: u64 = 1800;
/// Packets at the first stage after which a measurement ends. Both stages are busy until then.
const PACKETS: u64 = 2400;
const ROUNDS: usize = 5;
/// Promised maximum error of the ratio of the shares, in percent.
const LIMIT: f64 = 1.0;

/// Work of all stages.
#[derive(Debug, Default)]
struct Work {
    /// Packets and cycles of each stage.
    stages: [(u64, u64); 2],
    /// Time of the present run, its planned cycles, and the most planned cycles of a run.
    began: Option<Instant>,
    run: u64,
    longest: u64,
}

/// Stage that uses cycles for each packet and records them.
#[derive(Clone, Debug)]
struct Stage {
    burn: Burn,
    work: Arc<Mutex<Work>>,
}

impl Plugin for Stage {
    fn name(&self) -> &'static str {
        self.burn.name
    }

    fn version(&self) -> &'static str {
        self.burn.version()
    }

    fn summary(&self) -> &'static str {
        self.burn.summary()
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(self.clone()))
    }
}

impl Instance for Stage {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let (count, start) = (packets.len() as u64, cycles());
        let progress = self.burn.process(packets, now);
        let used = start.zip(cycles()).map_or(0, |(start, end)| end - start);
        let Ok(mut work) = self.work.lock() else { return progress };
        let stage = usize::from(self.burn.name != GATES[0]);
        work.stages[stage].0 += count;
        work.stages[stage].1 += used;
        // All calls of a run get the same time.
        if work.began.replace(now) != Some(now) {
            work.run = 0;
        }
        work.run += self.burn.cycles * count;
        work.longest = work.longest.max(work.run);
        progress
    }

    fn control(&mut self, message: &Message) -> Reply {
        self.burn.control(message)
    }
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let frequency = frequency()?;
    let mut errors = Vec::new();
    for _ in 0..ROUNDS {
        let work = measure(Some(WEIGHTS), PACKETS, frequency)?;
        errors.push(error_of(&work));
    }
    let longest = |queues| {
        let work = measure(queues, PACKETS / 4, frequency)?;
        Ok::<f64, BenchError>(work.longest as f64 * 1e6 / frequency as f64)
    };
    let (without, with) = (longest(None)?, longest(Some([1, 1]))?);
    (options.progress)(&format!(
        "third level: error of the ratio {:.2} %; longest run {without:.0} us without queues, {with:.0} us with",
        median(&errors),
    ));
    let [first, second] = WEIGHTS;
    let name = format!("third level, weights {first}:{second}, error of the ratio");
    Ok(vec![
        Measurement::median_of(name, &errors, "%").promising(Bound::AtMost, LIMIT),
        Measurement::of("third level, longest run of a path, stages with queues", with, "us")
            .beside("without queues", without)
            .promising(Bound::AtMost, without * 0.75),
    ])
}

/// Returns the error of the ratio of the two stages' cycles, in percent.
fn error_of(work: &Work) -> f64 {
    let [(_, first), (_, second)] = work.stages;
    let wanted = f64::from(WEIGHTS[0]) / f64::from(WEIGHTS[1]);
    100.0 * (first as f64 / second as f64 / wanted - 1.0).abs()
}

/// Runs a worker until the first stage of a path has had this number of packets. `queues`: weights of the queues
/// before the stages.
fn measure(queues: Option<[u16; 2]>, packets: u64, frequency: u64) -> Result<Work, BenchError> {
    let (frame, pace) = (frame(Family::V4, 31, 0), Pace::Window(WINDOW));
    let wire = Wire::new(1, vec![Flow { port: 0, frame, pace, work: Vec::new() }]);
    let case = Case { family: Family::V4, flows: 1 };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), frequency))?;
    let work = Arc::new(Mutex::new(Work::default()));
    let payer = PrincipalId(1);
    pipeline.add_principal(payer, CpuShare::Weight(1))?;
    let Cycles(cycles) = Cycles::in_time(PACKET, frequency);
    for (number, gate) in GATES.into_iter().enumerate() {
        let name = format!("stage-{gate}");
        let stage = Stage { burn: Burn { name: gate, cycles }, work: work.clone() };
        pipeline.create_instance(Arc::new(stage), &name)?;
        let (call, queue) = (CallLimits::DEFAULT_PAID_CALL, queues.map(|weights| weights[number]));
        let limits = CallLimits { call, principal: Some(payer), queue, ..CallLimits::default() };
        pipeline.bind_limited((&name, gate), "src 31.0.0.0/8", limits)?;
    }
    wire.start();
    let done = || work.lock().map_or(u64::MAX, |work| work.stages[0].0);
    while done() < packets {
        check()?;
        pipeline.iterate_now();
    }
    let mut work = work.lock().map_err(failed)?;
    Ok(std::mem::take(&mut *work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_stages_work_and_runs_are_measured() {
        let frequency = frequency().unwrap();
        for queues in [None, Some(WEIGHTS)] {
            let work = measure(queues, PACKETS / 40, frequency).unwrap();
            assert!(work.stages.iter().all(|(packets, cycles)| *packets > 0 && *cycles > 0), "{work:?}");
            assert!(work.longest > 0 && error_of(&work).is_finite(), "{work:?}");
        }
    }
}
