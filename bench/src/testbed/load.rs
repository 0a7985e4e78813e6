//! Traffic of a throughput measurement: frames at a steady rate, generated on a dedicated processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_lab::within;
use millrace_offload::{Flows, FrameSource};
use nix::unistd::Pid;

use crate::BenchError;
use crate::testbed::network::Network;
use crate::testbed::process::{Processor, dedicate};

/// Number of frames per batch handed to the kernel. Larger batches cost less per frame, but overrun a
/// socket's ring.
const BATCH: u32 = 64;
/// Delay of a batch from which the sender skips missed batches. After a shorter delay, the sender sends the
/// missed batches in a burst.
const LATEST: Duration = Duration::from_millis(1);

/// Rate of a sender at full speed.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Thread that sends frames from `g` through the router to the sink. Dropping this value ends the thread.
#[derive(Debug)]
pub(crate) struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), BenchError>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Sending rate in frames per second; 0 pauses the sender.
    rate: AtomicU64,
    /// Number of frames per call. Ignored if it is below [`BATCH`].
    run: AtomicU32,
    /// Number of generated frames.
    sent: AtomicU64,
    /// Total time of the calls that generate frames, in nanoseconds.
    busy: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    /// Starts the sending thread, paused at first. It sends `frames` in rotation, each with the given flows.
    pub fn of(
        network: &Network,
        processor: Processor,
        frames: Vec<Vec<u8>>,
        flows: Flows,
    ) -> Result<Self, BenchError> {
        let shared = Arc::new(Shared::default());
        let (name, device) = (network.g.name().to_owned(), network.g.index("g0")?);
        let theirs = Arc::clone(&shared);
        let work = move || within(&name, || send(&theirs, device, processor, (&frames, flows)))?;
        Ok(Self { shared, thread: Some(std::thread::spawn(work)) })
    }

    /// Changes the rate, in frames per second.
    pub fn set_rate(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::Relaxed);
    }

    /// Sets the number of frames generated per call. The frames still leave in batches, without a pause
    /// between batches. A call costs as much time as 30 to 60 frames, in addition to its frames. With one
    /// batch per call, this cost would dominate the sender's time.
    pub fn set_run(&self, frames: u32) {
        self.shared.run.store(frames, Ordering::Relaxed);
    }

    /// Returns the number of frames generated so far.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Returns the total time of the calls that generate frames. This includes the time of other work on the
    /// sender's processor during the calls.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.shared.busy.load(Ordering::Relaxed))
    }

    /// Returns the error that ended the thread, if any.
    pub fn check(&mut self) -> Result<(), BenchError> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(thread) = self.thread.take()
        {
            return thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Ignore the thread's error: the owner did not call `check`.
            let _ = thread.join();
        }
    }
}

fn send(
    shared: &Shared,
    device: u32,
    processor: Processor,
    (frames, flows): (&[Vec<u8>], Flows),
) -> Result<(), BenchError> {
    dedicate(Pid::from_raw(0), processor)?;
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut source = FrameSource::new(&frames, flows)?;
    let mut pace = Pace::new((0, BATCH), Instant::now());
    while !shared.stop.load(Ordering::Relaxed) {
        let rate = shared.rate.load(Ordering::Relaxed);
        if rate == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let run = shared.run.load(Ordering::Relaxed).max(BATCH);
        if (rate, run) != (pace.rate, pace.run) {
            pace = Pace::new((rate, run), Instant::now());
        }
        let now = Instant::now();
        if pace.is_due(now) {
            let sent = source.send(device, run, BATCH)?;
            shared.busy.fetch_add(now.elapsed().as_nanos() as u64, Ordering::Relaxed);
            shared.sent.fetch_add(sent, Ordering::Relaxed);
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Clock of a sender: computes when the next call is due at a given rate.
#[derive(Debug)]
struct Pace {
    rate: u64,
    /// Number of frames per call.
    run: u32,
    interval: Duration,
    next: Instant,
}

impl Pace {
    fn new((rate, run): (u64, u32), now: Instant) -> Self {
        let interval = match rate {
            0 | UNLIMITED => Duration::ZERO,
            rate => Duration::from_secs_f64(f64::from(run) / rate as f64),
        };
        Self { rate, run, interval, next: now }
    }

    /// Whether a call is due at `now`. If so, the due time advances to the next call.
    fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        if now - self.next > LATEST {
            self.next = now;
        }
        self.next += self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_due_at_the_rate_and_missed_batches_do_not_pile_up() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut pace = Pace::new((640_000, 64), start); // a batch each 100 µs
        let due = |pace: &mut Pace, now| (0..).take_while(|_| pace.is_due(now)).count();
        assert_eq!(due(&mut pace, at(0)), 1);
        assert_eq!(due(&mut pace, at(99)), 0);
        assert_eq!(due(&mut pace, at(100)), 1);
        assert_eq!(due(&mut pace, at(450)), 3);
        assert_eq!(due(&mut pace, at(50_000)), 1);
    }

    #[test]
    fn without_a_limit_a_batch_is_always_due() {
        let start = Instant::now();
        let mut pace = Pace::new((UNLIMITED, 64), start);
        assert!((0..10).all(|_| pace.is_due(start)));
    }
}
