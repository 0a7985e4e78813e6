//! Token buckets: one in general, and one per kind of ICMP error (RFC 1812, 4.3.2.8; RFC 4443, 2.4(f)).

use millrace_units::Instant;

use crate::IcmpError;

/// How many events are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Events per second in the long run; 0 lets nothing through.
    pub per_second: u32,
    /// Events that may follow each other at once, at least 1 to let any through.
    pub burst: u32,
}

impl Default for RateLimit {
    /// 1,000 per second in bursts of up to 50, as Linux limits ICMP by default.
    fn default() -> Self {
        Self { per_second: 1000, burst: 50 }
    }
}

/// A bucket of tokens that fills with time. It starts full.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    limit: RateLimit,
    /// Credit in nano-tokens, so that no fraction is lost however often it is asked.
    credit: u64,
    last: Instant,
}

const NANO: u64 = 1_000_000_000;

impl TokenBucket {
    /// A full bucket.
    pub fn new(limit: RateLimit) -> Self {
        Self { limit, credit: u64::from(limit.burst) * NANO, last: Instant::ZERO }
    }

    /// Takes a token, if there is one.
    #[inline]
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        self.take_above(0, now)
    }

    /// Takes a token, if `kept` others are left behind it.
    #[inline]
    #[must_use]
    pub fn take_above(&mut self, kept: u32, now: Instant) -> bool {
        let elapsed = now.as_nanos().saturating_sub(self.last.as_nanos());
        self.last = self.last.max(now);
        let gained = elapsed.saturating_mul(self.limit.per_second.into());
        self.credit = self.credit.saturating_add(gained).min(u64::from(self.limit.burst) * NANO);
        let wanted = (u64::from(kept) + 1) * NANO;
        let there = self.credit >= wanted && self.limit.per_second > 0;
        if there {
            self.credit -= NANO;
        }
        there
    }
}

/// One bucket per kind of ICMP error, so that a flood of one kind does not silence the others.
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
    /// The same limit for each kind.
    pub fn new(limit: RateLimit) -> Self {
        Self { buckets: std::array::from_fn(|_| TokenBucket::new(limit)), suppressed: 0 }
    }

    /// Whether an error of this kind may be sent now; if so it is counted against its limit.
    #[inline]
    #[must_use]
    pub fn take(&mut self, error: &IcmpError, now: Instant) -> bool {
        let may = self.buckets.get_mut(error.kind()).is_some_and(|bucket| bucket.take(now));
        self.suppressed += u64::from(!may);
        may
    }

    /// Errors that were not let through.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// IE-09: 10,000 requests per second for 5 s get 1,000 per second and one burst.
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

    #[test]
    fn an_idle_hour_saves_no_more_than_a_burst() {
        let mut bucket = TokenBucket::new(RateLimit { per_second: 1000, burst: 7 });
        let now = Instant::from_millis(3_600_000);
        assert_eq!((0..100).filter(|_| bucket.take(now)).count(), 7);
    }

    #[test]
    fn a_rate_of_zero_lets_nothing_through() {
        let mut bucket = TokenBucket::new(RateLimit { per_second: 0, burst: 5 });
        assert!(!bucket.take(Instant::FOREVER));
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            gaps in proptest::collection::vec(0u64..20_000_000, 1..400), rate in 1u32..2000, burst in 1u32..60,
        ) {
            let mut bucket = TokenBucket::new(RateLimit { per_second: rate, burst });
            let (mut now, mut taken) = (0u64, 0u64);
            for gap in gaps {
                now += gap;
                taken += u64::from(bucket.take(Instant::from_nanos(now)));
                prop_assert!(taken <= u64::from(burst) + now * u64::from(rate) / NANO);
            }
            prop_assert!(taken >= 1);
        }
    }
}
