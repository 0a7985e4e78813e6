//! Principal of a worker, with its counters.

use std::time::Duration;

use millrace_schedule::FlowNumber;
use millrace_schedule::cpu::CpuPrincipal;
use millrace_units::{Cycles, PrincipalId};

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
    pub owed: Cycles,
}

impl Known {
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
        }
    }
}
