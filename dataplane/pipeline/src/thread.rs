//! A worker under the real clock: when it polls, when it sleeps, and what wakes it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use millrace_units::Instant;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::worker::{Turn, Worker};

/// How a worker waits for packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoMode {
    /// It never sleeps.
    Poll,
    /// It sleeps whenever there is nothing to do.
    Interrupt,
    /// It polls while packets come, and sleeps once none came for [`PATIENCE`]; after a long sleep it goes back to
    /// sleep without polling, until a sleep turns out to have been short. It polls as well while a queue is to send within
    /// 150 microseconds.
    #[default]
    Adaptive,
}

/// How long an adaptive worker polls in vain before it sleeps, and the shortest sleep after which it does not poll.
/// Longer than the gap between the batches of a busy sender, shorter than would show in the use of a processor.
pub const PATIENCE: Duration = Duration::from_micros(50);

/// What is due within this time is not slept for: one sleep in a hundred ends some 110 microseconds late, and from about 80 Mb/s on
/// a queue may make up for less than that at once.
const SOON: Duration = Duration::from_micros(150);

/// Longest sleep: an upper bound on how late anything that nobody signals is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Something that can be signalled from another thread.
#[derive(Clone, Debug)]
pub struct Wake(Arc<EventFd>);

impl Wake {
    /// A new signal.
    ///
    /// # Errors
    /// The kernel's, when no descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?)))
    }

    /// Signals. Signals before the next [`clear`](Self::clear) are one.
    pub fn signal(&self) {
        // The counter of an event descriptor overflows after 2^64 signals.
        let _ = self.0.write(1);
    }

    /// Forgets the signals so far.
    pub fn clear(&self) {
        // An error says that there was none.
        let _ = self.0.read();
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// What a time namespace adds to the kernel's CLOCK_MONOTONIC, in nanoseconds. Programs of the kernel have the clock itself, and share
/// token buckets with workers.
static NAMESPACE: LazyLock<i64> = LazyLock::new(|| {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    monotonic_offset(&offsets)
});

/// That of CLOCK_MONOTONIC of all offsets, in nanoseconds; 0 where nothing is said of it.
fn monotonic_offset(offsets: &str) -> i64 {
    let own = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers =
        own.into_iter().flat_map(str::split_ascii_whitespace).map(|word| word.parse().unwrap_or(0));
    numbers.next().unwrap_or(0_i64) * 1_000_000_000 + numbers.next().unwrap_or(0)
}

/// The moment by the kernel's CLOCK_MONOTONIC, as programs of the kernel have it.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(TimeSpec::new(0, 0));
    let own = time.tv_sec() * 1_000_000_000 + time.tv_nsec();
    Instant::from_nanos((own - *NAMESPACE).max(0).unsigned_abs())
}

/// Runs `worker` until it is told to stop. `wake` is signalled by control after a command; `control` is signalled
/// when events wait for it.
pub fn run(worker: &mut Worker, mode: IoMode, wake: &Wake, control: &Wake) {
    let mut time = now();
    let mut last_packet = time;
    let mut patience = PATIENCE;
    // What is due must not wait for timers of others. Where that is refused, it waits 50 microseconds longer.
    let _ = set_timerslack(1);
    let early = if mode == IoMode::Adaptive { PATIENCE } else { Duration::ZERO };
    loop {
        let turn = worker.turn(time, now);
        if turn.events > 0 {
            control.signal();
        }
        if turn.stopped {
            return;
        }
        if turn.received > 0 {
            last_packet = time;
        }
        let idle = time.since(last_packet) >= patience;
        let may_sleep = match mode {
            IoMode::Poll => false,
            IoMode::Interrupt => turn.received == 0,
            IoMode::Adaptive => turn.received == 0 && idle && !is_soon(turn.next_event, time),
        };
        let before = time;
        if may_sleep && turn.commands == 0 && worker.fall_asleep() {
            sleep(worker, &turn, wake, early);
            worker.wake_up();
            time = now();
            // Polling pays only where it would have been shorter than this sleep.
            patience = if time.since(before) < PATIENCE { PATIENCE } else { Duration::ZERO };
        } else {
            time = now();
            if turn.commands > 0 {
                worker.note_change(time.since(before));
            }
        }
    }
}

/// Whether something is to be done so soon that a sleep would end too late for it: a thread comes back from a processor that
/// was halted some 60 microseconds after its timer, a queue at 1 Gb/s sends a packet every 12, and what a worker is late by
/// for long is lost to the queue's rate.
fn is_soon(next_event: Option<Instant>, now: Instant) -> bool {
    next_event.is_some_and(|event| event.since(now) < SOON)
}

/// How long to sleep at most: until so much before the next event.
fn longest_sleep(must_poll: bool, next_event: Option<Instant>, now: Instant, early: Duration) -> Duration {
    let longest = if must_poll { Duration::from_millis(1) } else { LONGEST_SLEEP };
    next_event.map_or(longest, |event| longest.min(event.since(now).saturating_sub(early)))
}

fn sleep(worker: &mut Worker, turn: &Turn, wake: &Wake, early: Duration) {
    let longest = longest_sleep(worker.must_poll(), turn.next_event, now(), early);
    let raw = std::iter::once(wake.as_raw_fd()).chain(worker.descriptors());
    let mut descriptors: Vec<PollFd<'_>> = raw
        // SAFETY: the worker's devices and `wake` keep these descriptors open until the poll is over.
        .map(|fd| PollFd::new(unsafe { BorrowedFd::borrow_raw(fd) }, PollFlags::POLLIN))
        .collect();
    // An interrupted sleep is a short one.
    let _ = ppoll(&mut descriptors, Some(TimeSpec::from_duration(longest)), None);
    if descriptors.first().and_then(PollFd::any).unwrap_or(true) {
        wake.clear();
    }
    worker.count_sleep();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let first = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now().since(first) >= Duration::from_millis(2));
    }

    #[test]
    fn a_namespace_of_time_says_what_it_adds() {
        assert_eq!(
            monotonic_offset("monotonic       86400         7\nboottime            0         0\n"),
            86_400_000_000_007
        );
        assert_eq!(monotonic_offset("monotonic  -1  500000000\n"), -500_000_000);
        assert_eq!(monotonic_offset(""), 0);
    }

    #[test]
    fn only_what_is_due_later_than_a_sleep_lasts_is_slept_for() {
        let now = Instant::from_nanos(1_000_000);
        let soon = |nanos| is_soon(Some(Instant::from_nanos(nanos)), now);
        assert_eq!([soon(0), soon(1_149_999), soon(1_150_000)], [true, true, false]);
        assert!(!is_soon(None, now));
    }

    #[test]
    fn a_sleep_ends_before_what_is_due() {
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
