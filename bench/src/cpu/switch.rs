//! `switch`: two workers share a port, as in VERA figure 3.6. A reserved flow arrives at the worker that owns
//! the port. Best-effort packets arrive at the other worker as fast as it forwards, and are handed over.
//!
//! The workers have no common processor, so no scheduler of a processor protects the reserved flow.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use millrace_pipeline::Handover;
use millrace_port::memory::Generator;
use millrace_wire::MacAddr;
use nix::unistd::Pid;

use super::isolation::Figures;
use super::wire::{FLOW, Flow, Pace, Seen, TIME, Wire};
use super::{drive, failed};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{Chosen, IN_MAC, MTU, Pipeline, SEED, Setup, frames};
use crate::testbed::process::dedicate;
use crate::{BenchError, Bound, Measurement, Options};

/// Interval between packets of the reserved flow: 10,000 packets per second.
const INTERVAL: Duration = Duration::from_micros(100);
/// Duration of a run, and number of runs; the result is their median.
const TIME_OF_RUN: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// Maximum time in which the reserved packets of a run leave the router after its end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of flows of each worker.
const FLOWS: u32 = 100;
/// Worker that owns the port, and the other worker.
const OWNER: usize = 0;
const OTHER: usize = 1;
const WORKERS: usize = 2;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < WORKERS) {
        (options.progress)("switch: this machine has no second processor");
        return Ok(Vec::new());
    }
    let runs = (0..ROUNDS).map(|_| {
        check()?;
        measure(TIME_OF_RUN).map(|(seen, rate)| (Figures::of(&seen), rate))
    });
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let measured = |what: &str, of: fn(&(Figures, f64)) -> f64, unit: &str| {
        let name = format!("switch, reserved flow beside best effort of another worker, {what}");
        Measurement::median_of(name, &runs.iter().map(of).collect::<Vec<_>>(), unit)
    };
    let results = vec![
        measured("lost packets", |(figures, _)| figures.lost, "packets").promising(Bound::AtMost, 0.0),
        measured("99.9th percentile delay", |(figures, _)| figures.late, "ms"),
        measured("longest delay", |(figures, _)| figures.longest, "ms"),
        measured("rate of best effort", |(_, rate)| *rate, "Mpps"),
    ];
    for Measurement { case, ours, unit, .. } in &results {
        (options.progress)(&format!("{case}: {ours:.3} {unit}"));
    }
    Ok(results)
}

/// Runs both workers for `time`. Returns the packets of the reserved flow, and the rate at which best-effort
/// packets leave by the shared port, in millions per second.
fn measure(time: Duration) -> Result<(Seen, f64), BenchError> {
    let mut ends = Handover::mesh(&[None, None]).into_iter();
    let (Some(owner), Some(other)) = (ends.next(), ends.next()) else {
        return Err(failed("no hand-over between two workers"));
    };
    let (ready, done) = (&Barrier::new(WORKERS), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flooding = scope.spawn(move || {
            let _ = dedicate(Pid::from_raw(0), OTHER);
            let made = flood(other);
            ready.wait();
            let mut pipeline = made?;
            while !done.load(Ordering::Relaxed) {
                (0..16).for_each(|_| pipeline.iterate_now());
            }
            Ok(())
        });
        let reserved = scope.spawn(move || {
            let _ = dedicate(Pid::from_raw(0), OWNER);
            let made = reserve(owner);
            ready.wait();
            let seen = made.and_then(|(mut pipeline, wire)| forward(&mut pipeline, &wire, time));
            done.store(true, Ordering::Relaxed);
            seen
        });
        let died = |_| failed("a worker panicked");
        let seen = reserved.join().map_err(died)?;
        flooding.join().map_err(died)?.and(seen)
    })
}

fn case() -> (Case, Setup) {
    (Case { family: Family::V4, flows: FLOWS }, Setup { routes: WORKERS as u32, ..Setup::default() })
}

/// Creates the worker that owns the port, with the reserved flow.
fn reserve(handover: Handover) -> Result<(Pipeline, Wire), BenchError> {
    let (case, setup) = case();
    let chosen = Chosen::Of { worker: OWNER, workers: WORKERS, seed: SEED };
    let frame = frames(case, setup, chosen).pop().ok_or_else(|| failed("no flow of the first worker"))?;
    let wire = Wire::new(1, vec![Flow { port: 0, frame, pace: Pace::Every(INTERVAL), work: Vec::new() }]);
    let devices = [wire.input(0), wire.output()];
    Ok((Pipeline::member_between(case, setup, handover, OWNER, devices)?, wire))
}

/// Creates the worker of the best-effort packets, which leave by the port of the other worker.
fn flood(handover: Handover) -> Result<Pipeline, BenchError> {
    let (case, setup) = case();
    let mut frames = frames(case, setup, Chosen::Across { worker: OTHER, workers: WORKERS, seed: SEED });
    // The number of no flow: the wire counts only the reserved flow.
    frames.iter_mut().filter_map(|frame| frame.get_mut(FLOW..TIME)).for_each(|number| number.fill(u8::MAX));
    let input = Generator::new(MacAddr(IN_MAC), MTU, frames, u64::MAX);
    let devices: [Box<dyn millrace_port::Port>; 2] = [Box::new(input), Wire::new(0, Vec::new()).output()];
    Pipeline::member_between(case, setup, handover, OTHER, devices)
}

/// Runs the worker that owns the port for `time`, and until the reserved packets have left.
fn forward(pipeline: &mut Pipeline, wire: &Wire, time: Duration) -> Result<(Seen, f64), BenchError> {
    wire.start();
    let (start, (_, before)) = (Clock::now(), pipeline.passed());
    drive(pipeline, time)?;
    let (elapsed, (_, after)) = (start.elapsed(), pipeline.passed());
    let reserved = wire.seen(0).left;
    wire.end_arrivals();
    let ended = Clock::now();
    loop {
        (0..64).for_each(|_| pipeline.iterate_now());
        let seen = wire.seen(0);
        if seen.left == seen.sent || ended.elapsed() > PATIENCE {
            let best_effort = (after - before).saturating_sub(reserved);
            return Ok((seen, best_effort as f64 / elapsed.as_secs_f64() / 1e6));
        }
        check()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_effort_of_another_worker_shares_the_port() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let (seen, rate) = measure(Duration::from_millis(200)).unwrap();
        assert!(seen.sent > 0 && seen.left > 0 && rate > 0.0, "{} {} {rate}", seen.sent, seen.left);
    }
}
