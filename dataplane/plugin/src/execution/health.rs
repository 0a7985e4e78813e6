//! Restart policy of failed instances: they restart after growing pauses, and repeated faults lead to
//! quarantine.

use std::time::Duration;

use millrace_units::Instant;

use crate::declaration::limits::Limits;
use crate::fault::FaultKind;

/// Pause after the first fault; each further fault doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of doublings of the pause.
const MOST_DOUBLINGS: u32 = 12;

/// Health of an instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Health {
    /// The instance works.
    #[default]
    Well,
    /// The instance failed; the worker restarts it at this time.
    Pausing(Instant),
    /// The instance is in quarantine after repeated faults or a crash: no packets until a user releases it.
    Quarantined,
}

impl Health {
    /// Returns the health at a time: an instance is well again once its pause is over.
    pub fn at(self, now: Instant) -> Self {
        match self {
            Self::Pausing(until) if until <= now => Self::Well,
            other => other,
        }
    }

    /// Returns the name of the health for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Pausing(_) => "pausing",
            Self::Quarantined => "quarantined",
        }
    }
}

/// Health of a context, and fault history of its instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    pub health: Health,
    /// Number of recent faults. The count restarts at 1 if a fault window has passed since the previous
    /// fault.
    recent: u32,
    /// Number of recent faults that were overruns: calls beyond their time limit.
    overruns: u32,
    /// Time of the latest fault.
    last: Option<Instant>,
}

impl Record {
    /// Records a fault.
    pub fn fail(&mut self, kind: &str, limits: &Limits, now: Instant) {
        if self.last.is_some_and(|last| last + limits.fault_window <= now) {
            (self.recent, self.overruns) = (0, 0);
        }
        self.recent += 1;
        self.overruns += u32::from(kind == FaultKind::Overrun.name());
        self.last = Some(now);
        self.health = if self.recent >= limits.faults {
            Health::Quarantined
        } else {
            Health::Pausing(now + FIRST_PAUSE * 2u32.pow((self.recent - 1).min(MOST_DOUBLINGS)))
        };
    }

    /// Takes over the fault history of an instance from `latest`, the record of its context that was called
    /// last. If that context is in quarantine, all are.
    pub fn follow(&mut self, latest: &Self) {
        let Self { health, recent, overruns, last } = *latest;
        (self.recent, self.overruns, self.last) = (recent, overruns, last);
        if health == Health::Quarantined {
            self.quarantine();
        }
    }

    /// Returns the number of slices that a call may take; at least 1. `slices` is the number that the call
    /// limits allow, and each recent overrun halves it. So if an instance never returns, its later calls
    /// together take about as much time as its first call.
    #[inline]
    pub fn patience(&self, slices: u32) -> u32 {
        slices.checked_shr(self.overruns).unwrap_or(0).max(1)
    }

    /// Puts the instance into quarantine, whatever its number of faults.
    pub fn quarantine(&mut self) {
        self.health = Health::Quarantined;
    }

    /// Whether the instance's pause has just ended. If so, sets the health to well, and the caller must
    /// restart the instance.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let before = self.health;
        self.health = before.at(now);
        self.health != before
    }
}

/// Health and faults of the contexts of a replaced instance, with which a failed upgrade restores it.
#[derive(Clone, Debug, Default)]
pub struct FaultHistory(pub(crate) Vec<Record>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_get_longer_until_quarantine() {
        let mut record = Record::default();
        let mut now = Instant::ZERO;
        let limits = Limits { faults: 20, ..Limits::default() };
        for fault in 1..limits.faults {
            record.fail("trap", &limits, now);
            let Health::Pausing(until) = record.health else { panic!("{record:?}") };
            assert_eq!(until.since(now), FIRST_PAUSE * 2u32.pow((fault - 1).min(12)));
            assert!(!record.is_due(now));
            now = until;
            assert!(record.is_due(now));
        }
        record.fail("trap", &limits, now);
        assert_eq!(record.health, Health::Quarantined);
        assert!(!record.is_due(now + limits.fault_window));
    }

    #[test]
    fn each_overrun_halves_the_patience_until_it_expires() {
        let (mut record, limits) = (Record::default(), Limits { faults: 100, ..Limits::default() });
        let overrun = FaultKind::Overrun.name();
        let mut patience = |kind, now| {
            record.fail(kind, &limits, now);
            record.patience(20)
        };
        let seen = ["trap", overrun, overrun, "trap", overrun].map(|kind| patience(kind, Instant::ZERO));
        assert_eq!(seen, [20, 10, 5, 5, 2]);
        assert_eq!((0..40).map(|_| patience(overrun, Instant::ZERO)).min(), Some(1));
        assert_eq!(patience("trap", Instant::ZERO + limits.fault_window), 20);
    }

    #[test]
    fn faults_are_forgotten() {
        let mut record = Record::default();
        let mut now = Instant::ZERO;
        let limits = Limits::default();
        for _ in 0..100 {
            record.fail("trap", &limits, now);
            now += limits.fault_window;
            assert!(record.is_due(now));
        }
    }
}
