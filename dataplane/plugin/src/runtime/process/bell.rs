//! Wake-up of a plugin's process that sleeps on a futex in the shared memory; and the number of the worker's
//! processor, where a process only runs while its worker waits.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use millrace_plugin_abi::process::{ASLEEP, PROCESSOR};
use nix::sched::sched_getcpu;

/// Wakes the process if it sleeps. The caller must have written the request before. The process owns the bell,
/// too: whatever it writes there, this takes at most one system call, which doesn't wait.
#[inline]
pub(super) fn ring(bell: &AtomicU32) {
    // The fence orders the written request before the read of the bell; the process does the opposite.
    fence(Ordering::SeqCst);
    if bell.load(Ordering::Relaxed) == ASLEEP {
        wake(bell);
    }
}

#[cold]
fn wake(bell: &AtomicU32) {
    bell.store(0, Ordering::Relaxed);
    // SAFETY: the word is mapped; the call only wakes a thread that waits for it.
    unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Writes the number of the worker's processor, plus 1, to the memory that it shares with the process; 0 if the
/// system has no numbers. The worker calls this before each request, because it may have moved.
#[inline]
pub(super) fn publish_processor(words: &[AtomicU64]) {
    let number = sched_getcpu().map_or(0, |processor| processor as u64 + 1);
    // A write would take the cache line away from the process.
    if let Some(word) = words.get(PROCESSOR).filter(|word| word.load(Ordering::Relaxed) != number) {
        word.store(number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn worker_publishes_its_processor_after_each_move() {
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let words: Vec<_> = (0..64).map(|_| AtomicU64::new(0)).collect();
        for processor in (0..CpuSet::count()).filter(|processor| all.is_set(*processor) == Ok(true)) {
            let mut set = CpuSet::new();
            set.set(processor).unwrap();
            sched_setaffinity(Pid::from_raw(0), &set).unwrap();
            publish_processor(&words);
            assert_eq!(words[PROCESSOR].load(Ordering::Relaxed), processor as u64 + 1);
        }
        publish_processor(&[]);
    }
}
