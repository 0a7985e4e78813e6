//! Thread that runs a worker under the real clock: polling, sleep, and wake-up.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::LazyLock;
use std::time::Duration;

use millrace_units::Instant;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

pub use crate::wake::Wake;
use crate::worker::{Iteration, Worker};

/// Mode in which a worker waits for packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoMode {
    /// The worker never sleeps.
    Poll,
    /// The worker sleeps whenever it has nothing to do.
    Interrupt,
    /// The worker polls while packets arrive, and sleeps once none has arrived for [`PATIENCE`]. After a
    /// sleep of at least `PATIENCE`, it sleeps again without polling first. It also polls if a queue is due
    /// to send within 150 microseconds.
    #[default]
    Adaptive,
}

/// Time without packets after which an adaptive worker sleeps. If a sleep was shorter than this time, the
/// worker polls afterwards. The time is longer than the gap between batches of a busy sender, and too short
/// to matter for CPU usage.
pub const PATIENCE: Duration = Duration::from_micros(50);

/// Minimum time to the next due event at which an adaptive worker may sleep. One sleep in a hundred ends
/// about 110 microseconds late. A queue above about 80 Mb/s can't make up for such a delay at once.
const SOON: Duration = Duration::from_micros(150);

/// Longest sleep. It limits the delay of events that signal no descriptor.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Offset between the clock of a time namespace and the kernel's CLOCK_MONOTONIC, in nanoseconds. eBPF
/// programs, which share token buckets with workers, read the kernel's clock without the offset.
static NAMESPACE: LazyLock<i64> = LazyLock::new(|| {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    monotonic_offset(&offsets)
});

/// Returns the CLOCK_MONOTONIC offset from the contents of `/proc/self/timens_offsets`, in nanoseconds; 0 if
/// it is missing.
fn monotonic_offset(offsets: &str) -> i64 {
    let own = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers =
        own.into_iter().flat_map(str::split_ascii_whitespace).map(|word| word.parse().unwrap_or(0));
    numbers.next().unwrap_or(0_i64) * 1_000_000_000 + numbers.next().unwrap_or(0)
}

/// Returns the time by the kernel's CLOCK_MONOTONIC, as eBPF programs read it.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(TimeSpec::new(0, 0));
    let own = time.tv_sec() * 1_000_000_000 + time.tv_nsec();
    Instant::from_nanos((own - *NAMESPACE).max(0).unsigned_abs())
}

/// Runs `worker` until it is stopped. Control signals `wake` after a command; the worker signals `control`
/// when events wait.
pub fn run(worker: &mut Worker, mode: IoMode, wake: &Wake, control: &Wake) {
    let mut time = now();
    let mut last_packet = time;
    let mut patience = PATIENCE;
    // Keeps the kernel from delaying timers to combine them. If the call fails, events are up to 50
    // microseconds late.
    let _ = set_timerslack(1);
    let early = if mode == IoMode::Adaptive { PATIENCE } else { Duration::ZERO };
    loop {
        let iteration = worker.iterate(time, now);
        if iteration.events > 0 {
            control.signal();
        }
        if iteration.stopped {
            return;
        }
        if iteration.received > 0 {
            last_packet = time;
        }
        let idle = time.since(last_packet) >= patience;
        let may_sleep = match mode {
            IoMode::Poll => false,
            IoMode::Interrupt => iteration.received == 0,
            IoMode::Adaptive => iteration.received == 0 && idle && !is_soon(iteration.next_event, time),
        };
        let before = time;
        if may_sleep && iteration.commands == 0 && worker.fall_asleep() {
            sleep(worker, &iteration, wake, early);
            worker.wake_up();
            time = now();
            // Polling pays off only if packets arrive before a sleep of `PATIENCE` ends.
            patience = if time.since(before) < PATIENCE { PATIENCE } else { Duration::ZERO };
        } else {
            if iteration.awaits && iteration.received == 0 {
                // The awaited process may need this processor.
                std::thread::yield_now();
            }
            time = now();
            if iteration.commands > 0 {
                worker.note_change(time.since(before));
            }
        }
    }
}

/// Returns whether an event is due so soon that a sleep would end too late. A thread on a halted processor
/// resumes about 60 microseconds after its timer. In this time, a queue at 1 Gb/s sends five packets. A long
/// delay of the worker reduces the rate of the queue.
fn is_soon(next_event: Option<Instant>, now: Instant) -> bool {
    next_event.is_some_and(|event| event.since(now) < SOON)
}

/// Returns the maximum duration of a sleep. `early`: minimum time between the end of the sleep and the next
/// event.
fn longest_sleep(must_poll: bool, next_event: Option<Instant>, now: Instant, early: Duration) -> Duration {
    let longest = if must_poll { Duration::from_millis(1) } else { LONGEST_SLEEP };
    next_event.map_or(longest, |event| longest.min(event.since(now).saturating_sub(early)))
}

fn sleep(worker: &mut Worker, iteration: &Iteration, wake: &Wake, early: Duration) {
    let longest = longest_sleep(worker.must_poll(), iteration.next_event, now(), early);
    let raw = std::iter::once(wake.as_raw_fd()).chain(worker.descriptors());
    let mut descriptors: Vec<PollFd<'_>> = raw
        // SAFETY: the worker's devices and `wake` keep these descriptors open until the poll is over.
        .map(|fd| PollFd::new(unsafe { BorrowedFd::borrow_raw(fd) }, PollFlags::POLLIN))
        .collect();
    // An error means that a signal handler has interrupted the sleep, which then counts as a short sleep.
    let _ = ppoll(&mut descriptors, Some(TimeSpec::from_duration(longest)), None);
    descriptors.iter().skip(1).for_each(forget_error);
    if descriptors.first().and_then(PollFd::any).unwrap_or(true) {
        wake.clear();
    }
    worker.count_sleep();
}

/// Clears the error of a socket, such as that of a link that was down. Otherwise each sleep would end at once.
fn forget_error(descriptor: &PollFd<'_>) {
    if descriptor.revents().is_some_and(|events| events.contains(PollFlags::POLLERR)) {
        // Reading clears. A descriptor that is no socket has no such error.
        let _ = getsockopt(&descriptor.as_fd(), sockopt::SocketError);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances() {
        let first = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now().since(first) >= Duration::from_millis(2));
    }

    #[test]
    fn time_namespace_reports_its_offset() {
        assert_eq!(
            monotonic_offset("monotonic       86400         7\nboottime            0         0\n"),
            86_400_000_000_007
        );
        assert_eq!(monotonic_offset("monotonic  -1  500000000\n"), -500_000_000);
        assert_eq!(monotonic_offset(""), 0);
    }

    #[test]
    fn worker_sleeps_only_until_the_next_deadline_after_the_minimum() {
        let now = Instant::from_nanos(1_000_000);
        let soon = |nanos| is_soon(Some(Instant::from_nanos(nanos)), now);
        assert_eq!([soon(0), soon(1_149_999), soon(1_150_000)], [true, true, false]);
        assert!(!is_soon(None, now));
    }

    #[test]
    fn sleep_ends_before_the_next_deadline() {
        let now = Instant::from_nanos(1_000_000);
        let sleep = |nanos, early| longest_sleep(false, Some(Instant::from_nanos(nanos)), now, early);
        assert_eq!(sleep(1_120_000, PATIENCE), Duration::from_micros(70));
        assert_eq!(sleep(1_120_000, Duration::ZERO), Duration::from_micros(120));
        assert_eq!(sleep(1_020_000, PATIENCE), Duration::ZERO);
        assert_eq!(sleep(5_000_000_000, PATIENCE), LONGEST_SLEEP);
        assert_eq!(longest_sleep(true, None, now, PATIENCE), Duration::from_millis(1));
    }

    #[test]
    fn signals_are_forgotten_once() {
        let wake = Wake::new().unwrap();
        wake.signal();
        wake.signal();
        wake.clear();
        let mut descriptors = [PollFd::new(
            // SAFETY: `wake` outlives the poll.
            unsafe { BorrowedFd::borrow_raw(wake.as_raw_fd()) },
            PollFlags::POLLIN,
        )];
        assert_eq!(ppoll(&mut descriptors, Some(TimeSpec::new(0, 0)), None), Ok(0));
    }
}
