//! How many of the packets that went up from a port have been read.
//!
//! The driver counts what it sends up, the port what it reads: the difference is under way, or was lost on the way. What
//! was lost the port asks the kernel for now and then. A loss is counted as read only when all that went up before it
//! has been read, or flows would be let down too early.
//!
//! A device of several receive queues is read queue by queue, by one worker or several, so that many packets read are not the first ones
//! that went up. There each queue has a [`Goal`]: what had gone up by all queues, and by this one.

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

/// The way up from a port, by those receive queues that this worker reads.
#[derive(Debug, Default)]
pub(super) struct Way {
    queues: Vec<Queue>,
    /// What had gone up by all queues before the device was opened.
    base: u64,
}

impl Way {
    /// The way of a port whose device was just opened: what went up before is nobody's any more.
    pub fn begin(port: PortId, device: &dyn Port, cache: &dyn DriverCache) -> Self {
        Self::of(device, cache.up(port), |number| cache.up_by(port, number))
    }

    /// The same when so much had gone up by all queues, and by each.
    fn of(device: &dyn Port, base: u64, by: impl Fn(usize) -> u64) -> Self {
        let goal = Goal { up: base, by: 0 };
        let own = (0..device.receive_queues()).map(|index| device.queue_number(index));
        let queues = own.map(|number| Queue { number, base: by(number), goal, ..Queue::default() });
        Self { queues: queues.collect(), base }
    }

    /// For each queue that this worker reads: of the packets that went up by all queues, those before which none of this one is left to be
    /// read, and whether more goes up by it than is read. `is_only`: no worker reads another queue.
    pub fn look(
        &mut self,
        port: PortId,
        device: &dyn Port,
        cache: &dyn DriverCache,
        is_only: bool,
        now: Instant,
    ) -> impl Iterator<Item = (usize, u64, bool)> {
        if self.queues.is_empty() {
            // Its device was opened before anything was counted.
            *self = Self::of(device, 0, |_| 0);
        }
        let base = self.base;
        self.queues.iter_mut().enumerate().map(move |(index, queue)| {
            let (arrivals, losses) = (device.arrivals(index), || device.lost(index));
            let read = match is_only {
                // The first ones that went up are the first ones that are read.
                true => {
                    base.wrapping_add(queue.done(arrivals, cache.up(port).wrapping_sub(base), now, losses))
                }
                false => {
                    let by = |queue: &Queue| cache.up_by(port, queue.number).wrapping_sub(queue.base);
                    let done = queue.done(arrivals, by(queue), now, losses);
                    queue.reaches(done, || cache.up(port), by)
                }
            };
            (queue.number, read, queue.overloaded)
        })
    }

    /// The queues that this worker reads.
    pub fn queues(&self) -> impl Iterator<Item = usize> {
        self.queues.iter().map(|queue| queue.number)
    }

    /// Whether more packets go up than are read.
    pub fn is_overloaded(&self) -> bool {
        self.queues.iter().any(|queue| queue.overloaded)
    }
}

/// What had gone up when it was looked: by all queues, and by one since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Goal {
    up: u64,
    by: u64,
}

/// The way up by a receive queue.
#[derive(Debug, Default)]
struct Queue {
    number: usize,
    /// What had gone up by it before it was opened.
    base: u64,
    goal: Goal,
    /// What was `goal.up` when a goal was last reached.
    reached: u64,
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
    /// What had gone up by all queues when the last goal was set that is reached now that so much of this one has been read.
    fn reaches(&mut self, done: u64, up: impl Fn() -> u64, by: impl Fn(&Self) -> u64) -> u64 {
        let reached = |queue: &Self| done.wrapping_sub(queue.goal.by).cast_signed() >= 0;
        if reached(self) {
            self.reached = self.goal.up;
            // In this order: what is counted among all was counted by its queue before.
            self.goal.up = up();
            self.goal.by = by(self);
            if reached(self) {
                self.reached = self.goal.up;
            }
        }
        self.reached
    }

    /// The packets that were read, or lost, since the queue was opened. `up`: those that went up; `losses` asks how many frames were
    /// lost so far.
    fn done(&mut self, arrivals: Arrivals, up: u64, now: Instant, losses: impl FnOnce() -> u64) -> u64 {
        let done = |queue: &Self| arrivals.read.wrapping_add(queue.lost);
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
        let mut queue = Queue::default();
        let mut done = |millis, up| queue.done(read(7, true), up, at(millis), || 0);
        assert_eq!([done(10, 10), done(12, 10), done(20, 10)], [7, 7, 10]);
        assert_eq!([done(30, 11), done(32, 11)], [10, 10], "it moves");
        assert_eq!([done(40, 9), done(50, 9)], [10, 9], "more was read than was counted");
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

    #[test]
    fn what_went_up_by_others_is_behind_a_queue_that_was_read_as_far_as_it_was_filled_then() {
        let mut queue = Queue::default();
        let mut reaches = |done, up, by| queue.reaches(done, || up, |_| by);
        assert_eq!(reaches(0, 10, 4), 0, "four of ten are its own, and none has been read");
        assert_eq!(reaches(3, 99, 99), 0);
        assert_eq!(reaches(4, 30, 9), 10, "whatever came since");
        assert_eq!(reaches(8, 99, 99), 10);
        assert_eq!(reaches(9, 31, 9), 31, "and it is empty");
    }
}
