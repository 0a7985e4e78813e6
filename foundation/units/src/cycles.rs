//! Processor time, in cycles.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Processor time in cycles of the time-stamp counter. Arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cycles(pub u64);

impl Cycles {
    /// Returns the cycles of `time` at `frequency` cycles per second.
    #[inline]
    pub fn in_time(time: Duration, frequency: u64) -> Self {
        let cycles = time.as_nanos() * u128::from(frequency) / 1_000_000_000;
        Self(u64::try_from(cycles).unwrap_or(u64::MAX))
    }

    /// Returns the time that the cycles take at `frequency` cycles per second, at least 1, rounded up to a
    /// nanosecond.
    #[inline]
    pub fn at(self, frequency: u64) -> Duration {
        let nanoseconds = (u128::from(self.0) * 1_000_000_000).div_ceil(u128::from(frequency.max(1)));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

impl Add for Cycles {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Cycles {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Cycles {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_convert_to_time_and_back() {
        let millisecond = Duration::from_millis(1);
        assert_eq!(Cycles::in_time(millisecond, 3_000_000_000), Cycles(3_000_000));
        assert_eq!(Cycles(3_000_000).at(3_000_000_000), millisecond);
        assert_eq!(Cycles(1).at(3_000_000_000), Duration::from_nanos(1), "rounded up");
        assert_eq!(Cycles(u64::MAX) + Cycles(1), Cycles(u64::MAX));
        assert_eq!(Cycles(1) - Cycles(2), Cycles(0));
    }
}
