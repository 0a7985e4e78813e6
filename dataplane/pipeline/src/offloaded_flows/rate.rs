//! Rates of entries in the flow cache.

use std::time::Duration;

use millrace_units::Instant;

/// Shortest time over which a rate is measured.
pub(super) const SHORTEST: Duration = Duration::from_millis(200);

/// Measurement of an entry's packets per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    since: Instant,
    packets: u64,
    per_second: Option<u64>,
}

impl Rate {
    /// Returns a rate that is measured from now on.
    pub fn from(now: Instant) -> Self {
        Self { since: now, packets: 0, per_second: None }
    }

    /// Returns the rate over the last measuring period; `None` before the end of the first period.
    pub fn per_second(&self) -> Option<u64> {
        self.per_second
    }

    /// Adds packets that the offload has treated since the last call.
    pub fn treated(&mut self, packets: u64, now: Instant) {
        self.packets += packets;
        if now >= self.since + SHORTEST {
            let per_second = rate(self.packets, now.since(self.since));
            *self = Self { since: now, packets: 0, per_second: Some(per_second) };
        }
    }
}

/// Returns the rate of `packets` packets in `time`, in packets per second.
pub(super) fn rate(packets: u64, time: Duration) -> u64 {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    packets.saturating_mul(1_000_000_000) / nanoseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn rate_of_an_entry_is_measured_over_the_shortest_time_or_longer() {
        let mut rate = Rate::from(at(0));
        rate.treated(50, at(100));
        assert_eq!(rate.per_second(), None);
        rate.treated(50, at(250));
        assert_eq!(rate.per_second(), Some(400));
        rate.treated(0, at(500));
        assert_eq!(rate.per_second(), Some(0));
    }
}
