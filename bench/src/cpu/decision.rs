//! `decision`: cost of the CPU scheduler and its queues, per packet in slices of 32 packets.
//!
//! The loop makes the calls of a worker's slice: it takes 32 packets of the chosen principal, and charges
//! their cycles. Then 32 packets arrive together for this principal. Backlogged principals have 33 waiting
//! packets, so one is left. Waking principals have 32: they sleep without a packet, and wake again. A packet
//! is a number of 8 bytes, as large as a packet reference. The figures include the loop.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::{Duration, Instant as Clock};

use millrace_schedule::FlowNumber;
use millrace_schedule::cpu::{CpuPrincipal, CpuQueueLimits, CpuQueues, CpuScheduler, CpuShare, CpuStage};
use millrace_units::{Cycles, Instant, PrincipalId};
use serde::{Deserialize, Serialize};

use super::{KINDS, failed, settings};
use crate::callgrind::{callgrind_measured, instructions, name_of, part_of};
use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::process::is_installed;
use crate::{BenchError, Bound, Measurement, Options, Subject};

/// Number of packets in a slice.
const BATCH: u32 = 32;
/// Cycles of a packet, and bytes of a packet.
const CYCLES: u64 = 1000;
const LENGTH: u32 = 64;
/// Cycles per second of the virtual processor.
const FREQUENCY: u64 = 3_000_000_000;
/// Number of rounds; the result is their median. Each round has this number of slices.
const ROUNDS: usize = 5001;
const SLICES: usize = 64;
/// Number of slices whose instructions are counted.
const COUNTED: usize = 2048;
/// Numbers of backlogged principals.
const FEW: u32 = 1000;
const MANY: u32 = 100_000;
const UNIT: &str = "ns/packet";
/// Promised maximum: nanoseconds per packet with 1,000 principals.
const LIMIT: f64 = 15.0;
/// Promised maximum: ratio of the time with 100,000 principals to the time with 1,000.
const GROWTH: f64 = 2.0;

/// Principals of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Case {
    /// Index of the scheduler's kind in [`KINDS`].
    kind: usize,
    principals: u32,
    /// Whether principals sleep after each slice, and wake again.
    waking: bool,
}

/// Name of the benchmark whose parts callgrind counts. A part is a [`Case`].
const BENCH: &str = "cpu";
/// Time limit of callgrind.
const PATIENCE: Duration = Duration::from_secs(120);

/// Principals with packets, in the scheduler of a worker.
struct Worker {
    scheduler: CpuScheduler,
    queues: CpuQueues<NonZeroU64>,
    now: Instant,
    taken: Vec<NonZeroU64>,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for (kind, (name, _)) in KINDS.iter().enumerate() {
        let case = |principals, waking| Case { kind, principals, waking };
        let cases = [case(FEW, false), case(MANY, false), case(FEW, true)];
        let [few, many, waking] = cases.map(times);
        let (few, many, waking) = (few?, many?, waking?);
        (options.progress)(&format!(
            "decision, {name}: {:.1} ns with 1,000 principals, {:.1} ns with 100,000; {:.1} ns with 1,000 waking ones",
            median(&few),
            median(&many),
            median(&waking),
        ));
        let names = ["1,000 principals", "100,000 principals", "1,000 waking principals"];
        let names = names.map(|principals| format!("decision, {name}, {principals}"));
        let [few_name, many_name, waking_name] = &names;
        results.push(Measurement::median_of(few_name, &few, UNIT).promising(Bound::AtMost, LIMIT));
        let measured = Measurement::median_of(many_name, &many, UNIT).beside_runs("1,000 principals", &few);
        let measured = measured.peer_about(Subject::Millrace);
        results.push(measured.promising_ratio(Bound::AtMost, GROWTH));
        results.push(Measurement::median_of(waking_name, &waking, UNIT));
        for (name, case) in names.iter().zip(cases) {
            results.extend(counted(name, case, options)?);
        }
    }
    Ok(results)
}

/// Counts the instructions of a case. Returns `None` without valgrind.
fn counted(name: &str, case: Case, options: &Options<'_>) -> Result<Option<Measurement>, BenchError> {
    if !is_installed("valgrind") {
        return Ok(None);
    }
    let count = instructions(&options.binary, &name_of(BENCH, &case), PATIENCE)?;
    let packets = COUNTED as f64 * f64::from(BATCH);
    Ok(count.map(|count| Measurement::of(name, count / packets, "instructions/packet")))
}

/// Runs a part for callgrind. Returns `None` if `name` isn't the name of a part.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let case: Case = part_of(BENCH, name)?;
    Some(Worker::new(case).and_then(|mut worker| {
        worker.warm_up(case.principals)?;
        callgrind_measured(|| worker.slices(COUNTED))
    }))
}

/// Returns the nanoseconds per packet of each round.
fn times(case: Case) -> Result<Vec<f64>, BenchError> {
    let mut worker = Worker::new(case)?;
    worker.warm_up(case.principals)?;
    let round = |_| {
        check()?;
        let start = Clock::now();
        worker.slices(SLICES)?;
        Ok(start.elapsed().as_nanos() as f64 / (SLICES as f64 * f64::from(BATCH)))
    };
    (0..ROUNDS).map(round).collect()
}

impl Worker {
    /// Creates a scheduler with backlogged principals of weights 1 to 100.
    fn new(case: Case) -> Result<Self, BenchError> {
        let (_, kind) = KINDS.get(case.kind).ok_or_else(|| failed("no such kind of scheduler"))?;
        let packets = (case.principals * BATCH * 3).max(1 << 16);
        let limits = CpuQueueLimits { packets, bytes: u32::MAX, flows: case.principals };
        let quantum = Cycles(CYCLES * u64::from(BATCH));
        let mut worker = Self {
            scheduler: CpuScheduler::new(settings(*kind, FREQUENCY)),
            queues: CpuQueues::new(limits, quantum, 1),
            now: Instant::ZERO,
            taken: Vec::with_capacity(BATCH as usize + 1),
        };
        let waiting = if case.waking { BATCH } else { BATCH + 1 };
        for number in 0..case.principals {
            let share = CpuShare::Weight(1 + number % 100);
            let principal = CpuPrincipal { share, limit: None, deadline: None };
            worker.scheduler.add(PrincipalId(number), principal).map_err(failed)?;
            worker.queues.set(PrincipalId(number), u32::MAX);
            worker.taken.resize(waiting as usize, NonZeroU64::MIN);
            worker.arrive(PrincipalId(number))?;
        }
        Ok(worker)
    }

    /// Runs two slices for each principal.
    fn warm_up(&mut self, principals: u32) -> Result<(), BenchError> {
        self.slices(2 * principals as usize)
    }

    #[inline]
    fn slices(&mut self, slices: usize) -> Result<(), BenchError> {
        (0..slices).try_for_each(|_| self.slice())
    }

    /// Runs a slice, and lets as many packets arrive.
    #[inline]
    fn slice(&mut self) -> Result<(), BenchError> {
        let Self { scheduler, queues, taken, .. } = self;
        let payer = scheduler.next(self.now).ok_or_else(|| failed("no principal has work"))?;
        let count = Cell::new(0);
        queues.take(
            payer,
            |_| count.get() < BATCH,
            |packet| {
                count.set(count.get() + 1);
                taken.push(packet);
            },
        );
        let used = Cycles(CYCLES * u64::from(count.get()));
        self.now += used.at(FREQUENCY);
        scheduler.charge(payer, used, self.now);
        queues.charge(payer, used);
        queues.prefetch(scheduler.prefetch_upcoming());
        if !queues.is_backlogged(payer) {
            scheduler.sleep(payer, self.now);
        }
        self.arrive(payer)
    }

    /// Queues the taken packets again.
    #[inline]
    fn arrive(&mut self, payer: PrincipalId) -> Result<(), BenchError> {
        for packet in self.taken.drain(..) {
            let queued =
                self.queues.push(payer, (FlowNumber(payer.0), CpuStage::ONLY), (packet, LENGTH), self.now);
            queued.map_err(|(_, why)| failed(format!("a packet may not wait: {why:?}")))?;
            self.scheduler.wake(payer, self.now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_serves_whole_batches_and_keeps_the_backlog() {
        for (kind, waking) in (0..KINDS.len()).flat_map(|kind| [(kind, false), (kind, true)]) {
            let mut worker = Worker::new(Case { kind, principals: 50, waking }).unwrap();
            let waiting = worker.queues.len();
            worker.slices(500).unwrap();
            assert_eq!(worker.queues.len(), waiting);
            let used =
                (0..50).map(|id| worker.scheduler.account(PrincipalId(id), worker.now).unwrap().used.0);
            assert_eq!(used.sum::<u64>(), 500 * u64::from(BATCH) * CYCLES);
        }
    }

    #[test]
    fn parts_are_found_by_name() {
        let part = Case { kind: 0, principals: 10, waking: true };
        assert!(run_measured(&name_of(BENCH, &part)).is_some_and(|result| result.is_ok()));
        assert!(run_measured("cpu").is_none() && run_measured("memory/[0,10]").is_none());
    }
}
