//! Limit of a principal: never more than a rate of processor time, also on otherwise idle time.

use std::time::Duration;

use millrace_units::{Cycles, Instant};

use super::settings::WHOLE;

/// Limit of one principal: the generic cell rate algorithm, whose cost is known only afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Parts per million of one processor, at least 1.
    parts: u32,
    /// Time until which the rate has paid for all cycles so far.
    paid: Instant,
    /// Time that may be paid ahead: the price of one quantum.
    burst: Duration,
}

impl Limit {
    /// Creates a limit of `parts` per million of a processor of `frequency`, in bursts of a quantum.
    pub fn new(parts: u32, quantum: Cycles, frequency: u64) -> Self {
        Self { parts, paid: Instant::ZERO, burst: price(quantum, parts, frequency) }
    }

    /// Returns the limit with another rate and burst. Cycles beyond the old rate remain to be paid.
    pub fn changed(self, parts: u32, quantum: Cycles, frequency: u64, now: Instant) -> Self {
        let owed = self.paid.since(now).as_nanos() * u128::from(self.parts) / u128::from(parts.max(1));
        let paid = now + Duration::from_nanos(u64::try_from(owed).unwrap_or(u64::MAX));
        Self { paid, ..Self::new(parts, quantum, frequency) }
    }

    /// Charges cycles. Returns the time until which the principal must wait, or `None` within the limit.
    pub fn charge(&mut self, cycles: Cycles, frequency: u64, now: Instant) -> Option<Instant> {
        self.paid = self.paid.max(now) + price(cycles, self.parts, frequency);
        self.wait(now)
    }

    /// Returns the time until which the principal must wait, or `None` within the limit.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        let until = self.paid.since(Instant::ZERO).saturating_sub(self.burst);
        let until = Instant::ZERO + until;
        (until > now).then_some(until)
    }
}

/// Returns the time in which a rate of `parts` per million of a processor earns `cycles`, rounded up to a
/// nanosecond.
fn price(Cycles(cycles): Cycles, parts: u32, frequency: u64) -> Duration {
    let per_second = u128::from(frequency.max(1)) * u128::from(parts.max(1));
    let nanoseconds = (u128::from(cycles) * u128::from(WHOLE) * 1_000_000_000).div_ceil(per_second);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
