//! How many of the packets that went up from a port its worker has read.
//!
//! The driver counts what it sends up, the port what it reads: the difference is under way, or was lost on the way. What
//! was lost the port asks the kernel for now and then. A loss is counted as read only when all that went up before it
//! has been read, or flows would be let down too early.
//!
//! A device of several receive queues is read queue by queue, so that many packets read are not the first ones that went up. There a
//! [`Goal`] is set now and then: what had gone up by all queues, and by each.

use std::time::Duration;

use millrace_port::{Arrivals, Port};
use millrace_units::{Instant, PortId};

use super::DriverCache;

/// How often the kernel is asked for losses while there are any.
const INQUIRY: Duration = Duration::from_millis(5);
/// More frames than wait on the way up by a queue.
const RING: u64 = 8192;
/// Losses in so many inquiries in a row are an overload; so many without one end it.
const STREAK: u8 = 2;

/// The way up from a port.
#[derive(Debug, Default)]
pub(super) struct Way {
    queues: Vec<Queue>,
    goal: Goal,
    /// Of what went up, what has been read for sure.
    read: u64,
}

/// What had gone up when it was looked: by all queues, and by each.
#[derive(Debug, Default)]
struct Goal {
    up: u64,
    by: Vec<u64>,
}

impl Way {
    /// The way of a port whose device was just opened: what went up before is nobody's any more.
    pub fn begin(port: PortId, queues: usize, cache: &dyn DriverCache) -> Self {
        let up = cache.up(port);
        let base = |queue| if queues == 1 { up } else { cache.up_by(port, queue) };
        Self::of((0..queues).map(base).collect(), up)
    }

    /// The way of a port whose queues were opened when so much had gone up by each, and by all.
    fn of(by: Vec<u64>, up: u64) -> Self {
        Self { queues: by.iter().map(|base| Queue::from(*base)).collect(), goal: Goal { up, by }, read: up }
    }

    /// How many of the packets that went up have been read, or were lost, together with all before them.
    pub fn look(&mut self, port: PortId, device: &dyn Port, cache: &dyn DriverCache, now: Instant) -> u64 {
        if self.queues.is_empty() {
            // Its device was opened before anything was counted.
            *self = Self::of(vec![0; device.receive_queues()], 0);
        }
        if let [queue] = self.queues.as_mut_slice() {
            return queue.done(device.arrivals(0), cache.up(port), now, || device.lost(0));
        }
        if self.reaches_goal(port, device, cache, now) {
            self.read = self.goal.up;
            self.goal.up = cache.up(port);
            let by = self.goal.by.iter_mut().enumerate();
            by.for_each(|(queue, goal)| *goal = cache.up_by(port, queue));
            if self.reaches_goal(port, device, cache, now) {
                self.read = self.goal.up;
            }
        }
        self.read
    }

    /// Whether each queue has been read as far as it was filled when that was looked at.
    fn reaches_goal(
        &mut self,
        port: PortId,
        device: &dyn Port,
        cache: &dyn DriverCache,
        now: Instant,
    ) -> bool {
        let queues = self.queues.iter_mut().zip(&self.goal.by).enumerate();
        let behind = queues.filter_map(|(number, (queue, goal))| {
            let up = cache.up_by(port, number);
            let done = queue.done(device.arrivals(number), up, now, || device.lost(number));
            (done.wrapping_sub(*goal).cast_signed() < 0).then_some(())
        });
        behind.count() == 0
    }

    /// Whether more packets go up than are read.
    pub fn is_overloaded(&self) -> bool {
        self.queues.iter().any(|queue| queue.overloaded)
    }
}

/// The way up by a receive queue.
#[derive(Debug, Default)]
struct Queue {
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

impl Queue {
    /// The way by a queue that was opened when so many packets had gone up by it.
    fn from(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// The packets that were read, or lost. `up`: those that went up; `losses` asks how many frames were lost so far.
    fn done(&mut self, arrivals: Arrivals, up: u64, now: Instant, losses: impl FnOnce() -> u64) -> u64 {
        let done = |way: &Self| way.base.wrapping_add(arrivals.read).wrapping_add(way.lost);
        if done(self) == up && !self.overloaded {
            return up;
        }
        if let Some((losses, read)) = self.told
            && (arrivals.drained || arrivals.read.wrapping_sub(read) > RING)
        {
            self.lost += losses - self.counted;
            (self.counted, self.told) = (losses, None);
        }
        if now >= self.next_inquiry {
            self.next_inquiry = now + INQUIRY;
            self.inquire(arrivals, (up, done(self)), losses());
        }
        done(self)
    }

    fn inquire(&mut self, arrivals: Arrivals, (up, done): (u64, u64), losses: u64) {
        let more = losses > self.seen.2;
        (self.lossy, self.lossless) =
            if more { (self.lossy.saturating_add(1), 0) } else { (0, self.lossless.saturating_add(1)) };
        if self.lossy >= STREAK {
            self.overloaded = true;
        } else if self.lossless >= STREAK {
            self.overloaded = false;
        }
        if self.told.is_none() && losses > self.counted {
            self.told = Some((losses, arrivals.read));
        }
        let now = (up, arrivals.read, losses);
        // What is missing although nothing moves was lost where nobody counts.
        if arrivals.drained && self.told.is_none() && self.seen == now {
            // Or was read although nobody counted it: then this is less than nothing.
            self.lost = self.lost.wrapping_add(up.wrapping_sub(done));
        }
        self.seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn read(read: u64, drained: bool) -> Arrivals {
        Arrivals { read, drained }
    }

    #[test]
    fn what_was_read_is_done() {
        let mut queue = Queue::default();
        let never = || unreachable!("nothing is missing");
        assert_eq!(queue.done(read(7, true), 7, at(10), never), 7);
        let far = u64::from(u32::MAX) + 3;
        assert_eq!(queue.done(read(far, true), far, at(10), never), far);
        assert_eq!(queue.done(read(8, false), 11, at(10), || 0), 8, "three are under way");
    }

    #[test]
    fn a_loss_is_done_when_what_went_up_before_it_is_read() {
        let mut queue = Queue::default();
        assert_eq!(queue.done(read(10, false), 30, at(10), || 5), 10);
        assert_eq!(queue.done(read(20, false), 30, at(11), || unreachable!("asked a moment ago")), 20);
        assert_eq!(queue.done(read(25, true), 30, at(12), || unreachable!()), 30);
        assert_eq!(queue.done(read(100, false), 105, at(20), || unreachable!("nothing is missing")), 105);
        assert_eq!(queue.done(read(100, false), 20_105, at(30), || 10_000), 105);
        assert_eq!(queue.done(read(100 + RING, false), 20_105, at(31), || unreachable!()), 105 + RING);
        let all = 101 + RING + 10_000;
        assert_eq!(queue.done(read(101 + RING, false), 20_105, at(32), || unreachable!()), all);
    }

    #[test]
    fn what_nobody_counts_is_given_up_when_nothing_moves() {
        let mut queue = Queue::from(100);
        let mut done = |millis, up| queue.done(read(7, true), up, at(millis), || 0);
        assert_eq!([done(10, 110), done(12, 110), done(20, 110)], [107, 107, 110]);
        assert_eq!([done(30, 111), done(32, 111)], [110, 110], "it moves");
        assert_eq!([done(40, 109), done(50, 109)], [110, 109], "more was read than was counted");
    }

    #[test]
    fn losses_again_and_again_are_an_overload() {
        let mut queue = Queue::default();
        let mut inquire = |millis, lost| {
            let _ = queue.done(read(0, false), u64::MAX, at(millis), || lost);
            queue.overloaded
        };
        let seen = [(10, 1), (20, 1), (30, 2), (40, 3), (50, 3), (60, 3)].map(|(at, lost)| inquire(at, lost));
        assert_eq!(seen, [false, false, false, true, true, false]);
    }
}
