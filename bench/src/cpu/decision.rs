//! `decision`: cost of the CPU scheduler and its queues, per packet in slices of 32 packets.
//!
//! The loop makes the calls of a worker's slice: it takes the packets of the chosen principal, charges their
//! cycles, and lets the principal sleep. Then as many packets arrive for this principal and wake it. So each
//! principal always has 32 waiting packets, which arrived together. The figures include the loop.

use std::cell::Cell;
use std::time::{Duration, Instant as Clock};

use millrace_schedule::FlowNumber;
use millrace_schedule::cpu::{CpuPrincipal, CpuQueueLimits, CpuQueues, CpuScheduler, CpuShare};
use millrace_units::{Cycles, Instant, PrincipalId};

use super::{KINDS, failed, settings};
use crate::callgrind::{callgrind_measured, instructions, name_of, part_of};
use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::process::is_installed;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of packets in a slice.
const BATCH: u32 = 32;
/// Cycles of a packet, and bytes of a packet.
const CYCLES: u64 = 1000;
const LENGTH: u32 = 64;
/// Cycles per second of the virtual processor.
const FREQUENCY: u64 = 3_000_000_000;
/// Number of rounds; the result is their median. Each round has this number of slices.
const ROUNDS: usize = 501;
const SLICES: usize = 64;
/// Number of slices whose instructions are counted.
const COUNTED: usize = 2048;
/// Numbers of backlogged principals.
const FEW: u32 = 1000;
const MANY: u32 = 100_000;
/// Promised maximum: nanoseconds per packet with 1,000 principals.
const LIMIT: f64 = 15.0;
/// Promised maximum: ratio of the time with 100,000 principals to the time with 1,000.
const GROWTH: f64 = 2.0;

/// Name of the benchmark, and part that callgrind counts: index of the kind, and number of principals.
const BENCH: &str = "cpu";
type Part = (usize, u32);
/// Time limit of callgrind.
const PATIENCE: Duration = Duration::from_secs(120);

/// Principals with packets, in the scheduler of a worker.
struct Worker {
    scheduler: CpuScheduler,
    queues: CpuQueues<u64>,
    now: Instant,
    taken: Vec<u64>,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let valgrind = is_installed("valgrind");
    if !valgrind {
        (options.progress)("valgrind is not installed: instructions of decisions are not counted");
    }
    let mut results = Vec::new();
    for (place, (kind, _)) in KINDS.iter().enumerate() {
        let [few, many] = [times(place, FEW)?, times(place, MANY)?];
        let (near, far) = (median(&few), median(&many));
        (options.progress)(&format!(
            "decision, {kind}: {near:.1} ns with 1,000 principals, {far:.1} ns with 100,000"
        ));
        let names =
            [format!("decision, {kind}, 1,000 principals"), format!("decision, {kind}, 100,000 principals")];
        results.push(Measurement::median_of(&names[0], &few, "ns/packet").promising(Bound::AtMost, LIMIT));
        let many =
            Measurement::median_of(&names[1], &many, "ns/packet").beside_runs("1,000 principals", &few);
        results.push(many.promising_ratio(Bound::AtMost, GROWTH));
        for (name, principals) in names.iter().zip([FEW, MANY]).filter(|_| valgrind) {
            let part: Part = (place, principals);
            let count = instructions(&options.binary, &name_of(BENCH, &part), PATIENCE)?;
            let packets = COUNTED as f64 * f64::from(BATCH);
            results.extend(count.map(|count| Measurement::of(name, count / packets, "instructions/packet")));
        }
    }
    Ok(results)
}

/// Runs a part for callgrind. Returns `None` if `name` isn't the name of a part.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (kind, principals): Part = part_of(BENCH, name)?;
    Some(Worker::new(kind, principals).and_then(|mut worker| {
        worker.warm_up(principals)?;
        callgrind_measured(|| worker.slices(COUNTED))
    }))
}

/// Returns the nanoseconds per packet of each round.
fn times(kind: usize, principals: u32) -> Result<Vec<f64>, BenchError> {
    let mut worker = Worker::new(kind, principals)?;
    worker.warm_up(principals)?;
    let round = |_| {
        check()?;
        let start = Clock::now();
        worker.slices(SLICES)?;
        Ok(start.elapsed().as_nanos() as f64 / (SLICES as f64 * f64::from(BATCH)))
    };
    (0..ROUNDS).map(round).collect()
}

impl Worker {
    /// Creates a scheduler of the kind at an index of [`KINDS`], with backlogged principals of weights 1 to 100.
    fn new(kind: usize, principals: u32) -> Result<Self, BenchError> {
        let (_, kind) = KINDS.get(kind).ok_or_else(|| failed("no such kind of scheduler"))?;
        let packets = (principals * BATCH * 2).max(1 << 16);
        let limits = CpuQueueLimits { packets, bytes: u32::MAX, flows: principals };
        let quantum = Cycles(CYCLES * u64::from(BATCH));
        let mut worker = Self {
            scheduler: CpuScheduler::new(settings(*kind, FREQUENCY)),
            queues: CpuQueues::new(limits, quantum, 1),
            now: Instant::ZERO,
            taken: Vec::with_capacity(BATCH as usize),
        };
        for number in 0..principals {
            let share = CpuShare::Weight(1 + number % 100);
            let principal = CpuPrincipal { share, limit: None, deadline: None };
            worker.scheduler.add(PrincipalId(number), principal).map_err(failed)?;
            worker.queues.set(PrincipalId(number), u32::MAX);
            worker.taken.extend(0..u64::from(BATCH));
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
        if !queues.is_backlogged(payer) {
            scheduler.sleep(payer);
        }
        self.arrive(payer)
    }

    /// Queues the taken packets again.
    #[inline]
    fn arrive(&mut self, payer: PrincipalId) -> Result<(), BenchError> {
        for packet in self.taken.drain(..) {
            let queued = self.queues.push(payer, FlowNumber(payer.0), (packet, LENGTH), self.now);
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
        for kind in 0..KINDS.len() {
            let mut worker = Worker::new(kind, 50).unwrap();
            worker.slices(500).unwrap();
            assert_eq!(worker.queues.len(), 50 * BATCH as usize);
            let used = (0..50).map(|id| worker.scheduler.account(PrincipalId(id)).unwrap().used.0);
            assert_eq!(used.sum::<u64>(), 500 * u64::from(BATCH) * CYCLES);
        }
    }

    #[test]
    fn parts_are_found_by_name() {
        assert!(run_measured(&name_of(BENCH, &(0, 10))).is_some_and(|result| result.is_ok()));
        assert!(run_measured("cpu").is_none() && run_measured("memory/[0,10]").is_none());
    }
}
