//! Times of a call that another process runs, and its time limit.
//!
//! The limit counts the processor time that the process consumes, so a busy system makes no call too long. The worker
//! reads the clock of the process, by a system call, only for a call that lasts long, and then seldom.
//!
//! A process that consumes hardly any time waits for something else, perhaps for ever. So a call also ends once the
//! process has had a while, and less than 1 % of a processor on average since then.

use std::time::Duration;

use millrace_units::Instant;

/// Time of a call until the worker reads the clock of its process for the first time. Shorter calls cost no reading.
const FIRST_READING: Duration = Duration::from_millis(10);
/// Smallest time between two readings.
const NEXT_READING: Duration = Duration::from_millis(1);
/// Time between two looks of the worker that counts at most. If the worker stood still for longer, perhaps the process did,
/// too.
const LONGEST_LOOK: Duration = Duration::from_millis(20);
/// Least time for which a process may consume no processor time.
const QUIET: Duration = Duration::from_secs(1);
/// Least part of a processor that a process must get or use after this time: one in so many.
const LEAST_PART: u32 = 100;

/// Times of a call that another process runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub began: Instant,
    /// Begin of the request that the process carries out now.
    pub asked: Instant,
    /// Number of requests that the process has carried out.
    answers: u64,
    /// Time of the latest look at which the call had not ended.
    pub seen: Instant,
    /// Time of the request in which the worker looked for its end.
    waited: Duration,
    /// Value of `waited` at which the worker reads the clock of the process again.
    due: Duration,
    /// First reading of the clock during the request.
    first: Option<Duration>,
}

/// Time limit that a call of another process has exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exceeded {
    /// The process consumed this time.
    Used(Duration),
    /// The process consumed hardly any time: `used`, in `waited`.
    Quiet { waited: Duration, used: Duration },
    /// The process did not answer for this time; its consumption is unknown.
    Silent(Duration),
}

impl Awaited {
    /// Returns the times of a call that begins now.
    pub fn since(now: Instant) -> Self {
        let (waited, due, first) = (Duration::ZERO, FIRST_READING, None);
        Self { began: now, asked: now, answers: 0, seen: now, waited, due, first }
    }

    /// Notes a look at the call. `answers`: number of requests that the process has carried out.
    pub fn look(&mut self, answers: u64, now: Instant) {
        match self.answers == answers {
            true => self.waited += now.since(self.seen).min(LONGEST_LOOK),
            false => *self = Self { began: self.began, answers, ..Self::since(now) },
        }
        self.seen = now;
    }

    /// Returns the time limit that the request has exceeded, if any. `most`: processor time that it may consume. `times`
    /// returns the processor time that the process has consumed so far, if it is known, and how many times longer than
    /// usual it may take.
    pub fn exceeded(
        &mut self,
        most: Duration,
        times: impl FnOnce() -> (Option<Duration>, u32),
    ) -> Option<Exceeded> {
        if self.waited < self.due {
            return None;
        }
        let (waited, (consumed, patience)) = (self.waited, times());
        let patient = most.saturating_mul(patience);
        let Some(consumed) = consumed else {
            return (waited >= patient).then_some(Exceeded::Silent(patient));
        };
        let used = consumed.saturating_sub(*self.first.get_or_insert(consumed));
        let longest = patient.max(QUIET).saturating_add(used.saturating_mul(LEAST_PART));
        if used >= most {
            return Some(Exceeded::Used(used));
        }
        if waited >= longest {
            return Some(Exceeded::Quiet { waited, used });
        }
        // Until then, neither limit can be exceeded.
        self.due = waited + (most - used).min(longest - waited).max(NEXT_READING);
        None
    }
}

impl Exceeded {
    /// Returns whether the process consumed too much time. Otherwise it gave no answer.
    pub fn is_overrun(self) -> bool {
        matches!(self, Self::Used(_))
    }
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Used(used) => write!(
                f,
                "its process gave no answer to a call, for which it used {} ms of processor time",
                used.as_millis()
            ),
            Self::Quiet { waited, used } => write!(
                f,
                "its process gave no answer to a call for {} ms, and used only {} ms of processor time",
                waited.as_millis(),
                used.as_millis()
            ),
            Self::Silent(waited) => {
                write!(f, "its process gave no answer to a call for {} ms", waited.as_millis())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(100);

    /// Looks once in a millisecond at a call whose process consumes a part of each, in per mille. Returns the time of
    /// the limit, the limit, and the number of readings of the clock.
    fn limit(part: u64, patience: u32) -> (u64, Exceeded, u32) {
        let (mut awaited, mut readings) = (Awaited::since(Instant::ZERO), 0);
        for millis in 1.. {
            awaited.look(0, Instant::from_millis(millis));
            let exceeded = awaited.exceeded(MOST, || {
                readings += 1;
                (Some(Duration::from_micros(millis * part)), patience)
            });
            if let Some(exceeded) = exceeded {
                return (millis, exceeded, readings);
            }
        }
        unreachable!()
    }

    #[test]
    fn limit_is_in_consumed_time_however_long_that_takes() {
        for (part, patience) in [(1000, 1), (500, 1), (100, 20), (20, 1)] {
            let (millis, exceeded, readings) = limit(part, patience);
            let least = 10 + MOST.as_millis() as u64 * 1000 / part;
            assert!((least..least + 2).contains(&millis), "{part}: {millis}");
            assert!(
                matches!(exceeded, Exceeded::Used(used) if used >= MOST && used < 2 * MOST),
                "{exceeded:?}"
            );
            // The fewer, the more the process gets.
            assert!(readings <= 12 * 1000 / part as u32, "{part}: {readings}");
        }
        assert_eq!(limit(1000, 1).2, 2);
    }

    #[test]
    fn process_that_consumes_next_to_nothing_ends_after_a_second() {
        let (millis, exceeded, readings) = limit(0, 1);
        assert_eq!((millis, readings), (1000, 11));
        assert_eq!(exceeded, Exceeded::Quiet { waited: Duration::from_secs(1), used: Duration::ZERO });
        // With less than 1 % of a processor, it ends, too.
        let (millis, exceeded, _) = limit(5, 1);
        assert!((1900..2100).contains(&millis) && !exceeded.is_overrun(), "{millis} {exceeded:?}");
        assert_eq!(limit(0, 20).0, 2000);
    }

    #[test]
    fn time_in_which_the_worker_stood_still_does_not_count() {
        let mut awaited = Awaited::since(Instant::ZERO);
        awaited.look(0, Instant::from_millis(5000));
        assert_eq!(awaited.exceeded(MOST, || (Some(Duration::ZERO), 1)), None);
        assert_eq!(awaited.exceeded(MOST, || (None, 1)), None);
    }

    #[test]
    fn each_request_has_a_limit_of_its_own() {
        let mut awaited = Awaited::since(Instant::ZERO);
        for millis in 1..10_000 {
            awaited.look(millis / 90, Instant::from_millis(millis));
            assert_eq!(awaited.exceeded(MOST, || (Some(Duration::from_millis(millis)), 1)), None);
        }
    }

    #[test]
    fn real_time_counts_if_the_consumed_time_is_unknown() {
        let mut awaited = Awaited::since(Instant::ZERO);
        let exceeded = (1..).find_map(|millis| {
            awaited.look(0, Instant::from_millis(millis));
            Some(millis).zip(awaited.exceeded(MOST, || (None, 3)))
        });
        assert_eq!(exceeded, Some((300, Exceeded::Silent(3 * MOST))));
    }
}
