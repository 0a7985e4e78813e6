//! Point in time. Callers pass it in, so that the same code runs under the real clock and under a virtual
//! clock.

use std::fmt;
use std::ops::{Add, AddAssign};
use std::time::Duration;

/// Point in time: nanoseconds since an origin that is fixed while a router runs (that of CLOCK_MONOTONIC, or
/// a virtual zero).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// Origin of time.
    pub const ZERO: Self = Self(0);
    /// Latest instant, later than any time that occurs.
    pub const FOREVER: Self = Self(u64::MAX);

    /// Returns the instant `nanoseconds` after the origin.
    #[inline]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the instant `milliseconds` after the origin.
    #[inline]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// Returns the nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this instant; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_moments_never_is_negative() {
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(9));
        assert_eq!(late.since(early), Duration::from_nanos(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn addition_stays_at_the_end_of_time() {
        assert_eq!(Instant::FOREVER + Duration::from_secs(1), Instant::FOREVER);
        assert_eq!(Instant::ZERO + Duration::MAX, Instant::FOREVER);
    }
}
