//! Processor counters of the calling thread in user space: cycles, instructions and cache misses
//! (`perf_event_open(2)`).
//!
//! Virtual machines often have no such counters, and the kernel may forbid them
//! (`kernel.perf_event_paranoid`); then opening a counter returns `None`.

mod meter;

pub(crate) use meter::Meter;

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// Kind of event, by the numbers of `linux/perf_event.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    kind: u32,
    number: u64,
}

impl Event {
    /// Core cycles (`PERF_COUNT_HW_CPU_CYCLES`).
    pub const CYCLES: Self = Self { kind: 0, number: 0 };
    /// Executed instructions (`PERF_COUNT_HW_INSTRUCTIONS`).
    pub const INSTRUCTIONS: Self = Self { kind: 0, number: 1 };
    /// Accesses that the last-level cache didn't serve (`PERF_COUNT_HW_CACHE_MISSES`).
    pub const CACHE_MISSES: Self = Self { kind: 0, number: 3 };
    /// Run time of the thread in nanoseconds (`PERF_COUNT_SW_TASK_CLOCK`). The kernel counts this event
    /// without hardware, so it is always available.
    #[cfg(test)]
    const TASK_CLOCK: Self = Self { kind: 1, number: 1 };
}

/// First version of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`); the kernel sets the later fields to 0.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    number: u64,
    period: u64,
    sample: u64,
    format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    extension: u64,
}

/// Flag that keeps a counter on the processor at all times (never multiplexed). Reading the counter fails if
/// the processor has no free counter for it.
const PINNED: u64 = 1 << 2;
const NOT_KERNEL: u64 = 1 << 5;
const NOT_HYPERVISOR: u64 = 1 << 6;

/// Counter of the calling thread's events, from the opening of the counter on.
#[derive(Debug)]
pub(crate) struct Counter(OwnedFd);

impl Counter {
    /// Opens a counter; returns `None` if the processor or the kernel has no such counter.
    pub fn open(event: Event) -> Option<Self> {
        let attributes = Attributes {
            kind: event.kind,
            size: size_of::<Attributes>() as u32,
            number: event.number,
            flags: PINNED | NOT_KERNEL | NOT_HYPERVISOR,
            ..Attributes::default()
        };
        let (this_thread, any_processor, no_group, close_on_exec) = (0, -1, -1, 8_u64);
        // SAFETY: the kernel reads only `size` bytes of the attributes, and keeps no pointer to them.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                this_thread,
                any_processor,
                no_group,
                close_on_exec,
            )
        };
        let descriptor = i32::try_from(answer).ok().filter(|descriptor| *descriptor >= 0)?;
        // SAFETY: the kernel has just created this descriptor, and no other code owns it.
        let counter = Self(unsafe { OwnedFd::from_raw_fd(descriptor) });
        counter.read().ok().map(|_| counter)
    }

    /// Returns the number of events so far.
    ///
    /// # Errors
    /// The processor has no free counter.
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let read = nix::unistd::read(self.0.as_fd(), &mut bytes)?;
        if read == bytes.len() {
            Ok(u64::from_ne_bytes(bytes))
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Runs `work`. Returns its result and the number of events meanwhile; `None` if the events could not be
    /// counted.
    pub fn count<T>(&self, work: impl FnOnce() -> T) -> (T, Option<u64>) {
        let before = self.read();
        let done = work();
        (done, before.ok().zip(self.read().ok()).map(|(before, after)| after - before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_runs_while_its_thread_runs() {
        let Some(counter) = Counter::open(Event::TASK_CLOCK) else {
            return println!("skipped: the kernel gives no counters");
        };
        let (sum, nanoseconds) = counter.count(|| (0..1_000_000_u64).map(std::hint::black_box).sum::<u64>());
        assert_eq!(sum, 499_999_500_000);
        assert!(nanoseconds.is_some_and(|nanoseconds| nanoseconds > 1000), "{nanoseconds:?}");
    }

    #[test]
    fn an_event_that_does_not_exist_has_no_counter() {
        assert!(Counter::open(Event { kind: 1, number: 1 << 40 }).is_none());
    }
}
