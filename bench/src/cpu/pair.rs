//! Two workers of a router, each with a thread and a processor. One owns the port by which all packets leave.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use millrace_pipeline::HandoverRings;
use nix::unistd::Pid;

use super::wire::{Seen, Wire};
use super::{drive, failed};
use crate::BenchError;
use crate::interrupt::check;
use crate::memory::setup::Pipeline;
use crate::testbed::process::dedicate;

/// Worker that owns the port, and the other worker. Each runs on the processor of its number.
pub(super) const OWNER: usize = 0;
pub(super) const OTHER: usize = 1;
pub(super) const WORKERS: usize = 2;
/// Maximum time in which the observed packets of a run leave the router after its end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Result of a run.
pub(super) struct Run {
    /// Packets of the flow 0 of the owner's wire.
    pub seen: Seen,
    /// Packets that have left by the port, and the time of their counting.
    pub passed: u64,
    pub time: Duration,
}

/// Runs both workers for `time`. `owner` and `other` create them, each on its thread; the owner comes with the wire
/// of its ports, whose arrivals begin when both workers are ready.
pub(super) fn run_pair(
    owner: impl FnOnce(HandoverRings) -> Result<(Pipeline, Wire), BenchError> + Send,
    other: impl FnOnce(HandoverRings) -> Result<Pipeline, BenchError> + Send,
    time: Duration,
) -> Result<Run, BenchError> {
    let mut ends = HandoverRings::mesh(&[None, None]).into_iter();
    let (Some(first), Some(second)) = (ends.next(), ends.next()) else {
        return Err(failed("no hand-over between two workers"));
    };
    let (ready, done) = (&Barrier::new(WORKERS), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let beside = scope.spawn(move || {
            let _ = dedicate(Pid::from_raw(0), OTHER);
            let made = other(second);
            ready.wait();
            let mut pipeline = made?;
            while !done.load(Ordering::Relaxed) {
                (0..16).for_each(|_| pipeline.iterate_now());
            }
            Ok(())
        });
        let observed = scope.spawn(move || {
            let _ = dedicate(Pid::from_raw(0), OWNER);
            let made = owner(first);
            ready.wait();
            let run = made.and_then(|(mut pipeline, wire)| forward(&mut pipeline, &wire, time));
            done.store(true, Ordering::Relaxed);
            run
        });
        let died = |_| failed("a worker panicked");
        let run = observed.join().map_err(died)?;
        beside.join().map_err(died)?.and(run)
    })
}

/// Runs the worker that owns the port for `time`, and until the observed packets have left.
fn forward(pipeline: &mut Pipeline, wire: &Wire, time: Duration) -> Result<Run, BenchError> {
    wire.start();
    let (start, (_, before)) = (Clock::now(), pipeline.passed());
    drive(pipeline, time)?;
    let (time, (_, after)) = (start.elapsed(), pipeline.passed());
    wire.end_arrivals();
    let ended = Clock::now();
    loop {
        (0..64).for_each(|_| pipeline.iterate_now());
        let seen = wire.seen(0);
        if seen.left == seen.sent || ended.elapsed() > PATIENCE {
            return Ok(Run { seen, passed: after.saturating_sub(before), time });
        }
        check()?;
    }
}
