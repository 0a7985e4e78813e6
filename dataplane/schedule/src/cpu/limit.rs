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

    /// Charges cycles. Returns the time until which the principal must wait, or `None` within the limit.
    pub fn charge(&mut self, cycles: Cycles, frequency: u64, now: Instant) -> Option<Instant> {
        self.paid = self.paid.max(now) + price(cycles, self.parts, frequency);
        let until = self.paid.since(Instant::ZERO).saturating_sub(self.burst);
        let until = Instant::ZERO + until;
        (until > now).then_some(until)
    }
}

/// Returns the time in which a rate of `parts` per million of a processor earns `cycles`.
fn price(cycles: Cycles, parts: u32, frequency: u64) -> Duration {
    let nanoseconds = cycles.at(frequency).as_nanos() * u128::from(WHOLE) / u128::from(parts.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
