//! Tests of the CPU scheduler under virtual time.

mod deadlines;
mod debts;
mod disciplines;
mod flow_queues;
mod fluid;
mod fluid_arrivals;
mod limits;
mod parts;
mod scale;
mod settings;
mod stage_queues;
mod turns;
mod upcoming;

use std::time::Duration;

use millrace_units::{Cycles, Instant, PrincipalId};

use super::{CpuPrincipal, CpuScheduler, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};

/// Cycles per second of the simulated processor: one cycle is a nanosecond.
const FREQUENCY: u64 = 1_000_000_000;
const QUANTUM: u64 = 100_000;
/// The kinds that divide the processor by shares.
const FAIR_KINDS: [CpuSchedulerKind; 3] =
    [CpuSchedulerKind::StartTimeFair, CpuSchedulerKind::WorstCaseFair, CpuSchedulerKind::Stride];

fn scheduler(kind: CpuSchedulerKind, capacity: u32) -> CpuScheduler {
    let quantum = Cycles(QUANTUM);
    CpuScheduler::new(CpuSchedulerSettings { kind, quantum, frequency: FREQUENCY, capacity })
}

fn weight(weight: u32) -> CpuPrincipal {
    CpuPrincipal { share: CpuShare::Weight(weight), limit: None, deadline: None }
}

fn absolute(percent: u32) -> CpuPrincipal {
    CpuPrincipal { share: CpuShare::Absolute(percent * 10_000), limit: None, deadline: None }
}

fn used(scheduler: &CpuScheduler, principal: u32) -> u64 {
    scheduler.account(PrincipalId(principal), Instant::ZERO).map_or(0, |account| account.used.0)
}

/// Processor that serves always backlogged principals. Core takes `core` parts per million of the time.
struct Processor {
    scheduler: CpuScheduler,
    now: Instant,
    core: u32,
}

impl Processor {
    fn new(scheduler: CpuScheduler) -> Self {
        Self { scheduler, now: Instant::ZERO, core: 0 }
    }

    /// Serves for `time`, in slices of `slice(principal)` cycles, with the core work before each slice. Idles
    /// until the next event when no principal may run.
    fn serve(&mut self, time: Duration, mut slice: impl FnMut(u32) -> u64) {
        let end = self.now + time;
        while self.now < end {
            let Some(principal) = self.scheduler.next(self.now) else {
                let next = self.scheduler.next_event().unwrap_or(end);
                self.now = next.max(self.now + Duration::from_nanos(1)).min(end);
                continue;
            };
            let cycles = slice(principal.0);
            let core = cycles * u64::from(self.core) / u64::from(1_000_000 - self.core);
            self.now += Duration::from_nanos(core + cycles);
            self.scheduler.charge(principal, Cycles(cycles), self.now);
        }
    }
}
