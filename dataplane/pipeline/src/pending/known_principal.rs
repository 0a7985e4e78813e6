//! Principal of a worker, with its counters and its slices.

use std::time::Duration;

use millrace_schedule::FlowNumber;
use millrace_schedule::cpu::CpuPrincipal;
use millrace_units::{Cycles, Instant, PrincipalId};

/// Slice of a principal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub payer: PrincipalId,
    pub used: Cycles,
    /// Binding at whose stage packets have left the queue, and their number.
    pub stage: Option<u64>,
    pub packets: u64,
    /// Whether the principal has a call to resume.
    pub is_unfinished: bool,
    /// Earliest time at which one of the packets began to wait whose calls have ended.
    pub since: Option<Instant>,
}

/// Principal of a worker.
#[derive(Debug)]
pub(super) struct Known {
    pub id: PrincipalId,
    /// Settings; with several workers, the scheduler has a part of their share.
    pub settings: CpuPrincipal,
    pub packets: u64,
    /// Slices that began within the deadline, and after it.
    pub met: u64,
    pub missed: u64,
    /// Longest time for which a packet has waited for the processor.
    pub longest_wait: Duration,
    /// Packets shed because core was overloaded.
    pub shed: u64,
    /// Packets that wait at stages whose calls can run in line.
    pub held_back: u32,
    /// Flow of its last slice.
    pub flow: FlowNumber,
    /// Cycles of a call that is still running. Its flow and its stage are charged at its end.
    owed: Cycles,
    /// Binding at whose stage the packets of this call waited, and their number.
    begun: Option<(u64, u64)>,
}

/// Returns the number of a flow. Flows of several principals may have the same hash.
#[inline]
pub(super) fn flow_number(hash: u32, PrincipalId(payer): PrincipalId) -> FlowNumber {
    FlowNumber(hash ^ payer.wrapping_mul(0x9E37_79B1))
}

/// Cycles of packets that waited at a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageCost {
    /// Key of the stage's binding, as a number.
    pub binding: u64,
    pub used: Cycles,
    pub packets: u64,
}

impl Known {
    /// Adds a slice. Returns the cycles of its call so far and, at the end of the call, the cost of its packets.
    pub fn note(&mut self, slice: &Slice, now: Instant) -> (Cycles, Option<StageCost>) {
        self.packets += slice.packets;
        if let Some(since) = slice.since.filter(|_| self.settings.deadline.is_some()) {
            self.longest_wait = self.longest_wait.max(now.since(since));
        }
        self.begun = slice.stage.map(|binding| (binding, slice.packets)).or(self.begun);
        let used = std::mem::take(&mut self.owed) + slice.used;
        if slice.is_unfinished {
            self.owed = used;
            return (used, None);
        }
        let cost = self.begun.take().map(|(binding, packets)| StageCost { binding, used, packets });
        (used, cost)
    }

    pub fn new(id: PrincipalId, settings: CpuPrincipal) -> Self {
        Self {
            id,
            settings,
            packets: 0,
            met: 0,
            missed: 0,
            longest_wait: Duration::ZERO,
            shed: 0,
            held_back: 0,
            flow: FlowNumber(0),
            owed: Cycles(0),
            begun: None,
        }
    }
}
