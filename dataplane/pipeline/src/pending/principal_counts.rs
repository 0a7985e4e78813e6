//! Counters of a principal at a worker.

use std::time::Duration;

use millrace_units::Cycles;

/// Counters of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrincipalCounts {
    /// Processor time used.
    pub used: Cycles,
    /// Time during which the principal had work, at the worker with the longest.
    pub backlogged: Duration,
    /// Time during which the principal had work, summed over workers.
    pub backlogged_sum: Duration,
    /// Number of times that the principal began to have work.
    pub periods: u64,
    /// Times that the limit stopped the principal.
    pub throttled: u64,
    /// Packets that got the processor: counted once for each queue that they left, and for each call in line.
    pub packets: u64,
    /// Packets that wait for the processor, in queues or in calls, and packets that its instances hold.
    pub waiting: u32,
    /// Bytes of these packets.
    pub waiting_bytes: u64,
    /// Bytes under way to other workers.
    pub handover_bytes: u64,
    /// Bytes of flow state.
    pub state_bytes: u64,
    /// Bytes of memory of sandboxed instances.
    pub plugin_bytes: u64,
    /// Times that flow state or memory of an instance was refused because of the principal's memory.
    pub memory_refusals: u64,
    /// Packets lost.
    pub drops: PrincipalDrops,
    /// Slices of a principal with a deadline.
    pub deadlines: DeadlineCounts,
    /// Longest time from the arrival of a slice's first packet until the worker has done the work of its call: to the
    /// end of the call, or its hand-over to the process that runs it. Zero without a deadline.
    pub longest_wait: Duration,
}

/// Slices of a principal with a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeadlineCounts {
    /// Slices that began within the deadline of their first packet.
    pub met: u64,
    /// Slices that began later.
    pub missed: u64,
}

/// Packets that a principal lost at a worker, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrincipalDrops {
    /// Packets refused because too many waited for the processor.
    pub queue: u64,
    /// Packets refused because the principal had no memory left.
    pub memory: u64,
    /// Packets shed because core was overloaded. The count of core includes the packets of all principals.
    pub core_ceiling: u64,
    /// Packets for which the rings to another worker had no room.
    pub handover: u64,
}

impl PrincipalDrops {
    /// Returns the number of packets lost.
    pub fn total(&self) -> u64 {
        self.queue + self.memory + self.core_ceiling + self.handover
    }
}

/// Use of the processor between two times.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PrincipalUse {
    /// Cycles used.
    pub used: u64,
    /// Seconds with work, at the worker with the longest time.
    pub wanted: f64,
    /// Seconds with work, summed over workers.
    pub wanted_sum: f64,
    /// Number of times that work began, at all workers.
    pub periods: u64,
}

impl PrincipalCounts {
    /// Returns what was used since earlier counters. A principal that was removed and added again starts from
    /// zero.
    pub fn since(&self, earlier: &Self) -> PrincipalUse {
        let continues = self.used >= earlier.used && self.backlogged_sum >= earlier.backlogged_sum;
        let before = if continues { *earlier } else { Self::default() };
        PrincipalUse {
            used: self.used.0 - before.used.0,
            wanted: self.backlogged.saturating_sub(before.backlogged).as_secs_f64(),
            wanted_sum: (self.backlogged_sum - before.backlogged_sum).as_secs_f64(),
            periods: self.periods.saturating_sub(before.periods),
        }
    }
}
