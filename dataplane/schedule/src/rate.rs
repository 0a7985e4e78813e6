//! Rates of links and shapers, in whole bits per second.

use std::fmt;

use millrace_units::{BitRate, Instant};

/// Nanoseconds in a second, times bits in a byte: what one byte costs at one bit per second, in nanobits.
pub(crate) const NANOBITS_PER_BYTE: u64 = 8_000_000_000;

/// Bits per second, exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rate(pub u64);

impl Rate {
    /// As many kilobits (thousands) per second.
    pub const fn from_kilobits(kilobits: u64) -> Self {
        Self(kilobits.saturating_mul(1000))
    }

    /// As many megabits (millions) per second.
    pub const fn from_megabits(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// Nanoseconds that `bytes` take, rounded up; the end of time at rate 0.
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

    /// Whole bytes that pass in `nanoseconds`.
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

/// Credit that grows with time at a rate and shrinks by what is sent, in nanobits, so that no fraction is ever lost.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    rate: Rate,
    /// What it grows to at most.
    most: i64,
    now: i64,
    last: Instant,
}

/// Bytes that a credit can be counted in: a thousand million, in nanobits below 2^63.
pub(crate) const MOST_BYTES: u32 = 1_000_000_000;

impl Credit {
    /// Full credit of `bytes`, up to [`MOST_BYTES`].
    pub fn new(rate: Rate, bytes: u32) -> Self {
        let most = Self::nanobits(bytes.min(MOST_BYTES));
        Self { rate, most, now: most, last: Instant::ZERO }
    }

    /// The credit of a link, up to `bytes`, and the rest of a nanosecond: so long a punctual caller may come late, because
    /// moments are whole nanoseconds, and must not lose what it comes late by.
    pub fn for_link(rate: Rate, bytes: u32) -> Self {
        let mut credit = Self::new(rate, bytes);
        credit.add_nanosecond();
        credit
    }

    fn add_nanosecond(&mut self) {
        self.most = self.most.saturating_add_unsigned(self.rate.0 - self.rate.0.min(1));
    }

    /// Another rate and bound of a link, from now on.
    pub fn set_link(&mut self, rate: Rate, bytes: u32, now: Instant) {
        self.set(rate, bytes, now);
        self.add_nanosecond();
    }

    #[inline]
    fn nanobits(bytes: u32) -> i64 {
        i64::from(bytes) * NANOBITS_PER_BYTE as i64
    }

    /// Another rate and bound from now on. What was earned so far stays, as far as the bound allows.
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

    /// Whether there is credit for `bytes`; when the bound is lower, whether it is reached.
    #[inline]
    pub fn covers(&mut self, bytes: u32, now: Instant) -> bool {
        self.earn(now);
        self.now >= self.needed(bytes)
    }

    #[inline]
    fn needed(&self, bytes: u32) -> i64 {
        Self::nanobits(bytes.min(MOST_BYTES)).min(self.most)
    }

    /// The first moment at which [`covers`](Self::covers) holds, if nothing is sent until then.
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

    /// Takes `bytes` away; the credit may become negative.
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
            prop_assert!(rate.bytes_in(time) >= bytes);
            prop_assert!(rate.bytes_in(time - 1) < bytes);
        }

        /// Sums in u128 beside it: after any steps, the credit is what the bound and exact earnings leave.
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
