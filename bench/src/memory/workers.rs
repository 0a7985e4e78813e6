//! Several workers of one router in memory. Each has a thread, an input port and an output port.
//!
//! In one case, every flow arrives at its owner and leaves by the owner's port, as with ideal RSS of a NIC.
//! In the other case, flows arrive at any worker. Half of the packets are then handed over at the input, and
//! half at the output.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_pipeline::HandoverRings;
use nix::unistd::Pid;

use super::case::Case;
use super::setup::{Chosen, Pipeline, SEED, Setup};
use crate::BenchError;
use crate::interrupt::check;
use crate::testbed::process::dedicate;

/// Duration of the traffic before counting begins.
const WARM_UP: Duration = Duration::from_millis(100);
const COUNTED: Duration = Duration::from_millis(150);
/// Number of packets between two readings of the clock.
const PORTION: u64 = 2560;

/// Distribution of flows over the workers' input ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spread {
    /// Each flow arrives at its owner.
    AtTheirs,
    /// Flows arrive at any worker.
    Anywhere,
}

/// Measures the packets per second that leave a router with a given number of workers.
pub(crate) fn rate(case: Case, setup: Setup, workers: usize, spread: Spread) -> Result<f64, BenchError> {
    check()?;
    // There is at least one route per output port.
    let setup = Setup { routes: setup.routes.max(workers as u32), ..setup };
    let (ready, done) = (Barrier::new(workers), AtomicUsize::new(0));
    let ends = HandoverRings::mesh(&vec![None; workers]);
    let rates = std::thread::scope(|scope| {
        let start = |(worker, handover)| {
            let (ready, done) = (&ready, &done);
            scope.spawn(move || {
                let chosen = match spread {
                    Spread::AtTheirs => Chosen::Of { worker, workers, seed: SEED },
                    Spread::Anywhere => Chosen::All,
                };
                // Binding to a processor needs root. Without it, the figures are noisier.
                let _ = dedicate(Pid::from_raw(0), worker);
                let made = Pipeline::member(case, setup, handover, worker, chosen);
                ready.wait();
                made.and_then(|mut pipeline| run(&mut pipeline, done, workers))
            })
        };
        let threads: Vec<_> = ends.into_iter().enumerate().map(start).collect();
        let died = |_| BenchError::measurement("workers", "a thread panicked");
        threads.into_iter().map(|thread| thread.join().map_err(died)?).collect::<Result<Vec<f64>, _>>()
    })?;
    Ok(rates.iter().sum())
}

/// Runs one worker. Returns the packets per second that leave by its port.
fn run(pipeline: &mut Pipeline, done: &AtomicUsize, workers: usize) -> Result<f64, BenchError> {
    iterate_for(pipeline, WARM_UP);
    let (_, before) = pipeline.passed();
    let start = Instant::now();
    iterate_for(pipeline, COUNTED);
    let (_, after) = pipeline.passed();
    let rate = (after - before) as f64 / start.elapsed().as_secs_f64();
    done.fetch_add(1, Ordering::Relaxed);
    // Continue until all workers have finished counting: they may still hand over packets to this worker.
    while done.load(Ordering::Relaxed) < workers && start.elapsed() < 4 * COUNTED {
        pipeline.forward(PORTION);
    }
    if after == before {
        return Err(BenchError::measurement("workers", "the workers transmitted no packets"));
    }
    Ok(rate)
}

fn iterate_for(pipeline: &mut Pipeline, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        pipeline.forward(PORTION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;

    #[test]
    fn two_workers_forward_wherever_flows_come_in() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        for family in [Family::V4, Family::V6] {
            let case = Case { family, flows: 100 };
            for spread in [Spread::AtTheirs, Spread::Anywhere] {
                assert!(rate(case, Setup::default(), 2, spread).unwrap() > 0.0);
            }
        }
    }
}
