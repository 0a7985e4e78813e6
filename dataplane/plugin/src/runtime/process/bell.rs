//! Sleep and wake-up of a plugin's process, by a futex in the shared memory.
#![allow(unsafe_code)]

use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Value of the bell while the process sleeps, or is about to.
const ASLEEP: u32 = 1;

/// Wakes the process if it sleeps. The caller must have written the request before. The process owns the bell,
/// too: whatever it writes there, this takes at most one system call, which doesn't wait.
#[inline]
pub(super) fn ring(bell: &AtomicU32) {
    // The fence orders the written request before the read of the bell; `sleep` does the opposite.
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

/// Sleeps until the other side rings, unless `has_work` holds.
pub(super) fn sleep(bell: &AtomicU32, has_work: impl FnOnce() -> bool) {
    bell.store(ASLEEP, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if !has_work() {
        // SAFETY: the word is mapped; the call waits while it has this value, without a time limit. A spurious
        // wake-up is harmless.
        unsafe {
            libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAIT, ASLEEP, null::<libc::timespec>())
        };
    }
    bell.store(0, Ordering::Relaxed);
}
