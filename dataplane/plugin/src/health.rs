//! What becomes of instances that fail: they are restarted, after longer and longer pauses, and put into quarantine when
//! they keep failing.

use std::time::Duration;

use millrace_units::Instant;

use crate::fault::FaultKind;
use crate::limits::Limits;

/// The pause after the first fault; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// After so many faults it doubles no more.
const MOST_DOUBLINGS: u32 = 12;

/// The state of an instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Health {
    /// It works.
    #[default]
    Well,
    /// It failed, and is restarted at this time.
    Pausing(Instant),
    /// It failed too often: only control restarts it.
    Quarantined,
}

impl Health {
    /// Its name in what is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Pausing(_) => "pausing",
            Self::Quarantined => "quarantined",
        }
    }
}

/// An instance's faults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    pub health: Health,
    /// Faults that count.
    recent: u32,
    /// Those of them that were calls beyond their budget.
    overruns: u32,
    /// When the last one was.
    last: Option<Instant>,
}

impl Record {
    /// Notes a fault.
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

    /// Slices that a call may take, by those of its limits: each overrun that counts halves them, so that all calls together of an
    /// instance that never ends take little more than the first of them. A call always has one.
    #[inline]
    pub fn patience(&self, slices: u32) -> u32 {
        slices.checked_shr(self.overruns).unwrap_or(0).max(1)
    }

    /// Puts it into quarantine, whatever it did since it is here.
    pub fn quarantine(&mut self) {
        self.health = Health::Quarantined;
    }

    /// Whether the pause is over; it is then well again, and has to be restarted.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = matches!(self.health, Health::Pausing(until) if until <= now);
        if due {
            self.health = Health::Well;
        }
        due
    }
}

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
    fn each_overrun_halves_the_patience_until_it_is_forgotten() {
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
