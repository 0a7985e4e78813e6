//! Wake-up of a plugin's process that sleeps on a futex in the shared memory.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering, fence};

use millrace_plugin_abi::process::ASLEEP;

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
