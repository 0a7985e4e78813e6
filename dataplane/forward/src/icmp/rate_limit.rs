//! Limit of ICMP errors: one token bucket per kind of error (RFC 1812, 4.3.2.8; RFC 4443, 2.4(f)).

use millrace_units::{Instant, TokenBucket, TokenRate};

use crate::IcmpError;

/// Rate limit with a burst, for events such as ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Events per second in the long run; 0 allows no event.
    pub per_second: u32,
    /// Maximum number of events at once; 0 allows no event.
    pub burst: u32,
}

impl Default for RateLimit {
    /// Returns 1,000 per second in bursts of up to 50, as Linux limits ICMP by default.
    fn default() -> Self {
        Self { per_second: 1000, burst: 50 }
    }
}

impl RateLimit {
    /// Returns a full token bucket with this rate and burst.
    pub(crate) fn bucket(self) -> TokenBucket {
        TokenBucket::new(TokenRate::of_events(self.per_second, self.burst))
    }
}

/// Rate limiter of ICMP errors. Each kind has a token bucket of its own, so that a flood of one kind does not
/// suppress the other kinds.
#[derive(Clone, Debug)]
pub struct ErrorLimiter {
    buckets: [TokenBucket; IcmpError::KINDS],
    suppressed: u64,
}

impl Default for ErrorLimiter {
    fn default() -> Self {
        Self::new(RateLimit::default())
    }
}

impl ErrorLimiter {
    /// Creates a limiter with the same limit for each kind.
    pub fn new(limit: RateLimit) -> Self {
        Self { buckets: [limit.bucket(); IcmpError::KINDS], suppressed: 0 }
    }

    /// Returns whether an error of this kind may be sent now. If so, takes a token for it.
    #[inline]
    #[must_use]
    pub fn take(&mut self, error: &IcmpError, now: Instant) -> bool {
        let may = self.buckets.get_mut(error.kind()).is_some_and(|bucket| bucket.take(now));
        self.suppressed += u64::from(!may);
        may
    }

    /// Returns the number of errors that the limiter has suppressed.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case IE-09: a flood of 10,000 errors a second for 5 seconds is limited to 1,000 a second and one
    /// burst.
    #[test]
    fn a_flood_is_answered_at_the_limit() {
        let mut limiter = ErrorLimiter::default();
        let sent = (0..50_000)
            .filter(|n| limiter.take(&IcmpError::TtlExpired, Instant::from_nanos(n * 100_000)))
            .count();
        assert!((5_000..=5_050).contains(&sent), "{sent}");
        assert_eq!(limiter.suppressed(), 50_000 - sent as u64);
    }

    #[test]
    fn one_kind_does_not_silence_another() {
        let mut limiter = ErrorLimiter::new(RateLimit { per_second: 1, burst: 1 });
        assert!(limiter.take(&IcmpError::TtlExpired, Instant::ZERO));
        assert!(!limiter.take(&IcmpError::TtlExpired, Instant::ZERO));
        assert!(limiter.take(&IcmpError::TooBig { mtu: 1500 }, Instant::ZERO));
    }
}
