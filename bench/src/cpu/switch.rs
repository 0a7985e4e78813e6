//! `switch`: two workers share a port, as in VERA figure 3.6. A reserved flow arrives at the worker that owns
//! the port. Best-effort packets arrive at the other worker as fast as it forwards, and are handed over. The port
//! has a rate, which best effort exceeds. Its scheduler has a queue per flow, and reserves a rate for one flow; or it
//! is a FIFO queue.
//!
//! The workers have no common processor, so no scheduler of a processor protects the reserved flow.

use std::time::Duration;

use millrace_pipeline::HandoverRings;
use millrace_port::memory::Generator;
use millrace_schedule::{NodeKind, QueueSettings, Rate};
use millrace_wire::MacAddr;

use super::failed;
use super::isolation::Figures;
use super::pair::{OTHER, OWNER, WORKERS, run_pair};
use super::wire::{FLOW, Flow, Pace, Seen, TIME, Wire};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{Chosen, IN_MAC, MTU, Pipeline, SEED, Setup, first_flow, frames};
use crate::{BenchError, Bound, Measurement, Options, Subject};

/// Interval between packets of the reserved flow: 10,000 packets per second.
const INTERVAL: Duration = Duration::from_micros(100);
/// Bytes of each packet on the wire.
const ON_WIRE: f64 = 84.0;
/// Rate of the port, and reserved rate: half as much again as the reserved flow sends.
const PORT: Rate = Rate::from_megabits(1000);
const RESERVED: Rate = Rate::from_megabits(10);
/// Promised minimum: part of the port's rate that is used. Below it, best effort leaves room at the port.
const BUSY: f64 = 0.95;
/// Duration of a run, and number of runs; the result is their median.
const TIME_OF_RUN: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// Number of flows of both workers.
const FLOWS: u32 = 20;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < WORKERS) {
        (options.progress)("switch: this machine has no second processor");
        return Ok(Vec::new());
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (reserved, runs) in [(true, &mut with), (false, &mut without)] {
            check()?;
            let (seen, used) = measure(TIME_OF_RUN, reserved)?;
            runs.push((Figures::of(&seen), used));
        }
    }
    let measured = |what: &str, of: fn(&(Figures, f64)) -> f64, unit: &str| {
        let name = format!("switch, reserved flow beside best effort of another worker, {what}");
        let [ours, peers] = [&with, &without].map(|runs| runs.iter().map(of).collect::<Vec<_>>());
        Measurement::median_of(name, &ours, unit)
            .beside_runs("with a FIFO queue", &peers)
            .peer_about(Subject::Millrace)
    };
    let results = vec![
        measured("lost packets", |(figures, _)| figures.lost, "packets").promising(Bound::AtMost, 0.0),
        measured("99.9th percentile delay", |(figures, _)| figures.whole.late, "ms"),
        measured("longest delay", |(figures, _)| figures.whole.longest, "ms"),
        measured("used part of the port's rate", |(_, rate)| *rate, "1").promising(Bound::AtLeast, BUSY),
    ];
    for Measurement { case, ours, unit, peer, .. } in &results {
        let peer = peer.unwrap_or_default();
        (options.progress)(&format!("{case}: {ours:.3} {unit}, {peer:.3} with a FIFO queue"));
    }
    Ok(results)
}

/// Runs both workers for `time`. `reserved`: whether the flow has its reservation, or shares a
/// FIFO queue. Returns the packets of the flow,
/// and the used part of the port's rate.
fn measure(time: Duration, reserved: bool) -> Result<(Seen, f64), BenchError> {
    let made = run_pair(|owner| reserve(owner, reserved), flood, time)?;
    let bits = made.passed as f64 * ON_WIRE * 8.0;
    Ok((made.seen, bits / made.time.as_secs_f64() / PORT.0 as f64))
}

fn case() -> (Case, Setup) {
    (Case { family: Family::V4, flows: FLOWS }, Setup { routes: WORKERS as u32, ..Setup::default() })
}

/// Creates the worker that owns the port, with the flow that may have a reservation.
fn reserve(handover: HandoverRings, reserved: bool) -> Result<(Pipeline, Wire), BenchError> {
    let (case, setup) = case();
    let chosen = Chosen::Of { worker: OWNER, workers: WORKERS, seed: SEED };
    let (flow, frame) =
        first_flow(case, setup, chosen).ok_or_else(|| failed("no flow of the first worker"))?;
    let wire = Wire::new(1, vec![Flow { port: 0, frame, pace: Pace::Every(INTERVAL), work: Vec::new() }]);
    let devices = [wire.input(0), wire.output()];
    let mut pipeline = Pipeline::member_between(case, setup, handover, OWNER, devices)?;
    match reserved {
        true => pipeline.reserve(flow, RESERVED, PORT)?,
        false => pipeline.schedule(NodeKind::Fifo(QueueSettings::default()))?,
    }
    pipeline.limit_rate(PORT)?;
    Ok((pipeline, wire))
}

/// Creates the worker of the best-effort packets, which leave by the port of the other worker.
fn flood(handover: HandoverRings) -> Result<Pipeline, BenchError> {
    let (case, setup) = case();
    let mut frames = frames(case, setup, Chosen::Across { worker: OTHER, workers: WORKERS, seed: SEED });
    // The number of no flow: the wire counts only the reserved flow.
    frames.iter_mut().filter_map(|frame| frame.get_mut(FLOW..TIME)).for_each(|number| number.fill(u8::MAX));
    let input = Generator::new(MacAddr(IN_MAC), MTU, frames, u64::MAX);
    let devices: [Box<dyn millrace_port::Port>; 2] = [Box::new(input), Wire::new(0, Vec::new()).output()];
    Pipeline::member_between(case, setup, handover, OTHER, devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_effort_of_another_worker_shares_the_port() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let (seen, used) = measure(Duration::from_millis(200), true).unwrap();
        assert!(seen.sent > 0 && seen.left > 0 && used > 0.0, "{} {} {used}", seen.sent, seen.left);
    }
}
