//! Time of eBPF variants, which principals pay for.
//!
//! The worker learns of offloaded packets once in [`INTERVAL`]. It charges their time evenly over the next interval,
//! for each [`STEP`] on its own, in parts of a quantum at most: so a principal within its share or limit is never a
//! quantum ahead of it, however long the worker slept.

use std::time::Duration;

use millrace_plugin::DriverCharge;
use millrace_schedule::cpu::CpuSchedulerSettings;
use millrace_units::{Cycles, Instant, PrincipalId};

/// Interval at which the packets of every offloaded flow are accounted.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);
/// Time that is charged at once.
const STEP: Duration = Duration::from_millis(1);
/// Number of steps in an interval.
const STEPS: u32 = 250;
/// Maximum number of parts of a step's charge.
const PARTS: u64 = 64;

/// Time that a principal still owes for eBPF variants.
#[derive(Clone, Copy, Debug)]
struct Owed {
    payer: PrincipalId,
    left: Duration,
    /// Time to be charged in a step.
    pace: Duration,
}

/// Time of eBPF variants that no principal has been charged for.
#[derive(Debug)]
pub(crate) struct DriverTime {
    /// Principals in ascending order.
    owed: Vec<Owed>,
    /// End of the latest step.
    charged: Instant,
}

impl Default for DriverTime {
    fn default() -> Self {
        Self { owed: Vec::with_capacity(1 << 8), charged: Instant::ZERO }
    }
}

impl DriverTime {
    /// Whether somebody owes something, and a step is over.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.owed.is_empty() && now >= self.charged + STEP
    }

    /// Adds the time of packets that the worker has learned of at `now`. Call [`charge`](Self::charge) before.
    pub fn add(&mut self, charge: DriverCharge, now: Instant) {
        if self.owed.is_empty() {
            self.charged = now;
        }
        let DriverCharge { payer, time } = charge;
        let place = self.owed.partition_point(|owed| owed.payer < payer);
        if self.owed.get(place).is_none_or(|owed| owed.payer != payer) {
            self.owed.insert(place, Owed { payer, left: Duration::ZERO, pace: Duration::ZERO });
        }
        if let Some(owed) = self.owed.get_mut(place) {
            owed.left += time;
            // Rounded up, so that all is paid in time.
            owed.pace = owed.left / STEPS + Duration::from_nanos(1);
        }
    }

    /// Gives `charge` what each principal owes for each step until `now`, part by part, with the end of its part of the
    /// step.
    pub fn charge(
        &mut self,
        settings: &CpuSchedulerSettings,
        now: Instant,
        mut charge: impl FnMut(PrincipalId, Cycles, Instant),
    ) {
        while self.is_due(now) && self.owed.iter().any(|owed| !owed.left.is_zero()) {
            for owed in &mut self.owed {
                let time = owed.left.min(owed.pace);
                owed.left -= time;
                let cycles = time.as_nanos() * u128::from(settings.frequency) / 1_000_000_000;
                let cycles = u64::try_from(cycles).unwrap_or(u64::MAX);
                let parts = cycles.div_ceil(settings.quantum.0.max(1)).clamp(1, PARTS);
                for part in 1..=parts {
                    let end = self.charged + STEP * part as u32 / parts as u32;
                    charge(owed.payer, Cycles((cycles + part - 1) / parts), end);
                }
            }
            self.charged += STEP;
        }
    }

    /// Returns the principals that were charged last or owe something.
    pub fn payers(&self) -> impl Iterator<Item = PrincipalId> {
        self.owed.iter().map(|owed| owed.payer)
    }

    /// Forgets the principals that owe nothing any more.
    pub fn forget_paid(&mut self) {
        self.owed.retain(|owed| !owed.left.is_zero());
    }

    /// Forgets what a removed principal owes.
    pub fn forget(&mut self, payer: PrincipalId) {
        self.owed.retain(|owed| owed.payer != payer);
    }
}

#[cfg(test)]
mod tests {
    use millrace_schedule::cpu::CpuSchedulerKind;

    use super::*;

    const SETTINGS: CpuSchedulerSettings = CpuSchedulerSettings {
        kind: CpuSchedulerKind::StartTimeFair,
        quantum: Cycles(50_000),
        frequency: 1_000_000_000,
        capacity: 500_000,
    };

    fn now(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(1) + Duration::from_micros(micros)
    }

    fn learned(payer: u32, micros: u64) -> DriverCharge {
        DriverCharge { payer: PrincipalId(payer), time: Duration::from_micros(micros) }
    }

    /// Charges until a time, in iterations of this length, in microseconds. Adds what each of three principals pays to
    /// `paid`, in nanoseconds. Returns the most that one paid at once, in microseconds.
    fn pay(driver: &mut DriverTime, paid: &mut [u64; 3], from: u64, until: u64, iteration: u64) -> u64 {
        let mut most = 0;
        for micros in (from..=until).step_by(iteration as usize) {
            driver.charge(&SETTINGS, now(micros), |payer, used, end| {
                assert!(end <= now(micros));
                paid[payer.0 as usize] += used.0;
                most = most.max(used.0 / 1000);
            });
            driver.forget_paid();
        }
        most
    }

    #[test]
    fn time_is_charged_evenly_and_once_however_long_the_worker_sleeps() {
        for iteration in [10, 700, 100_000] {
            let (mut driver, mut paid) = (DriverTime::default(), [0; 3]);
            driver.add(learned(1, 25_000), now(0));
            driver.add(learned(2, 5), now(0));
            let most = pay(&mut driver, &mut paid, iteration, 100_000, iteration);
            assert!(paid[1].abs_diff(10_000_000) < 200_000 && most <= 50, "{iteration}: {paid:?}");
            // More before the first is paid: the rest of both is spread over a further interval.
            driver.add(learned(1, 10_000), now(100_000));
            pay(&mut driver, &mut paid, 100_000 + iteration, 225_000 + iteration, iteration);
            pay(&mut driver, &mut paid, 225_000 + 2 * iteration, 600_000, iteration);
            assert_eq!((paid, driver.owed.is_empty()), ([0, 35_000_000, 5_000], true), "{iteration}");
        }
    }

    #[test]
    fn removed_principal_owes_nothing() {
        let mut driver = DriverTime::default();
        driver.add(learned(2, 50), now(0));
        assert!(!driver.is_due(now(999)) && driver.is_due(now(1000)));
        driver.forget(PrincipalId(2));
        assert!(!driver.is_due(now(1000)));
    }
}
