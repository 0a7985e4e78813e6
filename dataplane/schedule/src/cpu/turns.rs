//! Turns of principals at something that serves one of them at a time, such as a plugin process.

use std::time::Duration;

use millrace_units::PrincipalId;

use super::fair_share::{Discipline, FairShare};

/// Turns by start-time fair queueing (Goyal, Vin and Cheng, ACM SIGCOMM 1996, section 2): the principal whose next
/// turn starts first in virtual time is next. A turn costs the time that it took, divided by the principal's weight.
///
/// While two principals wait, their times divided by their weights differ by no more than one turn of each.
#[derive(Debug)]
pub struct CpuTurns {
    shares: FairShare,
}

impl Default for CpuTurns {
    fn default() -> Self {
        Self { shares: FairShare::new(Discipline::StartTimeFair, 0) }
    }
}

impl CpuTurns {
    /// Lets a principal wait for its turn. It keeps its weight of an earlier turn, unless `weight`, at least 1, is
    /// another one. Does nothing else if it waits already.
    pub fn join(&mut self, PrincipalId(number): PrincipalId, weight: u32) {
        self.shares.reserve(number);
        self.shares.set_weight(number, weight.max(1));
        if !self.shares.contains(number) {
            self.shares.join(number);
        }
    }

    /// Lets a principal wait no longer. Its earlier turns still count while others wait.
    pub fn leave(&mut self, PrincipalId(number): PrincipalId) {
        if self.shares.contains(number) {
            self.shares.leave(number);
        }
    }

    /// Forgets a principal, and its earlier turns.
    pub fn forget(&mut self, id: PrincipalId) {
        self.leave(id);
        self.shares.reserve(id.0);
        self.shares.reset(id.0);
    }

    /// Returns the principal whose turn is next; `None` if none waits.
    #[inline]
    pub fn first(&mut self) -> Option<PrincipalId> {
        self.shares.next().map(PrincipalId)
    }

    /// Charges a turn to a principal, whether it waits or not.
    pub fn charge(&mut self, PrincipalId(number): PrincipalId, took: Duration) {
        self.shares.reserve(number);
        self.shares.charge(number, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Whether a principal waits.
    #[inline]
    pub fn waits(&self, PrincipalId(number): PrincipalId) -> bool {
        self.shares.contains(number)
    }
}
