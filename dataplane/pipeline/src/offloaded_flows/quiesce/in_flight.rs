//! Upcalls in flight: packets that the XDP program has passed to a port's socket and the worker has not read.
//!
//! The XDP program counts the upcalls of a port, and the port counts the packets that it reads. The
//! difference is in flight, or was lost between them. While packets are missing, the port asks the kernel for
//! losses. A loss counts as read only after all earlier upcalls were read; otherwise an entry would be used
//! too early.
//!
//! One worker or several read the receive queues of a device one by one. So the packets read are not the
//! first upcalls of the port. A port with several queues therefore keeps a [`Checkpoint`] for each queue: its
//! upcall count and that of the port at one time. A queue that was read up to its own count has no unread
//! upcall below the port's.

use std::time::Duration;

use millrace_port::{Arrivals, Port};
use millrace_units::{Instant, PortId};

use crate::offloaded_flows::cache::WorkerFlowCache;

/// Interval at which a port asks the kernel for losses while packets are missing.
const INQUIRY: Duration = Duration::from_millis(5);
/// Maximum number of frames in flight in a receive queue.
const RING: u64 = 8192;
/// Number of successive inquiries with losses that start an overload, and of inquiries without losses that
/// end it.
const STREAK: u8 = 2;

/// Upcalls in flight from a port, by the receive queues that this worker reads.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    queues: Vec<Queue>,
    /// Upcalls by all queues before the device was opened.
    base: u64,
}

/// Progress of a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueRead {
    pub queue: usize,
    /// Watermark: number of the port's upcalls, all queues counted. This queue has no unread upcall below it.
    pub read: u64,
    /// Whether the queue gets more upcalls than the worker reads.
    pub overloaded: bool,
}

impl InFlight {
    /// Returns the state of a port whose device was just opened. Earlier upcalls count as read.
    pub fn open(port: PortId, device: &dyn Port, cache: &dyn WorkerFlowCache) -> Self {
        Self::of(device, cache.up(port), |number| cache.up_by(port, number))
    }

    /// Returns the state of a port with earlier upcalls: `base` by all queues, and `by` each queue.
    fn of(device: &dyn Port, base: u64, by: impl Fn(usize) -> u64) -> Self {
        let checkpoint = Checkpoint { up: base, by: 0 };
        let own = (0..device.receive_queues()).map(|index| device.queue_number(index));
        let queues = own.map(|number| Queue { number, base: by(number), checkpoint, ..Queue::default() });
        Self { queues: queues.collect(), base }
    }

    /// Returns the progress of each queue that this worker reads. `is_only`: the port has no other queue.
    pub fn read(
        &mut self,
        port: PortId,
        device: &dyn Port,
        cache: &dyn WorkerFlowCache,
        is_only: bool,
        now: Instant,
    ) -> impl Iterator<Item = QueueRead> {
        if self.queues.is_empty() {
            // The device was opened before the flow cache existed.
            *self = Self::of(device, 0, |_| 0);
        }
        let base = self.base;
        self.queues.iter_mut().enumerate().map(move |(index, queue)| {
            let (arrivals, losses) = (device.arrivals(index), || device.lost(index));
            let read = match is_only {
                // The worker reads upcalls in their order.
                true => {
                    base.wrapping_add(queue.done(arrivals, cache.up(port).wrapping_sub(base), now, losses))
                }
                false => {
                    let by = |queue: &Queue| cache.up_by(port, queue.number).wrapping_sub(queue.base);
                    let done = queue.done(arrivals, by(queue), now, losses);
                    queue.reach(done, || cache.up(port), by)
                }
            };
            QueueRead { queue: queue.number, read, overloaded: queue.overloaded }
        })
    }

    /// Returns the queues that this worker reads.
    pub fn queues(&self) -> impl Iterator<Item = usize> {
        self.queues.iter().map(|queue| queue.number)
    }

    /// Returns whether a queue gets more upcalls than the worker reads.
    pub fn is_overloaded(&self) -> bool {
        self.queues.iter().any(|queue| queue.overloaded)
    }
}

/// Upcall counts at one time: of all queues of the port, and of one queue since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Checkpoint {
    up: u64,
    by: u64,
}

/// Counts of the last inquiry for losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Inquiry {
    up: u64,
    read: u64,
    losses: u64,
}

/// Upcalls in flight by a receive queue.
#[derive(Debug, Default)]
struct Queue {
    number: usize,
    /// Upcalls by the queue before it was opened.
    base: u64,
    checkpoint: Checkpoint,
    /// Upcalls by all queues at the last checkpoint that was reached.
    reached: u64,
    /// Losses before the last packet read.
    lost: u64,
    /// Losses that the port has reported and `lost` does not contain yet, and the number of packets read at
    /// that report.
    reported: Option<(u64, u64)>,
    /// Losses that the port has reported and `lost` contains.
    counted: u64,
    next_inquiry: Instant,
    last_inquiry: Inquiry,
    /// Inquiries in a row with losses.
    lossy: u8,
    /// Inquiries in a row without losses.
    lossless: u8,
    overloaded: bool,
}

impl Queue {
    /// Returns the upcalls by all queues at the last checkpoint that `done` packets of this queue have
    /// reached, and sets the next one.
    fn reach(&mut self, done: u64, up: impl Fn() -> u64, by: impl Fn(&Self) -> u64) -> u64 {
        let is_reached = |queue: &Self| done.wrapping_sub(queue.checkpoint.by).cast_signed() >= 0;
        if is_reached(self) {
            self.reached = self.checkpoint.up;
            // The order matters: the XDP program counts an upcall by its queue first, and by all queues
            // second.
            self.checkpoint.up = up();
            self.checkpoint.by = by(self);
            if is_reached(self) {
                self.reached = self.checkpoint.up;
            }
        }
        self.reached
    }

    /// Returns the packets that were read or lost since the queue was opened. `up`: upcalls by the queue;
    /// `losses` returns the frames lost so far.
    fn done(&mut self, arrivals: Arrivals, up: u64, now: Instant, losses: impl FnOnce() -> u64) -> u64 {
        let done = |queue: &Self| arrivals.read.wrapping_add(queue.lost);
        if done(self) == up && !self.overloaded {
            return up;
        }
        if let Some((losses, read)) = self.reported
            && (arrivals.drained || arrivals.read.wrapping_sub(read) > RING)
        {
            self.lost = self.lost.wrapping_add(losses - self.counted);
            (self.counted, self.reported) = (losses, None);
        }
        if now >= self.next_inquiry {
            self.next_inquiry = now + INQUIRY;
            self.inquire(arrivals, (up, done(self)), losses());
        }
        done(self)
    }

    /// Evaluates the losses that the port reports.
    fn inquire(&mut self, arrivals: Arrivals, (up, done): (u64, u64), losses: u64) {
        let more = losses > self.last_inquiry.losses;
        (self.lossy, self.lossless) =
            if more { (self.lossy.saturating_add(1), 0) } else { (0, self.lossless.saturating_add(1)) };
        if self.lossy >= STREAK {
            self.overloaded = true;
        } else if self.lossless >= STREAK {
            self.overloaded = false;
        }
        if self.reported.is_none() && losses > self.counted {
            self.reported = Some((losses, arrivals.read));
        }
        let inquiry = Inquiry { up, read: arrivals.read, losses };
        // Packets that are missing while no count changes were lost without a count.
        if arrivals.drained && self.reported.is_none() && self.last_inquiry == inquiry {
            // The difference is negative if packets were read without a count.
            self.lost = self.lost.wrapping_add(up.wrapping_sub(done));
        }
        self.last_inquiry = inquiry;
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
    fn packets_read_are_done() {
        let mut queue = Queue::default();
        let never = || unreachable!("nothing is missing");
        assert_eq!(queue.done(read(7, true), 7, at(10), never), 7);
        let far = u64::from(u32::MAX) + 3;
        assert_eq!(queue.done(read(far, true), far, at(10), never), far);
        assert_eq!(queue.done(read(8, false), 11, at(10), || 0), 8, "three are under way");
    }

    #[test]
    fn loss_is_done_when_earlier_upcalls_are_read() {
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
    fn uncounted_losses_are_done_when_no_count_changes() {
        let mut queue = Queue::default();
        let mut done = |millis, up| queue.done(read(7, true), up, at(millis), || 0);
        assert_eq!([done(10, 10), done(12, 10), done(20, 10)], [7, 7, 10]);
        assert_eq!([done(30, 11), done(32, 11)], [10, 10], "it moves");
        assert_eq!([done(40, 9), done(50, 9)], [10, 9], "more was read than was counted");
    }

    #[test]
    fn losses_in_a_row_are_an_overload() {
        let mut queue = Queue::default();
        let mut inquire = |millis, lost| {
            let _ = queue.done(read(0, false), u64::MAX, at(millis), || lost);
            queue.overloaded
        };
        let seen = [(10, 1), (20, 1), (30, 2), (40, 3), (50, 3), (60, 3)].map(|(at, lost)| inquire(at, lost));
        assert_eq!(seen, [false, false, false, true, true, false]);
    }

    #[test]
    fn checkpoint_is_reached_when_a_queue_was_read_up_to_its_upcalls_at_that_time() {
        let mut queue = Queue::default();
        let mut reach = |done, up, by| queue.reach(done, || up, |_| by);
        assert_eq!(reach(0, 10, 4), 0, "four of ten are its own, and none has been read");
        assert_eq!(reach(3, 99, 99), 0);
        assert_eq!(reach(4, 30, 9), 10, "whatever came since");
        assert_eq!(reach(8, 99, 99), 10);
        assert_eq!(reach(9, 31, 9), 31, "and it is empty");
    }
}
