//! Upcalls in flight: packets that the XDP program has passed to a port's socket and that the worker has not
//! read.
//!
//! The XDP program counts the upcalls of a port, and the port counts the packets that it reads. The
//! difference is in flight, or was lost between them. While packets are missing, the worker asks the port's
//! device for losses. A loss counts as read only after all earlier upcalls were read; otherwise an entry
//! would be used too early.
//!
//! Workers read the receive queues of a device one by one. So the packets read are not the first upcalls of
//! the port. A port with several queues therefore keeps a [`Checkpoint`] for each queue: the upcall counts of
//! the queue and of the whole port at one time. Once the queue was read up to its own count, it has no unread
//! upcall below the port's count.

use std::time::Duration;

use millrace_port::{Arrivals, Port};
use millrace_units::{Instant, PortId};

use crate::offloaded_flows::cache::WorkerFlowCache;

/// Interval at which a device is asked for losses while packets are missing.
const INQUIRY: Duration = Duration::from_millis(5);
/// Maximum number of frames in flight in a receive queue.
const RING: u64 = 8192;
/// Number of successive inquiries with losses that start an overload, and of inquiries without losses that
/// end it.
const STREAK: u8 = 2;

/// Upcalls in flight from a port, for each receive queue that this worker reads.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    queues: Vec<Queue>,
    /// Upcall count of the port, all its queues together, when the device was opened.
    base: u64,
}

/// Progress of a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueRead {
    pub queue: usize,
    /// Watermark: a count of the upcalls of the whole port. The worker has read each upcall of this queue up
    /// to that count.
    pub read: u64,
    /// Whether the queue gets more upcalls than the worker reads.
    pub overloaded: bool,
}

impl InFlight {
    /// Returns the state of a port whose device was just opened. Earlier upcalls count as read.
    pub fn open(port: PortId, device: &dyn Port, cache: &dyn WorkerFlowCache) -> Self {
        Self::of(device, cache.up(port), |number| cache.up_by(port, number))
    }

    /// Returns the state of a port at its opening, or at the creation of the flow cache. Earlier upcalls
    /// count as read: `base` upcalls of the port, and `by(n)` upcalls of queue n.
    fn of(device: &dyn Port, base: u64, by: impl Fn(usize) -> u64) -> Self {
        let checkpoint = Checkpoint { up: base, by: 0 };
        let own = (0..device.receive_queues()).map(|index| device.queue_number(index));
        let queues = own.map(|number| Queue { number, base: by(number), checkpoint, ..Queue::default() });
        Self { queues: queues.collect(), base }
    }

    /// Returns the progress of each receive queue that this worker reads. `is_only`: the port has a single
    /// receive queue.
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
                // With a single queue, the worker reads the upcalls of the port in their order.
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

    /// Returns whether any queue gets more upcalls than the worker reads.
    pub fn is_overloaded(&self) -> bool {
        self.queues.iter().any(|queue| queue.overloaded)
    }
}

/// Upcall counts taken at one time: `up` of all queues of the port, `by` of one queue since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Checkpoint {
    up: u64,
    by: u64,
}

/// Counters at the last inquiry for losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Inquiry {
    up: u64,
    read: u64,
    losses: u64,
}

/// Upcalls in flight in one receive queue.
#[derive(Debug, Default)]
struct Queue {
    number: usize,
    /// Number of upcalls by the queue before it was opened.
    base: u64,
    checkpoint: Checkpoint,
    /// Upcalls of the port up to the latest checkpoint that the worker has read past.
    reached: u64,
    /// Number of losses that count as read.
    lost: u64,
    /// Losses that the device has reported and that `lost` does not contain yet. The pair holds the device's
    /// total losses and the number of packets read, both at the report; `None` if `lost` contains all losses.
    reported: Option<(u64, u64)>,
    /// Total losses reported by the device that `lost` contains.
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
    /// Returns the upcalls of the port up to the latest checkpoint that the worker has read past. `done`:
    /// packets of this queue that were read or lost. If the worker has read past the current checkpoint, sets
    /// the next one. `up` and `by` return the current upcall counts of port and queue.
    fn reach(&mut self, done: u64, up: impl Fn() -> u64, by: impl Fn(&Self) -> u64) -> u64 {
        let is_reached = |queue: &Self| done.wrapping_sub(queue.checkpoint.by).cast_signed() >= 0;
        if is_reached(self) {
            self.reached = self.checkpoint.up;
            // The port's count must be read first: the XDP program adds an upcall to the queue's count before
            // the port's.
            self.checkpoint.up = up();
            self.checkpoint.by = by(self);
            if is_reached(self) {
                self.reached = self.checkpoint.up;
            }
        }
        self.reached
    }

    /// Returns the number of packets read or lost since the queue was opened. `up`: upcalls by the queue
    /// since then; `losses` returns the frames lost so far.
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

    /// Evaluates the losses that the device reports. `done`: packets read or lost so far.
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
        // If packets are missing and no counter has changed since the last inquiry, the missing packets were
        // lost and no counter contains them.
        if arrivals.drained && self.reported.is_none() && self.last_inquiry == inquiry {
            // The difference is negative if the worker read packets that the XDP program had not counted.
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
