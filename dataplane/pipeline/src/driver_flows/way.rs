//! How many of the packets that went up from a port a worker is done with.
//!
//! The driver counts what it sends up, the port what it reads: the difference is under way, or was lost on the way. What
//! was lost the port asks the kernel for now and then. A loss is counted as done only when all that went up before it
//! has been read, or flows would be let down too early.

use std::time::Duration;

use millrace_port::Progress;
use millrace_units::Instant;

/// How often the kernel is asked for losses while there are any.
const INQUIRY: Duration = Duration::from_millis(5);
/// More frames than wait on the way up from a port.
const RING: u64 = 8192;
/// Losses in so many inquiries in a row are an overload; so many without one end it.
const STREAK: u8 = 2;

/// The way up from a port.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// What had gone up before the port was opened.
    base: u64,
    /// Losses that lie behind all that has been read.
    lost: u64,
    /// Losses that were told, as many as the port counts, and how much had been read then; they are among `lost` later.
    told: Option<(u64, u64)>,
    /// Losses that the port counts and that are among `lost`.
    counted: u64,
    next_inquiry: Instant,
    /// What had gone up, been read and been lost at the inquiry before.
    seen: (u64, u64, u64),
    lossy: u8,
    lossless: u8,
    overloaded: bool,
}

impl Way {
    /// The way of a port that was opened when so many packets had gone up.
    pub fn from(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// The packets that are done with, if all that was read is. `up`: those that went up; `losses` asks how
    /// many frames were lost so far.
    pub fn done(&mut self, progress: Progress, up: u64, now: Instant, losses: impl FnOnce() -> u64) -> u64 {
        let done = |way: &Self| way.base.wrapping_add(progress.read).wrapping_add(way.lost);
        if done(self) == up && !self.overloaded {
            return up;
        }
        if let Some((losses, read)) = self.told
            && (progress.drained || progress.read.wrapping_sub(read) > RING)
        {
            self.lost += losses - self.counted;
            (self.counted, self.told) = (losses, None);
        }
        if now >= self.next_inquiry {
            self.next_inquiry = now + INQUIRY;
            self.inquire(progress, (up, done(self)), losses());
        }
        done(self)
    }

    fn inquire(&mut self, progress: Progress, (up, done): (u64, u64), losses: u64) {
        let more = losses > self.seen.2;
        (self.lossy, self.lossless) =
            if more { (self.lossy.saturating_add(1), 0) } else { (0, self.lossless.saturating_add(1)) };
        if self.lossy >= STREAK {
            self.overloaded = true;
        } else if self.lossless >= STREAK {
            self.overloaded = false;
        }
        if self.told.is_none() && losses > self.counted {
            self.told = Some((losses, progress.read));
        }
        let now = (up, progress.read, losses);
        // What is missing although nothing moves was lost where nobody counts.
        if progress.drained && self.told.is_none() && self.seen == now {
            // Or was read although nobody counted it: then this is less than nothing.
            self.lost = self.lost.wrapping_add(up.wrapping_sub(done));
        }
        self.seen = now;
    }

    /// Whether more packets go up than are read.
    pub fn is_overloaded(&self) -> bool {
        self.overloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn read(read: u64, drained: bool) -> Progress {
        Progress { read, drained, ..Progress::default() }
    }

    #[test]
    fn what_was_read_is_done() {
        let mut way = Way::default();
        let never = || unreachable!("nothing is missing");
        assert_eq!(way.done(read(7, true), 7, at(10), never), 7);
        let far = u64::from(u32::MAX) + 3;
        assert_eq!(way.done(read(far, true), far, at(10), never), far);
        assert_eq!(way.done(read(8, false), 11, at(10), || 0), 8, "three are under way");
    }

    #[test]
    fn a_loss_is_done_when_what_went_up_before_it_is_read() {
        let mut way = Way::default();
        assert_eq!(way.done(read(10, false), 30, at(10), || 5), 10);
        assert_eq!(way.done(read(20, false), 30, at(11), || unreachable!("asked a moment ago")), 20);
        assert_eq!(way.done(read(25, true), 30, at(12), || unreachable!()), 30);
        assert_eq!(way.done(read(100, false), 105, at(20), || unreachable!("nothing is missing")), 105);
        assert_eq!(way.done(read(100, false), 20_105, at(30), || 10_000), 105);
        assert_eq!(way.done(read(100 + RING, false), 20_105, at(31), || unreachable!()), 105 + RING);
        let all = 101 + RING + 10_000;
        assert_eq!(way.done(read(101 + RING, false), 20_105, at(32), || unreachable!()), all);
    }

    #[test]
    fn what_nobody_counts_is_given_up_when_nothing_moves() {
        let mut way = Way::from(100);
        let mut done = |millis, up| way.done(read(7, true), up, at(millis), || 0);
        assert_eq!([done(10, 110), done(12, 110), done(20, 110)], [107, 107, 110]);
        assert_eq!([done(30, 111), done(32, 111)], [110, 110], "it moves");
        assert_eq!([done(40, 109), done(50, 109)], [110, 109], "more was read than was counted");
    }

    #[test]
    fn losses_again_and_again_are_an_overload() {
        let mut way = Way::default();
        let mut inquire = |millis, lost| {
            let _ = way.done(read(0, false), u64::MAX, at(millis), || lost);
            way.is_overloaded()
        };
        let seen = [(10, 1), (20, 1), (30, 2), (40, 3), (50, 3), (60, 3)].map(|(at, lost)| inquire(at, lost));
        assert_eq!(seen, [false, false, false, true, true, false]);
    }
}
