//! `cpu`: the CPU scheduler of a worker, and the principals whose packets wait for it.
//!
//! | case | measures |
//! |---|---|
//! | `decision` | time and instructions of the scheduler and its queues, alone |
//! | `plain` | instructions of plain packets at a worker with and without principals |
//! | `shares` | delivered cycles of busy principals, compared with a fluid scheduler |
//! | `isolation` | loss and delay of a plain flow beside a slow plugin |
//! | `busy` | delay of a plain flow of 100,000 packets per second beside busy principals |
//! | `control` | time of control operations beside 100 busy principals |
//! | `gaps` | jitter of a plain flow beside long invocations (Srishti, 2001, table 1) |
//! | `third-level` | shares of the queued stages of a flow, and the longest run of its path |
//! | `process` | calls of an instance in a process of its own, and its restart after a crash |
//! | `burst` | shares of principals beside a burst at a port, and the time of core by port |
//! | `share-by-input` | the same with core as a principal, without and with a part for each port |
//! | `share-by-function` | the same with a part for each input port, forwarding and each output port |
//! | `contexts` | calls that block, of an instance with one context and with several |
//! | `switch` | a reserved flow beside best-effort packets of another worker to the same port (VERA, figure 3.6) |
//! | `user-process` | processor time, memory and disk transfer of user processes, compared with their allocation |
//!
//! The cases `shares`, `isolation`, `gaps` and `third-level` drive a worker with ports in memory under the real
//! clock, in this thread. Other work on its processor delays the thread, and the running principal pays for that
//! time. So use an otherwise idle machine. As root, the benchmark raises the priority of its session.

pub(crate) mod burn;
mod burst;
mod busy;
mod contexts;
mod control;
mod decision;
pub(crate) mod gaps;
mod isolation;
mod object;
mod pair;
mod plain;
pub(crate) mod process;
mod shares;
mod switch;
mod third_level;
mod user;
pub(crate) mod wire;

use std::time::{Duration, Instant as Clock};

use millrace_schedule::cpu::{CpuSchedulerKind, CpuSchedulerSettings};
use millrace_units::Cycles;
use nix::sys::resource::{UsageWho, getrusage};

use crate::interrupt::check;
use crate::levels::cycles_of_a_nanosecond;
use crate::memory::setup::{CAPACITY, Pipeline};
use crate::testbed::process::SessionFirst;
use crate::{BenchError, Measurement, Options, Run};

pub(crate) use decision::run_measured;

/// Name of each case, and its function.
const CASES: [(&str, Run); 15] = [
    ("decision", decision::run),
    ("plain", plain::run),
    ("shares", shares::run),
    ("isolation", isolation::run),
    ("busy", busy::run),
    ("control", control::run),
    ("gaps", gaps::run),
    ("third-level", third_level::run),
    ("process", process::run),
    ("burst", burst::run),
    ("share-by-input", burst::run_by_input),
    ("share-by-function", burst::run_by_function),
    ("contexts", contexts::run),
    ("switch", switch::run),
    ("user-process", user::run),
];
/// Name of each kind of scheduler in the configuration.
const KINDS: [(&str, CpuSchedulerKind); 4] = [
    ("sfq", CpuSchedulerKind::StartTimeFair),
    ("wf2q+", CpuSchedulerKind::WorstCaseFair),
    ("stride", CpuSchedulerKind::Stride),
    ("edf", CpuSchedulerKind::EarliestDeadline),
];
/// Slice of a principal: as long as a slice of a sandboxed call.
const QUANTUM: Duration = Duration::from_micros(50);
/// Time without other work on the worker's processor, after which its principals have made up for the last
/// disturbance; and maximum time to wait for it.
const QUIET: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs all cases, or the requested cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let _first = SessionFirst::begin();
    options.run_cases("cpu", &CASES)
}

fn failed(problem: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("cpu", problem.to_string())
}

/// Returns the cycles per second of the time-stamp counter.
pub(crate) fn frequency() -> Result<u64, BenchError> {
    let cycles = cycles_of_a_nanosecond().ok_or_else(|| failed("the processor has no time-stamp counter"))?;
    Ok((cycles * 1e9) as u64)
}

/// Returns the settings of a scheduler at a processor of `frequency` cycles per second.
pub(crate) fn settings(kind: CpuSchedulerKind, frequency: u64) -> CpuSchedulerSettings {
    CpuSchedulerSettings { kind, quantum: Cycles::in_time(QUANTUM, frequency), frequency, capacity: CAPACITY }
}

/// Returns the number of times that the kernel has taken the processor from this thread for other work.
pub(crate) fn preemptions() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

/// Runs the worker until no other work took its processor for a while, at most for [`PATIENCE`].
fn settle(pipeline: &mut Pipeline) -> Result<(), BenchError> {
    let start = Clock::now();
    loop {
        let before = preemptions();
        drive(pipeline, QUIET)?;
        if preemptions() == before || start.elapsed() > PATIENCE {
            return Ok(());
        }
    }
}

/// Runs the worker under the real clock for `time`.
pub(crate) fn drive(pipeline: &mut Pipeline, time: Duration) -> Result<(), BenchError> {
    let start = Clock::now();
    while start.elapsed() < time {
        check()?;
        (0..16).for_each(|_| pipeline.iterate_now());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_case_is_refused() {
        let mut options = Options {
            binary: std::path::PathBuf::new(),
            workload: None,
            case: Some("none".to_owned()),
            progress: &mut |_| {},
        };
        let error = run(&mut options).unwrap_err();
        assert!(error.to_string().contains("no case matches \"none\""), "{error}");
    }
}
