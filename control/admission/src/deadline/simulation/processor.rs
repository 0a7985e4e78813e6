//! Processor: the CPU scheduler of a worker, the packets that wait for it, and other work without an end.

use std::collections::VecDeque;

use millrace_schedule::cpu::{CpuPrincipal, CpuScheduler, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};
use millrace_units::{Cycles, Instant, PrincipalId};

use super::flows::{Flow, PROCESSOR};
use super::{FREQUENCY, QUANTUM, SimulationError};

/// Packet that waits for the processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Arrival in nanoseconds.
    pub arrival: u64,
    /// Cycles left.
    pub cycles: u64,
}

/// Slice that runs.
#[derive(Clone, Copy, Debug)]
struct Slice {
    principal: PrincipalId,
    cycles: u64,
    end: u64,
}

pub(super) struct Processor {
    scheduler: CpuScheduler,
    /// Packets of each flow. The number after them is that of the other work.
    queues: Vec<VecDeque<Job>>,
    slice: Option<Slice>,
}

impl Processor {
    pub fn new(flows: &[Flow]) -> Result<Self, SimulationError> {
        let mut scheduler = CpuScheduler::new(CpuSchedulerSettings {
            kind: CpuSchedulerKind::StartTimeFair,
            quantum: Cycles(QUANTUM),
            frequency: FREQUENCY,
            capacity: 1_000_000,
        });
        for (number, flow) in (0..).zip(flows) {
            if let Some(principal) = flow.grant.principal(PROCESSOR) {
                scheduler.add(PrincipalId(number), principal)?;
            }
        }
        let other = PrincipalId(flows.len() as u32);
        scheduler.add(other, CpuPrincipal { share: CpuShare::Weight(1), limit: None, deadline: None })?;
        scheduler.wake(other, Instant::ZERO);
        let mut processor = Self { scheduler, queues: vec![VecDeque::new(); flows.len()], slice: None };
        processor.start(0);
        Ok(processor)
    }

    pub fn arrive(&mut self, flow: usize, job: Job, now: u64) {
        let Some(queue) = self.queues.get_mut(flow) else { return };
        queue.push_back(job);
        self.scheduler.wake(PrincipalId(flow as u32), Instant::from_nanos(now));
    }

    /// Returns the end of the slice, in nanoseconds.
    pub fn end(&self) -> u64 {
        self.slice.map_or(u64::MAX, |slice| slice.end)
    }

    /// Ends the slice. Returns the flow and the arrival of a packet whose work is done.
    pub fn finish(&mut self, now: u64) -> Option<(usize, u64)> {
        let (Slice { principal, cycles, .. }, now) = (self.slice.take()?, Instant::from_nanos(now));
        self.scheduler.charge(principal, Cycles(cycles), now);
        let queue = self.queues.get_mut(principal.index())?;
        let job = queue.front_mut()?;
        job.cycles -= cycles;
        if job.cycles > 0 {
            return None;
        }
        let arrival = job.arrival;
        queue.pop_front();
        if queue.is_empty() {
            self.scheduler.sleep(principal, now);
        }
        Some((principal.index(), arrival))
    }

    /// Begins a slice. Returns whether it is a quantum of other work.
    pub fn start(&mut self, now: u64) -> bool {
        let Some(principal) = self.scheduler.next(Instant::from_nanos(now)) else { return false };
        let job = self.queues.get(principal.index()).and_then(VecDeque::front);
        let cycles = job.map_or(QUANTUM, |job| job.cycles.min(QUANTUM));
        self.slice = Some(Slice { principal, cycles, end: now + cycles });
        job.is_none()
    }
}
