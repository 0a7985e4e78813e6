//! Time of eBPF variants, which principals pay for.
//!
//! The worker learns of offloaded packets once in [`INTERVAL`]. It charges their time evenly over the next interval. So a principal that stays within its share is never far ahead of it.

use std::time::Duration;

use millrace_plugin::{DriverCharge, InLineCharge};
use millrace_units::{Cycles, Instant, PrincipalId};

/// Interval at which the packets of every offloaded flow are accounted.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

/// Time that a principal still owes for eBPF variants.
#[derive(Clone, Copy, Debug)]
struct Owed {
    payer: PrincipalId,
    left: Duration,
    /// Time to be charged in an [`INTERVAL`].
    pace: Duration,
    packets: u64,
}

/// Time of eBPF variants that no principal has been charged for.
#[derive(Debug, Default)]
pub(crate) struct DriverTime {
    owed: Vec<Owed>,
    /// Time of the latest charges.
    charged: Instant,
}

impl DriverTime {
    /// Whether nobody owes anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Adds the time of packets that the worker has learned of at `now`.
    pub fn add(&mut self, charge: DriverCharge, now: Instant) {
        let DriverCharge { payer, time, packets } = charge;
        if self.owed.is_empty() {
            self.charged = now;
        }
        match self.owed.iter_mut().find(|owed| owed.payer == payer) {
            Some(owed) => {
                owed.left += time;
                owed.pace = owed.left;
                owed.packets += packets;
            }
            None => self.owed.push(Owed { payer, left: time, pace: time, packets }),
        }
    }

    /// Gives `charge` what each principal owes for the time until `now`. `frequency`: cycles per second.
    pub fn charge(&mut self, frequency: u64, now: Instant, mut charge: impl FnMut(InLineCharge)) {
        let passed = now.since(self.charged).min(INTERVAL);
        self.charged = now;
        self.owed.retain_mut(|owed| {
            let part = owed.pace.as_nanos() * passed.as_nanos() / INTERVAL.as_nanos();
            let time = owed.left.min(Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)));
            owed.left -= time;
            let cycles = time.as_nanos() * u128::from(frequency) / 1_000_000_000;
            let used = Cycles(u64::try_from(cycles).unwrap_or(u64::MAX));
            charge(InLineCharge { payer: owed.payer, used, packets: std::mem::take(&mut owed.packets) });
            !owed.left.is_zero()
        });
    }

    /// Forgets what a removed principal owes.
    pub fn forget(&mut self, payer: PrincipalId) {
        self.owed.retain(|owed| owed.payer != payer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_charged_evenly_and_once() {
        let mut driver = DriverTime::default();
        let now = |millis: u64| Instant::from_millis(1000 + millis);
        let learned = |payer, millis| DriverCharge {
            payer: PrincipalId(payer),
            time: Duration::from_millis(millis),
            packets: 7,
        };
        driver.add(learned(1, 25), now(0));
        driver.add(learned(2, 50), now(0));
        let mut charged = [(0, 0); 3];
        let mut pay = |driver: &mut DriverTime, millis| {
            driver.charge(1_000_000_000, now(millis), |charge| {
                let (cycles, packets) = &mut charged[charge.payer.0 as usize];
                (*cycles, *packets) = (*cycles + charge.used.0, *packets + charge.packets);
            });
            charged
        };
        assert_eq!(pay(&mut driver, 0)[1], (0, 7));
        assert_eq!(pay(&mut driver, 100), [(0, 0), (10_000_000, 7), (20_000_000, 7)]);
        // More before the first is paid: the rest of both is spread over a further interval.
        driver.add(learned(1, 10), now(100));
        assert_eq!(pay(&mut driver, 225)[1].0, 22_500_000);
        assert_eq!(pay(&mut driver, 1000), [(0, 0), (35_000_000, 14), (50_000_000, 7)]);
        assert!(driver.is_empty());
        driver.add(learned(2, 50), now(2000));
        driver.forget(PrincipalId(2));
        assert!(driver.is_empty());
    }
}
