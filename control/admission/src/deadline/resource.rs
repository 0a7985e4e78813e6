//! Resource that packets pass, and the exact arithmetic of its shares.
//!
//! A share is a whole number of its resource's unit, as the scheduler of the resource takes it. So the sum of
//! shares is exact, and a released share leaves no rest.

use std::fmt;
use std::time::Duration;

use millrace_units::BitRate;
use serde::{Deserialize, Serialize};

const NANOSECONDS: u128 = 1_000_000_000;
/// Parts per million of a whole processor.
const WHOLE: u64 = 1_000_000;
/// Least rate of a curve, in bits per second.
const LEAST_RATE: u64 = 1_000;
/// Shortest and longest period of a constant-bandwidth server, in nanoseconds.
const PERIODS: (u64, u64) = (100_000, 10_000_000_000);

/// Unit of a resource's shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Unit {
    /// Parts per million of one processor. Work is in cycles.
    Processor {
        /// Cycles per second, at least 1.
        frequency: u64,
    },
    /// Bits per second on the wire. Work is in bits on the wire.
    Link,
}

impl Unit {
    /// Returns the ticks per second. A tick does one unit of work if the packet has [`whole`](Self::whole).
    fn frequency(self) -> u128 {
        match self {
            Self::Processor { frequency } => u128::from(frequency.max(1)),
            Self::Link => NANOSECONDS,
        }
    }

    /// Returns the share at which a tick does one unit of work.
    fn whole(self) -> u128 {
        match self {
            Self::Processor { .. } => u128::from(WHOLE),
            Self::Link => NANOSECONDS,
        }
    }

    /// Returns the shortest and the longest deadline of a packet, in nanoseconds.
    pub(super) fn deadlines(self) -> (u64, u64) {
        match self {
            Self::Processor { .. } => PERIODS,
            Self::Link => (1, u64::MAX),
        }
    }

    /// Returns the time in nanoseconds, rounded up, in which a share above 0 does the work.
    pub fn time_of(self, work: u64, share: u64) -> u64 {
        let ticks = (u128::from(work) * self.whole()).div_ceil(u128::from(share.max(1)));
        u64::try_from((ticks * NANOSECONDS).div_ceil(self.frequency())).unwrap_or(u64::MAX)
    }

    /// Returns the least share that does the work within `time` nanoseconds; `None` if no share does.
    pub fn share_for(self, work: u64, time: u64) -> Option<u64> {
        let ticks = u128::from(time) * self.frequency() / NANOSECONDS;
        let share = (u128::from(work) * self.whole()).checked_div(ticks)?;
        let rounded = share + u128::from(share * ticks < u128::from(work) * self.whole());
        u64::try_from(rounded).ok()
    }

    /// Returns the work that a share does in `time` nanoseconds, rounded down.
    pub(super) fn work_in(self, time: u64, share: u64) -> u64 {
        let ticks = u128::from(time) * self.frequency() / NANOSECONDS;
        u64::try_from((ticks * u128::from(share)) / self.whole()).unwrap_or(u64::MAX)
    }

    /// Returns the least share that a scheduler takes.
    pub(super) fn least_share(self) -> u64 {
        match self {
            Self::Processor { .. } => 1,
            Self::Link => LEAST_RATE,
        }
    }

    /// Returns the share, not rounded, that does the work within `time` nanoseconds, at least 1.
    pub(super) fn exact_share(self, work: u64, time: u64) -> f64 {
        let work = work as f64 * self.whole() as f64 * NANOSECONDS as f64;
        work / (self.frequency() as f64 * time.max(1) as f64)
    }

    /// Formats a share: percent of a processor, or a bit rate.
    pub fn show(self, share: u64) -> String {
        match self {
            Self::Processor { .. } => format!("{} %", share as f64 * 100.0 / WHOLE as f64),
            Self::Link => BitRate(share as f64).to_string(),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Processor { .. } => "processor",
            Self::Link => "link",
        })
    }
}

/// Resource that packets pass, such as the processor of a worker or the link of a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Unit of its shares.
    pub unit: Unit,
    /// Share that may be promised in all.
    pub capacity: u64,
    /// Longest time that a packet waits for work that nothing pre-empts: a quantum of a processor with the
    /// longest burst of core work, or the longest packet of a link.
    pub blocking: Duration,
    /// Weight of the capacity to keep free, at least 1, for
    /// [`Criterion::Balance`](super::Criterion::Balance).
    pub weight: u32,
}

impl Resource {
    /// Returns a processor of `frequency` cycles per second, of which principals get `capacity` parts per
    /// million.
    pub fn processor(frequency: u64, capacity: u32, blocking: Duration) -> Self {
        let unit = Unit::Processor { frequency: frequency.max(1) };
        Self { unit, capacity: capacity.into(), blocking, weight: 1 }
    }

    /// Returns a link that sends `rate` bits per second, of which `capacity` may be promised. Its longest
    /// packet takes `longest` bytes on the wire.
    pub fn link(rate: u64, capacity: u64, longest: u32) -> Self {
        let blocking = Duration::from_nanos(Unit::Link.time_of(u64::from(longest) * 8, rate));
        Self { unit: Unit::Link, capacity, blocking, weight: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units() -> impl Strategy<Value = Unit> {
        prop_oneof![(1_u64..1 << 34).prop_map(|frequency| Unit::Processor { frequency }), Just(Unit::Link)]
    }

    proptest! {
        #[test]
        fn least_share_meets_the_time_and_a_smaller_one_does_not(
            unit in units(), work in 1_u64..1 << 40, time in 1_u64..1 << 45,
        ) {
            let Some(share) = unit.share_for(work, time) else { return Ok(()) };
            prop_assert!(unit.time_of(work, share) <= time);
            prop_assert!(share == 1 || unit.time_of(work, share - 1) > time);
            let exact = unit.exact_share(work, time);
            prop_assert!(share as f64 >= exact * (1.0 - 1e-9) - 1e-9, "{share} {exact}");
        }

        #[test]
        fn no_number_overflows(unit in units(), work: u64, share: u64, time: u64) {
            unit.time_of(work, share);
            unit.share_for(work, time);
        }
    }

    #[test]
    fn shares_have_the_units_of_their_schedulers() {
        let processor = Unit::Processor { frequency: 3_000_000_000 };
        assert_eq!(processor.share_for(300_000, 1_000_000), Some(100_000));
        assert_eq!(processor.time_of(300_000, 100_000), 1_000_000);
        assert_eq!(Unit::Link.share_for(12_304, 1_000_000), Some(12_304_000));
        assert_eq!(processor.share_for(1, 0), None);
        assert_eq!(
            (processor.show(12_500), Unit::Link.show(1_500_000)),
            ("1.25 %".into(), "1.50 Mb/s".into())
        );
        assert_eq!(Resource::link(1_000_000_000, 1, 1538).blocking, Duration::from_nanos(12_304));
    }
}
