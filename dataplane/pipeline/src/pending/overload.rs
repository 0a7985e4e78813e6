//! Overload of core: when it begins and ends, and how much a worker sheds meanwhile.

use std::time::Duration;

use millrace_units::Instant;

/// Iterations with a full batch, without [`CALM`] between them, after which a worker is overloaded. So many
/// batches fill no receive ring.
pub(super) const FULL: u32 = 4;
/// Time for which shedding must not suffice before more packets are shed.
const STEP: Duration = Duration::from_millis(10);
/// Time without a full batch after which an overload is over.
pub(super) const CALM: Duration = Duration::from_millis(100);
/// Time for which shedding must suffice before less is shed.
pub(super) const BACK: Duration = Duration::from_secs(1);

/// Overload of core, and how much the worker sheds.
#[derive(Debug, Default)]
pub(super) struct Overload {
    /// Iterations with a full batch since the last calm.
    pub full: u32,
    /// Time of the last full batch.
    last_full: Instant,
    /// Time up to which the overload has been counted.
    counted: Instant,
    /// Packets to shed: 0 for new flows, 1 for all plain packets, then principals of higher and higher weight.
    pub step: u32,
    /// Time of the last step, or of the last change between shedding that suffices and shedding that does not.
    since: Instant,
    sufficed: bool,
}

impl Overload {
    /// Notes an iteration, and whether shedding suffices. `last`: greatest step. Returns the time for which core was
    /// overloaded since the previous iteration.
    pub fn note(&mut self, was_full: bool, suffices: bool, last: u32, now: Instant) -> Duration {
        if !was_full && now.since(self.last_full) >= CALM {
            *self = Self::default();
            return Duration::ZERO;
        }
        if was_full {
            self.last_full = now;
            self.full = self.full.saturating_add(1);
        }
        let is_overloaded = was_full && self.full > FULL;
        let lasted = if is_overloaded { now.since(self.counted) } else { Duration::ZERO };
        self.counted = now;
        if self.full <= FULL || suffices != self.sufficed {
            (self.since, self.sufficed) = (now, suffices);
        }
        let (after, step) = match suffices {
            true => (BACK, self.step.saturating_sub(1)),
            false => (STEP, (self.step + 1).min(last)),
        };
        if now.since(self.since) >= after {
            (self.step, self.since) = (step, now);
        }
        lasted
    }
}
