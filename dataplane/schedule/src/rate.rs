//! Rates of links and shapers, in whole bits per second.

use std::fmt;

use millrace_units::{BitRate, Instant};

/// Nanobits per byte. A rate of one bit per second earns one nanobit per nanosecond.
pub(crate) const NANOBITS_PER_BYTE: u64 = 8_000_000_000;

/// Rate in whole bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rate(pub u64);

impl Rate {
    /// Returns a rate of `megabits` (millions) per second.
    pub const fn from_megabits(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// Returns the time that `bytes` take, in nanoseconds, rounded up; `u64::MAX` at rate 0.
    #[inline]
    pub fn time_for(self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        if self.0 == 0 {
            return u64::MAX;
        }
        match bytes.checked_mul(NANOBITS_PER_BYTE) {
            Some(nanobits) => nanobits.div_ceil(self.0),
            None => {
                let nanobits = u128::from(bytes) * u128::from(NANOBITS_PER_BYTE);
                u64::try_from(nanobits.div_ceil(self.0.into())).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the whole bytes that pass in `nanoseconds`.
    #[inline]
    pub fn bytes_in(self, nanoseconds: u64) -> u64 {
        match nanoseconds.checked_mul(self.0) {
            Some(nanobits) => nanobits / NANOBITS_PER_BYTE,
            None => {
                let nanobits = u128::from(nanoseconds) * u128::from(self.0);
                u64::try_from(nanobits / u128::from(NANOBITS_PER_BYTE)).unwrap_or(u64::MAX)
            }
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&BitRate(self.0 as f64), f)
    }
}

/// Credit that grows with time at a rate and shrinks by the bytes sent. It is in nanobits, so that no
/// fraction is lost.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    rate: Rate,
    /// Maximum of the credit, in nanobits.
    most: i64,
    now: i64,
    last: Instant,
}

/// Maximum of a credit in bytes: 10^9, so that the nanobits stay below 2^63.
pub(crate) const MOST_BYTES: u32 = 1_000_000_000;

impl Credit {
    /// Creates a full credit of `bytes`, up to [`MOST_BYTES`].
    pub fn new(rate: Rate, bytes: u32) -> Self {
        let most = Self::nanobits(bytes.min(MOST_BYTES));
        Self { rate, most, now: most, last: Instant::ZERO }
    }

    /// Creates the credit of a link: `bytes`, plus the earnings of just under a nanosecond. Times are whole
    /// nanoseconds, so even a punctual caller may be almost one nanosecond late, and must not lose these
    /// earnings.
    pub fn for_link(rate: Rate, bytes: u32) -> Self {
        let mut credit = Self::new(rate, bytes);
        credit.add_nanosecond();
        credit
    }

    fn add_nanosecond(&mut self) {
        self.most = self.most.saturating_add_unsigned(self.rate.0 - self.rate.0.min(1));
    }

    /// Changes the rate and the maximum of a link's credit, from now on.
    pub fn set_link(&mut self, rate: Rate, bytes: u32, now: Instant) {
        self.set(rate, bytes, now);
        self.add_nanosecond();
    }

    #[inline]
    fn nanobits(bytes: u32) -> i64 {
        i64::from(bytes) * NANOBITS_PER_BYTE as i64
    }

    /// Changes the rate and the maximum from now on. The credit stays, up to the new maximum.
    pub fn set(&mut self, rate: Rate, bytes: u32, now: Instant) {
        self.earn(now);
        self.rate = rate;
        self.most = Self::nanobits(bytes.min(MOST_BYTES));
        self.now = self.now.min(self.most);
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    #[inline]
    fn earn(&mut self, now: Instant) {
        let elapsed = now.as_nanos().saturating_sub(self.last.as_nanos());
        if elapsed == 0 {
            return;
        }
        self.last = now;
        let room = (self.most as i128 - self.now as i128) as u64;
        let earned = match elapsed.checked_mul(self.rate.0) {
            Some(earned) => earned.min(room),
            None => {
                room.min(u64::try_from(u128::from(elapsed) * u128::from(self.rate.0)).unwrap_or(u64::MAX))
            }
        };
        self.now = self.now.wrapping_add(earned as i64);
    }

    /// Whether the credit covers `bytes`. A packet larger than the maximum counts as covered when the credit
    /// is at its maximum.
    #[inline]
    pub fn covers(&mut self, bytes: u32, now: Instant) -> bool {
        self.earn(now);
        self.now >= self.needed(bytes)
    }

    #[inline]
    fn needed(&self, bytes: u32) -> i64 {
        Self::nanobits(bytes.min(MOST_BYTES)).min(self.most)
    }

    /// Returns the first time at which [`covers`](Self::covers) becomes true, provided that nothing is sent
    /// until then.
    #[inline]
    pub fn covers_at(&self, bytes: u32) -> Instant {
        let missing = self.needed(bytes) as i128 - self.now as i128;
        if missing <= 0 {
            return self.last;
        }
        if self.rate.0 == 0 {
            return Instant::FOREVER;
        }
        let wait = (missing as u64).div_ceil(self.rate.0);
        Instant::from_nanos(self.last.as_nanos().saturating_add(wait))
    }

    /// Subtracts `bytes`; the credit may become negative.
    #[inline]
    pub fn spend(&mut self, bytes: u32, now: Instant) {
        self.earn(now);
        self.now = self.now.saturating_sub(Self::nanobits(bytes.min(MOST_BYTES)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn time_and_bytes_are_inverse_to_each_other(rate in 1_u64..200_000_000_000, bytes in 1_u64..1 << 40) {
            let rate = Rate(rate);
            let time = rate.time_for(bytes);
            let exact = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(rate.0));
            prop_assert_eq!(u128::from(time), exact);
            prop_assert!(rate.bytes_in(time) >= bytes);
            prop_assert!(rate.bytes_in(time - 1) < bytes);
        }

        /// Compares with sums in `u128`: after any steps, the credit equals the exact earnings, limited to
        /// the maximum.
        #[test]
        fn credit_loses_no_nanobit(
            rate in 1_u64..100_000_000_000, most in 0_u32..100_000,
            steps in prop::collection::vec((0_u64..1 << 34, 0_u32..2000), 1..100),
        ) {
            let mut credit = Credit::new(Rate(rate), most);
            let (mut twin, mut now) = (i128::from(most) * 8_000_000_000, 0_u64);
            for (pause, bytes) in steps {
                now += pause;
                twin = (twin + i128::from(pause) * i128::from(rate)).min(i128::from(most) * 8_000_000_000);
                let needed = i128::from(bytes.min(most)) * 8_000_000_000;
                let moment = Instant::from_nanos(now);
                prop_assert_eq!(credit.covers(bytes, moment), twin >= needed);
                let at = credit.covers_at(bytes).as_nanos();
                if twin < needed {
                    prop_assert!(twin + i128::from(at - now) * i128::from(rate) >= needed);
                    prop_assert!(twin + i128::from(at - now - 1) * i128::from(rate) < needed);
                }
                credit.spend(bytes, moment);
                twin -= i128::from(bytes) * 8_000_000_000;
                prop_assert_eq!(i128::from(credit.now), twin);
            }
        }
    }
}
